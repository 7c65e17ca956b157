"""OpenAI's endpoints: a job that the caller waits for. The backend's status and body come back unchanged."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final, cast

from fastapi import APIRouter, Request, Response

from fairlane.accounts import Caller
from fairlane.errors import (
    BackendUnreachable,
    Draining,
    Expired,
    FairlaneError,
    InvalidRequest,
    JobWasCancelled,
    QueueFull,
    StoreUnavailable,
    Timeout,
)
from fairlane.model import Job, Submitted
from producer.api.body import read_json
from producer.api.documents import INFERENCE
from producer.api.errors import error_response, retry_after_s
from producer.api.identity import KeyHeader, TierHeader, Who
from producer.api.places import full_response
from producer.api.presence import CLOSED, unless_gone
from producer.api.state import State, accepting
from producer.intake import JobRequest

router = APIRouter(tags=["inference"])
_ERRORS: Final[dict[str, type[FairlaneError]]] = {
    error.code: error for error in (FairlaneError, BackendUnreachable, Timeout, Expired, InvalidRequest)
}
_EMPTY: Final = (204, 205, 304)  # answers that have no body


@router.post("/v1/chat/completions", **INFERENCE)
async def chat(request: Request, caller: Who, tier: TierHeader = None, key: KeyHeader = None) -> Response:
    """A chat completion, when its turn has come."""
    return await _run(request, caller, tier, key)


@router.post("/v1/completions", **INFERENCE)
async def completions(request: Request, caller: Who, tier: TierHeader = None, key: KeyHeader = None) -> Response:
    """A completion, when its turn has come."""
    return await _run(request, caller, tier, key)


@router.post("/v1/embeddings", **INFERENCE)
async def embeddings(request: Request, caller: Who, tier: TierHeader = None, key: KeyHeader = None) -> Response:
    """Embeddings, when their turn has come."""
    return await _run(request, caller, tier, key)


async def _run(request: Request, caller: Caller, tier: str | None, key: str | None) -> Response:
    state = accepting(request)
    payload = await read_json(request, state.settings.max_body_bytes)
    if not isinstance(payload, dict):
        raise InvalidRequest("The body is a JSON object.")
    body = cast("dict[str, Any]", payload)
    asked = JobRequest(cast(str, body.get("model")), request.url.path, body, tier, key)
    pool, spec = await state.intake.job(asked, caller)
    try:
        submitted = await state.queue.submit(pool, spec)
    except QueueFull as full:
        return await full_response(state, pool, spec.tier, full)
    try:
        job = await unless_gone(request, state.waiting.job(submitted.id, None, state.cut))
    except StoreUnavailable as error:  # the job goes on: its id says where to look for it
        return error_response(error, **{"x-fairlane-job-id": submitted.id})
    except asyncio.CancelledError:  # the server cuts us off
        with suppress(FairlaneError):
            await asyncio.shield(_abandon(state, submitted, asked))
        raise
    if job is None:
        await _abandon(state, submitted, asked)
        return Response(status_code=CLOSED)
    if job.finished_at_ms is None:
        await _abandon(state, submitted, asked)
        raise Draining("This process ends, and the request took longer than it may wait.", retry_after=1)
    return _answer(job)


async def _abandon(state: State, submitted: Submitted, asked: JobRequest) -> None:
    """Cancels the job; with an idempotency key it goes on, since whoever sends it again joins it."""
    if asked.idempotency_key is None:
        await state.queue.cancel(submitted.id)


def _answer(job: Job) -> Response:
    headers = {"x-fairlane-job-id": job.id}
    if job.attempts:
        headers["x-fairlane-backend"] = job.attempts[-1].backend
        headers["x-fairlane-queued-ms"] = str(max(0, job.attempts[-1].started_at_ms - job.created_at_ms))
    if job.state == "succeeded" or (job.error and job.error.code == "backend_error"):
        return _unchanged(job, headers)
    return error_response(_error(job), **headers)


def _unchanged(job: Job, headers: dict[str, str]) -> Response:
    status, body = job.status or 502, job.result or b""
    if status in (429, 503):
        headers["retry-after"] = str(retry_after_s())
    if status in _EMPTY:
        return Response(None, status, headers)
    return Response(body, status, headers, media_type=_kind(body))


def _kind(body: bytes) -> str:
    """The queue keeps no content type: these servers speak JSON, but what stands before them may not."""
    return "application/json" if body[:100].lstrip()[:1] in (b"{", b"[", b"") else "text/plain"


def _error(job: Job) -> FairlaneError:
    if job.state == "cancelled":
        return JobWasCancelled()
    if job.state == "expired":
        return Expired()
    if job.error is None:
        return FairlaneError()
    if job.error.code == "lease_lost":
        return BackendUnreachable("Each dispatcher that ran this request vanished. Send it again.")
    return _ERRORS.get(job.error.code, BackendUnreachable)(job.error.message)
