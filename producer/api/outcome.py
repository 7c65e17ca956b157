"""What a finished job is answered: its backend's status and body, unchanged, or an error of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fastapi import Response

from fairlane.errors import (
    BackendUnreachable,
    Expired,
    FairlaneError,
    InvalidRequest,
    JobWasCancelled,
    Timeout,
)
from fairlane.model import Job
from producer.api.errors import error_response, retry_after_s

Rewrite = Callable[[Job], bytes]
_ERRORS: Final[dict[str, type[FairlaneError]]] = {
    error.code: error for error in (FairlaneError, BackendUnreachable, Timeout, Expired, InvalidRequest)
}
_EMPTY: Final = (204, 205, 304)  # answers that have no body


def answer(job: Job, rewrite: Rewrite | None = None) -> Response:
    """The answer; of a good one what `rewrite` makes of its body."""
    headers = origin(job)
    if is_backends_own(job):
        return _backends_own(job, headers, rewrite)
    return error_response(error_of(job), **headers)


def origin(job: Job) -> dict[str, str]:
    """The headers that say which job it was, where it ran, how long it waited. OpenAI's clients log x-request-id."""
    if not job.attempts:
        return _names(job.id)
    last = job.attempts[-1]
    return origin_headers(job.id, last.backend, max(0, last.started_at_ms - job.created_at_ms))


def origin_headers(job_id: str, backend: str, queued_ms: int) -> dict[str, str]:
    """Those of a job that runs, or has run."""
    return {**_names(job_id), "x-fairlane-backend": backend, "x-fairlane-queued-ms": str(queued_ms)}


def _names(job_id: str) -> dict[str, str]:
    return {"x-fairlane-job-id": job_id, "x-request-id": job_id}


def is_backends_own(job: Job) -> bool:
    """Whether the backend's own words are the answer, good or bad."""
    return job.state == "succeeded" or (job.error is not None and job.error.code == "backend_error")


def error_of(job: Job) -> FairlaneError:
    """Why a job has no answer."""
    if job.state == "cancelled":
        return JobWasCancelled()
    if job.state == "expired":
        return Expired()
    if job.error is None:
        return FairlaneError()
    if job.error.code == "lease_lost":
        return BackendUnreachable("Each dispatcher that ran this request vanished. Send it again.")
    return _ERRORS.get(job.error.code, BackendUnreachable)(job.error.message)


def _backends_own(job: Job, headers: dict[str, str], rewrite: Rewrite | None) -> Response:
    status, body = job.status or 502, job.result or b""
    if not 200 <= status <= 599:
        status = 502
    if rewrite and job.state == "succeeded":
        body = rewrite(job)
    if status in (429, 503):
        headers["retry-after"] = str(retry_after_s())
    if status in _EMPTY:
        return Response(None, status, headers)
    return Response(body, status, headers, media_type=_kind(body))


def _kind(body: bytes) -> str:
    """The queue keeps no content type: these servers speak JSON, but what stands before them may not."""
    return "application/json" if body[:100].lstrip()[:1] in (b"{", b"[", b"") else "text/plain"
