"""A job as the outside sees it: contract.md's JSON."""

from __future__ import annotations

from typing import Any

from fairlane import strictjson
from fairlane.head import Head
from fairlane.model import Attempt, Job


def job_view(job: Job) -> dict[str, Any]:
    """Times in Unix seconds; what is absent is None."""
    head = Head.decode(job.head)
    return {
        "object": "job",
        "id": job.id,
        "pool": job.pool,
        "model": head.model,
        "endpoint": head.endpoint,
        "tenant": job.tenant,
        "tier": job.tier,
        "state": job.state,
        "dead": job.dead,
        "created_at": _seconds(job.created_at_ms),
        "not_before": _seconds(job.not_before_ms),
        "deadline_at": _seconds(job.deadline_at_ms),
        "started_at": _seconds(job.started_at_ms),
        "finished_at": _seconds(job.finished_at_ms),
        "attempts": [_attempt(attempt) for attempt in job.attempts],
        "max_attempts": job.max_attempts,
        "result": _result(job),
        "error": None
        if job.error is None
        else {"code": job.error.code, "message": job.error.message, "status": job.error.status},
        "usage": None
        if job.usage is None
        else {
            "prompt_tokens": job.usage.input_tokens,
            "completion_tokens": job.usage.output_tokens,
            "total_tokens": job.usage.input_tokens + job.usage.output_tokens,
        },
        "metadata": dict(head.metadata),
        "batch_id": job.batch_id,
    }


def body_of(result: bytes) -> Any:
    """A result's body: the JSON value that it is, or its text."""
    try:
        return strictjson.parse_answer(result)
    except ValueError:
        return result.decode(errors="replace")


def _result(job: Job) -> dict[str, Any] | None:
    if job.result is None:
        return None
    return {"status": job.status, "body": body_of(job.result)}


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "n": attempt.n,
        "backend": attempt.backend,
        "started_at": _seconds(attempt.started_at_ms),
        "ended_at": _seconds(attempt.ended_at_ms),
        "outcome": attempt.outcome,
        "status": attempt.status,
    }


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
