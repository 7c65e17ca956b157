"""A batch as the outside sees it: OpenAI's JSON."""

from __future__ import annotations

from typing import Any

from fairlane.batches.view import BatchView


def batch_view(batch: BatchView) -> dict[str, Any]:
    """OpenAI's batch object."""
    times = ("in_progress", "expires", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model,
        "errors": _errors(batch),
        "input_file_id": batch.input_file_id,
        "completion_window": batch.completion_window,
        "status": batch.status,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": batch.created_at_ms // 1000,
        **{f"{name}_at": _seconds(getattr(batch, f"{name}_at_ms")) for name in times},
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "usage": _usage(batch),
        "metadata": dict(batch.metadata) or None,
    }


def _errors(batch: BatchView) -> dict[str, Any] | None:
    if not batch.faults:
        return None
    data = [{"code": f.code, "message": f.message, "param": f.param, "line": f.line} for f in batch.faults]
    return {"object": "list", "data": data}


def _usage(batch: BatchView) -> dict[str, Any] | None:
    """What the answers say they cost. Of cached and reasoning tokens nothing is known."""
    if batch.usage is None:
        return None
    given, made = batch.usage.input_tokens, batch.usage.output_tokens
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": given + made,
    }


def _seconds(ms: int | None) -> int | None:
    return None if ms is None else ms // 1000
