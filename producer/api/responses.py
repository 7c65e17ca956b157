"""OpenAI's `/v1/responses`: create, in the background or not, retrieve, cancel. Nothing is stored beyond the job."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from fairlane.errors import IllegalTransition, NotFound, QueueFull, StoreUnavailable
from fairlane.head import Head
from fairlane.model import Job, Submitted
from fairlane.queue.pools import Pool
from fairlane.queue.streams import Position
from producer.api.answers import Json
from producer.api.documents import INFERENCE, RESPONSE, RESPONSES
from producer.api.identity import KeyHeader, Tenant, TierHeader, Who
from producer.api.inference import last_seen, read_asked, whole_answer
from producer.api.owned import own_job
from producer.api.places import full_response, place_of
from producer.api.rates import rate_headers
from producer.api.state import Shared, State, accepting
from producer.api.streaming import stream_response
from producer.intake import RESPONSES as ENDPOINT
from producer.responseview import PREFIX, Events, response_view, rewritten

router = APIRouter(prefix=ENDPOINT, tags=["responses"])


@router.post("", **INFERENCE)
async def create(request: Request, caller: Who, tier: TierHeader = None, key: KeyHeader = None) -> Response:
    """A response, when its turn has come; with `background`, at once, to be retrieved later."""
    state = accepting(request)
    seen = None if key is None else last_seen(request)
    asked = await read_asked(request, state, tier, key)
    background = asked.body.get("background") is True
    pool, spec = await state.intake.job(asked, caller)
    try:
        waits = not background and not asked.body.get("stream")
        submitted = await (state.waiting if waits else state.queue).submit(pool, spec)
    except QueueFull as full:
        return await full_response(state, pool, spec, full)
    rates = await rate_headers(state, pool, spec.tenant)
    if asked.body.get("stream"):
        events = Events(submitted.id, background=background)
        cancels = not background and key is None  # with a key, whoever sends it again joins it
        response = await _stream(request, state, submitted.id, events, seen=seen, cancels=cancels)
    elif background:
        response = await _begun(state, pool, submitted)
    else:
        response = await whole_answer(request, state, submitted, asked, rewritten)
    response.headers.update(rates)
    return response


@router.get("/{response_id}", responses=RESPONSES | {200: RESPONSE}, response_model=None)
async def read(
    request: Request,
    state: Shared,
    tenant: Tenant,
    response_id: str,
    stream: bool = False,
    starting_after: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    """The response as it is; with `stream` its events, from the first or after a sequence number, to its end."""
    job = await _own(state, tenant, response_id)
    if not stream:
        return Json(response_view(job))
    head = Head.decode(job.head)
    if not head.stream:
        raise IllegalTransition("This response was not asked for as a stream.", param="stream")
    events = Events(job.id, background=head.background, after=starting_after)
    return await _stream(request, state, job.id, events, seen=last_seen(request), cancels=False)


@router.post("/{response_id}/cancel", responses=RESPONSES | {200: RESPONSE}, response_model=None)
async def cancel(state: Shared, tenant: Tenant, response_id: str) -> Response:
    """Cancels the response, down to the backend. Repeatable; a finished one is unchanged."""
    job = await _own(state, tenant, response_id)
    await state.queue.cancel(job.id)
    return Json(response_view(await state.queue.inspect.job(job.id)))


async def _stream(
    request: Request, state: State, job_id: str, events: Events, *, seen: Position | None, cancels: bool
) -> Response:
    return await stream_response(
        request,
        state,
        job_id,
        after=seen,
        cancel_on_disconnect=cancels,
        transform=events.rewrite,
        tell=events.tell,
    )


async def _begun(state: State, pool: Pool, submitted: Submitted) -> Response:
    """A response that nobody waits for. It was taken in: that must be said, whatever else can be."""
    headers = {"x-fairlane-job-id": submitted.id}
    view = {"id": PREFIX + submitted.id, "object": "response", "status": "queued", "background": True}
    with suppress(StoreUnavailable):
        job = await state.queue.inspect.job(submitted.id)
        view = response_view(job)
        headers |= await place_of(state, pool, job)
    return Json(view, headers=headers)


async def _own(state: State, tenant: str, response_id: str) -> Job:
    """The job of one of the tenant's own responses, with its body. Raises NotFound."""
    if not response_id.startswith(PREFIX):
        raise NotFound(param="response_id")
    job = await own_job(state, tenant, response_id.removeprefix(PREFIX))
    if Head.decode(job.head).endpoint != ENDPOINT:
        raise NotFound(param="response_id")
    return await state.queue.inspect.job(job.id)
