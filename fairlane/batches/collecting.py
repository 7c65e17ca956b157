"""Outcomes of a batch's jobs: read from the queue, written as parts, marked, and forgotten in the queue. In that order.

Whoever dies after the part was written leaves content that nobody holds on to: Files sweeps it up. After the mark: the
events come again, the lines are found marked, and the jobs are forgotten then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from fairlane.batches.answers import Outcome, answer_line, error_line, part_line
from fairlane.batches.ledger import EVENTS, Event, Ledger, Record, Row, idempotency_key
from fairlane.files import Files
from fairlane.head import Head
from fairlane.model import FINISHED
from fairlane.queue.pools import Pool

GOOD: Final = 400  # statuses below are answers, those from here on errors


class Collector:
    """What brings outcomes from a pool to its batches."""

    def __init__(self, ledger: Ledger, files: Files) -> None:
        self._ledger = ledger
        self._files = files

    async def collect(self, pool: Pool) -> tuple[int, int]:
        """The next events of a pool: how many there were (-1: no batch runs there), and the most parts of a batch."""
        looked, events = await self._ledger.events(pool)
        parts = await self.take(pool, events)
        return looked, parts

    async def recheck(self, pool: Pool, batch_id: str) -> None:
        """Looks at all open jobs of a batch, whose events may be lost, or may be to come: what has ended is taken."""
        open_jobs = await self._ledger.open_jobs(batch_id)
        await self.take(pool, [Event("", job, batch_id) for job in open_jobs], open_jobs)

    async def close_gaps(self, record: Record, who: str, pool: Pool) -> None:
        """Of a batch that was fed whole and has no open job: lines that are not marked have their job opened again.

        Those without one are lost: nothing that was written may be gone, but a failover can lose a moment of it.
        """
        batch = record.view
        for start in range(1, batch.total + 1, EVENTS):
            some = range(start, min(start + EVENTS, batch.total + 1))
            marked = await self._ledger.marked(batch.id, some)
            gaps = [ordinal for ordinal, done in zip(some, marked, strict=True) if not done]
            jobs = await self._ledger.find_jobs(pool, batch, gaps, bar=False)
            if jobs:
                opened = [(job, ordinal, 0) for job, ordinal in jobs.items()]
                await self._ledger.fed(record, who, record.fed, record.offset, opened)
            found = set(jobs.values())
            if lost := [Outcome(ordinal, "", "lost") for ordinal in gaps if ordinal not in found]:
                await self.keep(batch.id, lost)

    async def keep(self, batch_id: str, outcomes: Sequence[Outcome]) -> int:
        """Writes outcomes of lines that are not marked as one part, and marks them. Returns the number of parts."""
        written = [one for one in outcomes if one.text or one.mark == "lost"]
        part = await self._write(written) if written else ""
        size = sum(len(one.text) for one in written)
        taken, parts = await self._ledger.mark(batch_id, part, size, outcomes)
        if part and not taken:  # another was first, or the batch takes nothing any more
            await self._files.discard([part])
        return parts

    async def take(self, pool: Pool, events: Sequence[Event], lines: Mapping[str, int] | None = None) -> int:
        """`lines`: ordinals of jobs that may be gone, which are then lost. Returns the most parts of a batch."""
        most, todo = 0, list(events)
        while todo:
            rows = await self._ledger.outcomes(pool, [event.job for event in todo])
            now, todo = todo[: len(rows)], todo[len(rows) :]
            outcomes: dict[str, list[Outcome]] = {}
            done: list[tuple[str, str, str]] = []
            for event, row in zip(now, rows, strict=True):
                if row is None and lines is not None:
                    outcomes.setdefault(event.batch, []).append(Outcome(lines[event.job], event.job, "lost"))
                elif row is None or row.state not in FINISHED:
                    done.append((event.id, "", ""))  # it may end at this moment: not to be forgotten
                else:
                    outcome = outcome_of(event.batch, event.job, row)
                    outcomes.setdefault(event.batch, []).append(outcome)
                    done.append((event.id, event.job, idempotency_key(event.batch, outcome.ordinal)))
            for batch_id, found in outcomes.items():
                most = max(most, await self._keep_new(batch_id, found))
            await self._ledger.forget(pool, done)
        return most

    async def _keep_new(self, batch_id: str, outcomes: Sequence[Outcome]) -> int:
        """Also those marked before are marked again: their jobs are open no more."""
        marked = await self._ledger.marked(batch_id, [one.ordinal for one in outcomes])
        once = {one.ordinal: one for one, known in zip(outcomes, marked, strict=True) if not known}
        rest = [Outcome(one.ordinal, one.job, "void") for one in outcomes if once.get(one.ordinal) is not one]
        return await self.keep(batch_id, [*once.values(), *rest])

    async def _write(self, outcomes: Iterable[Outcome]) -> str:
        """The name of a new part."""
        name = await self._files.hold("")
        async with self._files.contents.write(name) as writer:
            for outcome in outcomes:
                await writer.write(part_line(outcome))
        return name


def outcome_of(batch_id: str, job: str, row: Row) -> Outcome:
    """What a finished job means for its line."""
    head = Head.decode(row.head)
    ordinal = cast(int, head.line)
    tokens = (row.usage.input_tokens, row.usage.output_tokens) if row.usage else (0, 0)
    if row.state in ("cancelled", "expired"):
        return Outcome(ordinal, job, "late" if row.state == "expired" else "void", b"", *tokens)
    if row.status is None or (row.state == "failed" and not row.result):
        code, message = row.error.get("code", "internal"), row.error.get("message", "")
        return Outcome(ordinal, job, "bad", error_line(batch_id, ordinal, head.custom_id, code, message), *tokens)
    line = answer_line(batch_id, ordinal, head.custom_id, job, row.status, row.result)
    good = row.state == "succeeded" and row.status < GOOD
    return Outcome(ordinal, job, "ok" if good else "bad", line, *tokens)
