"""OpenAI's endpoints: a job that the caller waits for. The backend's status and body come back unchanged."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from fastapi import APIRouter, Request, Response

from fairlane.accounts import Caller
from fairlane.errors import Draining, InvalidRequest, QueueFull, StoreUnavailable
from fairlane.model import Submitted
from fairlane.queue.streams import Position
from producer.api.body import read_json
from producer.api.documents import INFERENCE
from producer.api.errors import error_response
from producer.api.identity import KeyHeader, TierHeader, Who
from producer.api.outcome import Rewrite, answer
from producer.api.places import full_response
from producer.api.presence import CLOSED, unless_gone
from producer.api.rates import rate_headers
from producer.api.state import State, accepting
from producer.api.streaming import stream_response
from producer.intake import JobRequest

router = APIRouter(tags=["inference"])


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
    after = last_seen(request) if key is not None else None
    asked = await read_asked(request, state, tier, key)
    pool, spec = await state.intake.job(asked, caller)
    try:
        submitted = await (state.queue if asked.body.get("stream") else state.waiting).submit(pool, spec)
    except QueueFull as full:
        return await full_response(state, pool, spec, full)
    rates = await rate_headers(state, pool, spec.tenant)
    if asked.body.get("stream"):
        # with an idempotency key the job goes on when its caller hangs up; sent again, it is followed from there
        response = await stream_response(request, state, submitted.id, after=after, cancel_on_disconnect=key is None)
    else:
        response = await whole_answer(request, state, submitted, asked)
    response.headers.update(rates)
    return response


def last_seen(request: Request) -> Position | None:
    """The last event that a caller had before its connection broke. Raises InvalidRequest."""
    said = request.headers.get("last-event-id")
    return Position.parse(said) if said else None


async def read_asked(request: Request, state: State, tier: str | None, key: str | None) -> JobRequest:
    """The request as a job. Raises InvalidRequest, PayloadTooLarge."""
    payload = await read_json(request, state.settings.max_body_bytes)
    if not isinstance(payload, dict):
        raise InvalidRequest("The body is a JSON object.")
    body = cast("dict[str, Any]", payload)
    return JobRequest(cast(str, body.get("model")), request.url.path, body, tier, key)


async def whole_answer(
    request: Request, state: State, submitted: Submitted, asked: JobRequest, rewrite: Rewrite | None = None
) -> Response:
    """What the job's backend answers, once it does; of a good answer what `rewrite` makes of its body."""
    try:
        job = await unless_gone(request, state.waiting.job(submitted.id, None, state.cut))
    except StoreUnavailable as error:  # the job goes on: its id says where to look for it
        return error_response(error, **{"x-fairlane-job-id": submitted.id})
    except asyncio.CancelledError:  # the server cuts us off
        await asyncio.shield(_abandon(state, submitted, asked))
        raise
    if job is None:
        await _abandon(state, submitted, asked)
        return Response(status_code=CLOSED)
    if job.finished_at_ms is None:
        await _abandon(state, submitted, asked)
        raise Draining("This process ends, and the request took longer than it may wait.", retry_after=1)
    return answer(job, rewrite)


async def _abandon(state: State, submitted: Submitted, asked: JobRequest) -> None:
    """Cancels the job; with an idempotency key it goes on, since whoever sends it again joins it."""
    if asked.idempotency_key is None:
        await state.abandoned.cancel(submitted.id)
