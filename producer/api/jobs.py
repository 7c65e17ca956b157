"""`/v1/jobs/…`: look, wait, cancel, requeue, list, explain."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request, Response

from fairlane.errors import IllegalTransition
from fairlane.explaining import explain_view
from fairlane.head import Head
from fairlane.jobview import job_view
from fairlane.queue.streams import Position
from producer.api.answers import Json
from producer.api.documents import EVENTS, EXPLANATION, JOB, PAGE, RESPONSES
from producer.api.identity import Tenant
from producer.api.listing import list_jobs
from producer.api.owned import own_job
from producer.api.presence import CLOSED, unless_gone
from producer.api.state import Shared, accepting
from producer.api.streaming import stream_response

WAIT_MOST_S: Final = 60.0

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=RESPONSES)


@router.get("", responses={200: PAGE}, response_model=None)
async def index(
    state: Shared,
    tenant: Tenant,
    state_is: Annotated[str | None, Query(alias="state")] = None,
    tier: str | None = None,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Response:
    """The tenant's own jobs, page by page; results and bodies are left out."""
    return Json(await list_jobs(state.queue, tenant, state_is, tier, cursor, limit))


@router.get("/{job_id}", responses={200: JOB}, response_model=None)
async def read(
    request: Request,
    state: Shared,
    tenant: Tenant,
    job_id: str,
    wait: Annotated[float, Query(ge=0, le=WAIT_MOST_S)] = 0.0,
) -> Response:
    """The job as it is; with `wait`, as soon as it is finished, or after so many seconds."""
    job = await own_job(state, tenant, job_id)
    if wait and job.finished_at_ms is None and not state.closing.is_set():
        found = await unless_gone(request, state.waiting.job(job_id, wait, state.closing))
        if found is None:
            return Response(status_code=CLOSED)
        job = found
        state.promises.heard(job)
    return Json(job_view(job))


@router.delete("/{job_id}", responses={200: JOB}, response_model=None)
async def cancel(state: Shared, tenant: Tenant, job_id: str) -> Response:
    """Cancels the job, in whatever state. Repeatable; a finished job is unchanged."""
    await own_job(state, tenant, job_id)
    await state.queue.cancel(job_id)
    return Json(job_view(await state.queue.inspect.outcome(job_id)))


@router.post("/{job_id}/requeue", responses={200: JOB}, response_model=None)
async def requeue(state: Shared, tenant: Tenant, job_id: str) -> Response:
    """Puts a dead job to the end of its line, with fresh attempts."""
    await own_job(state, tenant, job_id)
    await state.queue.requeue(job_id)
    return Json(job_view(await state.queue.inspect.outcome(job_id)))


@router.get("/{job_id}/stream", responses={200: EVENTS}, response_model=None)
async def stream(
    request: Request,
    tenant: Tenant,
    job_id: str,
    starting_after: Annotated[str | None, Query(max_length=100)] = None,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> Response:
    """A streamed answer from its start, or after a position, as far as it has come, and then as it comes."""
    state = accepting(request)
    job = await own_job(state, tenant, job_id)
    if not Head.decode(job.head).stream:
        raise IllegalTransition("This job was not asked for as a stream. GET /v1/jobs/{id} has its result.")
    # a browser that comes back sends the address that it began with, and how far it came since
    seen = [Position.parse(said) for said in (starting_after, last_event_id) if said]
    after = max(seen, default=None)
    return await stream_response(request, state, job_id, after=after, cancel_on_disconnect=False)


@router.get("/{job_id}/explain", responses={200: EXPLANATION}, response_model=None)
async def explain(state: Shared, tenant: Tenant, job_id: str) -> Response:
    """Why the job waits."""
    job = await own_job(state, tenant, job_id)
    why = await state.queue.inspect.explain(job_id)
    pool = await state.queue.pools.by_name(job.pool)
    waits = why.state in ("queued", "delayed")
    estimate = await state.estimates.of(pool, why, job.not_before_ms) if waits else None
    return Json(explain_view(why, pool, await state.estimates.load(pool), estimate))
