"""What the channel `settled:<id>` says: a word, or the whole of a small outcome (lua/lib/outcome.lua)."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from fairlane.model import Job, State
from fairlane.queue import replies


def outcome_told(job: Job, message: str) -> Job | None:
    """The job as it is since it was settled, if the message tells that; `job` is as it was read before."""
    head, whole, values = message.encode(errors="surrogateescape").partition(b"\n")
    if not whole:
        return None
    tier, *parts = head.decode().split(" ")
    fields: dict[str, bytes] = {}
    start = 0
    for name, _, size in (part.partition(":") for part in parts):
        fields[name] = values[start : start + int(size)]
        start += int(size)
    attempts = replies.attempts(fields.get("attempts", b""))
    return replace(
        job,
        tier=tier,
        state=cast(State, fields["state"].decode()),
        started_at_ms=attempts[0].started_at_ms if attempts else None,
        finished_at_ms=int(fields["ended"]),
        attempts=attempts,
        status=int(fields["status"]) if "status" in fields else None,
        result=fields.get("result"),
        error=replies.job_error(fields.get("error")),
        usage=replies.usage_of(fields.get("usage")),
    )
