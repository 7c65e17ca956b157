"""A job's life so far: the stretches of it, drawn side by side, and what happened when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from admin_ui.showing import duration, number
from fairlane.model import FINISHED, Attempt, Job

LEAST: Final = 0.6  # % of the whole that a stretch takes to be seen
Kind = Literal["delayed", "waiting", "dead", "running", "succeeded", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a job's life. `x` and `width` are % of the whole; one that goes on has no end (ms)."""

    kind: Kind
    words: str
    from_ms: int
    to_ms: int | None
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened to a job at `at_ms`; `note` has its numbers."""

    at_ms: int
    words: str
    note: str = ""


def stretches(job: Job, now_ms: int) -> list[Stretch]:
    """From its submit to its end, or to now."""
    begun, end = job.created_at_ms, _end(job, now_ms)
    whole = max(1, end - begun)
    found: list[Stretch] = []
    for kind, words, from_ms, to_ms in _parts(job, now_ms):
        until = end if to_ms is None else to_ms
        width = max(LEAST, 100 * (until - from_ms) / whole)
        x = min(100 * (from_ms - begun) / whole, 100 - width)
        found.append(Stretch(kind, f"{words}: {duration(until - from_ms)}", from_ms, to_ms, max(0.0, x), width))
    return found


def moments(job: Job) -> list[Moment]:
    """What happened, in order."""
    found = [Moment(job.created_at_ms, "Submitted", f"by {job.tenant}, tier {job.tier}")]
    since = job.created_at_ms
    for no, attempt in numbered(job.attempts):
        waited = duration(attempt.started_at_ms - since)
        found.append(Moment(attempt.started_at_ms, f"Attempt {no} on {attempt.backend}", f"after {waited}"))
        if attempt.ended_at_ms is not None:
            ran = duration(attempt.ended_at_ms - attempt.started_at_ms)
            found.append(Moment(attempt.ended_at_ms, _ended(no, attempt), f"ran for {ran}"))
            since = attempt.ended_at_ms
    if job.finished_at_ms is not None and job.state in FINISHED:
        found.append(Moment(job.finished_at_ms, f"Settled: {'dead' if job.dead else job.state}", _usage(job)))
    return sorted(found, key=lambda moment: moment.at_ms)


def waited_ms(job: Job, now_ms: int) -> int:
    """How long it has waited in all, delays and the pauses before retries included."""
    parts = _parts(job, now_ms)
    end = _end(job, now_ms)
    return sum((end if to is None else to) - at for kind, _, at, to in parts if kind in ("delayed", "waiting"))


def numbered(attempts: Iterable[Attempt]) -> Iterator[tuple[int, Attempt]]:
    """Attempts with their numbers in the whole life of the job; their own begin anew when it is requeued."""
    earlier = last = 0
    for attempt in attempts:
        if attempt.n <= last:
            earlier += last
        last = attempt.n
        yield earlier + last, attempt


def _parts(job: Job, now_ms: int) -> list[tuple[Kind, str, int, int | None]]:
    found: list[tuple[Kind, str, int, int | None]] = []
    since = job.created_at_ms
    before: Attempt | None = None
    for no, attempt in numbered(job.attempts):
        found += _gap(job, before, attempt, since)
        found.append(_attempt(no, attempt))
        before, since = attempt, attempt.ended_at_ms or attempt.started_at_ms
    if job.state in ("queued", "delayed"):
        kind: Kind = "delayed" if job.state == "delayed" else "waiting"
        found.append((kind, "delayed" if kind == "delayed" else "waiting", since, None))
    elif job.finished_at_ms is not None and not job.attempts:
        found.append(("waiting", "waiting", since, job.finished_at_ms))
    return [(kind, words, at, to) for kind, words, at, to in found if to is None or to > at or kind != "waiting"]


def _gap(job: Job, before: Attempt | None, attempt: Attempt, since: int) -> Iterator[tuple[Kind, str, int, int]]:
    """Between two attempts, or before the first one."""
    start = attempt.started_at_ms
    due = job.not_before_ms
    if before is not None and attempt.n <= before.n:
        yield "dead", "dead or waiting again", since, start
    elif due is not None and since < due <= start:
        yield "delayed", "delayed", since, due
        yield "waiting", "waiting", due, start
    else:
        yield "waiting", "waiting", since, start


def _attempt(no: int, attempt: Attempt) -> tuple[Kind, str, int, int | None]:
    kinds: dict[str | None, Kind] = {None: "running", "succeeded": "succeeded", "cancelled": "cancelled"}
    words = f"attempt {no} on {attempt.backend}, {attempt.outcome or 'running'}"
    return kinds.get(attempt.outcome, "failed"), words, attempt.started_at_ms, attempt.ended_at_ms


def _ended(no: int, attempt: Attempt) -> str:
    status = "" if attempt.status is None else f", status {attempt.status}"
    return f"Attempt {no} ended: {(attempt.outcome or '').replace('_', ' ')}{status}"


def _usage(job: Job) -> str:
    if job.usage is None:
        return ""
    return f"{number(job.usage.input_tokens)} tokens in, {number(job.usage.output_tokens)} out"


def _end(job: Job, now_ms: int) -> int:
    last = [attempt.ended_at_ms or 0 for attempt in job.attempts]
    if job.finished_at_ms is not None and job.state in FINISHED:
        return max(job.finished_at_ms, *last, 0)
    return max(now_ms, job.created_at_ms + 1)
