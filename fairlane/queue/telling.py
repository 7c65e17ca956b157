"""What the channel `settled:<id>` says: a word, or the whole of a small outcome (lua/lib/outcome.lua).

And the channel `settled:<inbox>` of a process that submitted many jobs: the same, of each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, cast

from fairlane.model import Job, JobSpec, State
from fairlane.queue import replies
from fairlane.queue.pools import Pool


def outcome_told(job: Job, message: str) -> Job | None:
    """The job as it is since it was settled, if the message tells that; `job` is as it was read before."""
    told = _told(message)
    return replace(job, **told) if told else None


def _told(message: str) -> dict[str, Any] | None:
    """The job's values that the message tells of; None also if it is not understood: then who waits reads."""
    head, whole, values = message.encode(errors="surrogateescape").partition(b"\n")
    if not whole:
        return None
    try:
        return _values_told(head, values)
    except (ValueError, KeyError, IndexError, TypeError):
        return None


def _values_told(head: bytes, values: bytes) -> dict[str, Any]:
    tier, *parts = head.decode().split(" ")
    fields: dict[str, bytes] = {}
    start = 0
    for name, _, size in (part.partition(":") for part in parts):
        fields[name] = values[start : start + int(size)]
        start += int(size)
    attempts = replies.attempts(fields.get("attempts", b""))
    return {
        "tier": tier,
        "state": cast(State, fields["state"].decode()),
        "started_at_ms": attempts[0].started_at_ms if attempts else None,
        "finished_at_ms": int(fields["ended"]),
        "attempts": attempts,
        "status": int(fields["status"]) if "status" in fields else None,
        "result": fields.get("result"),
        "error": replies.job_error(fields.get("error")),
        "usage": replies.usage_of(fields.get("usage")),
    }


@dataclass(frozen=True, slots=True)
class Letter:
    """What an inbox is told of one job. `word` is what the job's own channel says, `created_at_ms` 0 if that is
    "moved"."""

    job_id: str
    created_at_ms: int
    word: str

    @classmethod
    def parse(cls, message: str) -> Self | None:
        """None for '', which says that something may have been missed, and for what says nothing."""
        job_id, _, rest = message.partition(" ")
        created, _, word = rest.partition(" ")
        return cls(job_id, int(created), word) if word and created.isdecimal() else None

    def outcome(self, job: Job) -> Job | None:
        """The finished job, if the letter tells all of it. `job` is as `submitted_job` has it.

        Of a job that was tried again not all is told: that has to be read.
        """
        told = _told(self.word)
        if told is None or len(told["attempts"]) != 1:
            return None
        deadline_ms = None if job.deadline_at_ms is None else self.created_at_ms + job.deadline_at_ms
        return replace(job, **told, created_at_ms=self.created_at_ms, deadline_at_ms=deadline_ms)


def submitted_job(pool: Pool, spec: JobSpec, job_id: str) -> Job:
    """A job as it was just taken in, without its body; when that was is not known: its times count from then."""
    return Job(
        id=job_id,
        pool=pool.name,
        tenant=spec.tenant,
        tier=spec.tier,
        state="queued",
        dead=False,
        created_at_ms=0,
        not_before_ms=None,
        deadline_at_ms=spec.deadline_ms,
        started_at_ms=None,
        finished_at_ms=None,
        attempts=(),
        max_attempts=spec.max_attempts,
        batch_id=spec.batch_id,
        head=spec.head,
        body=None,
        status=None,
        result=None,
        error=None,
        usage=None,
    )
