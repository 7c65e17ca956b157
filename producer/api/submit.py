"""`POST /v1/jobs`: one job, or many, each on its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from fastapi import APIRouter, Request, Response
from pydantic import TypeAdapter, ValidationError

from fairlane.accounts import Caller
from fairlane.errors import FairlaneError, InvalidRequest, ModelNotFound, QueueFull, StoreUnavailable
from fairlane.jobview import job_view
from fairlane.model import Job, JobSpec, Submitted
from fairlane.queue.pools import Pool
from producer.api.answers import Json
from producer.api.body import MANY, read_json
from producer.api.credentials import acting_for
from producer.api.documents import CREATE_BODY, JOB, JOB_OR_LIST, RESPONSES
from producer.api.errors import error_body, fault_of, retry_after_s
from producer.api.identity import KeyHeader, TierHeader, Who
from producer.api.places import full_response, place_of
from producer.api.rates import rate_headers
from producer.api.state import State, accepting
from producer.api.wire import JobIn
from producer.intake import JobRequest

MOST: Final = 1000
BREATH: Final = 50  # jobs that are checked in one go: others have their turn in between

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=RESPONSES)
_JOB: Final = TypeAdapter(JobIn)
Found = Pool | FairlaneError
Answer = Submitted | FairlaneError


@router.post(
    "",
    status_code=202,
    openapi_extra={"requestBody": CREATE_BODY},
    responses={202: JOB_OR_LIST, 200: JOB},
    response_model=None,
)
async def create(request: Request, caller: Who, tier: TierHeader = None, key: KeyHeader = None) -> Response:
    """One job, or up to 1,000 as `{"jobs": […]}`, each on its own."""
    state = accepting(request)
    payload = await read_json(request, MANY * state.settings.max_body_bytes)
    if not isinstance(payload, dict):
        raise InvalidRequest('The body is a job, or {"jobs": […]}.')
    given = cast("dict[str, Any]", payload)
    if key is not None and "jobs" in given:
        raise InvalidRequest("In a list each job has its own idempotency_key.", param="idempotency-key")
    if key is not None and given.setdefault("idempotency_key", key) != key:
        raise InvalidRequest("The header names another key than the job does.", param="idempotency-key")
    if "jobs" in given:
        return await _create_many(state, caller, _listed(given), tier)
    asked, caller = _asked(given, caller, tier)
    pool, spec = await state.intake.job(asked, caller)
    try:
        submitted = await state.queue.submit(pool, spec)
    except QueueFull as full:
        return await full_response(state, pool, spec, full)
    headers = {"location": f"/v1/jobs/{submitted.id}"}
    view = _bare(submitted)
    with suppress(StoreUnavailable):  # it was taken in: that must be said, whatever else can be
        job = await state.queue.inspect.outcome(submitted.id)
        view = job_view(job)
        headers |= await place_of(state, pool, job)
        headers |= await rate_headers(state, pool, spec.tenant)
    return Json(view, 202 if submitted.created else 200, headers)


def _asked(given: Any, caller: Caller, tier: str | None) -> tuple[JobRequest, Caller]:
    """What is asked for, and for whom. Raises InvalidRequest, TenantForbidden."""
    try:
        job = _JOB.validate_python(given)
    except ValidationError as error:
        raise fault_of(error.errors(include_url=False)) from error
    return job.request(tier), acting_for(caller, job.tenant)


def _listed(payload: dict[str, Any]) -> list[Any]:
    given = payload["jobs"]
    if not isinstance(given, list) or payload.keys() != {"jobs"}:
        raise InvalidRequest(
            f'A list of jobs is {{"jobs": […]}} with 1 to {MOST} jobs, and nothing else.', param="jobs"
        )
    jobs = cast("list[Any]", given)
    if not 1 <= len(jobs) <= MOST:
        raise InvalidRequest(f"A list has 1 to {MOST} jobs; this one has {len(jobs)}.", param="jobs")
    return jobs


async def _create_many(state: State, caller: Caller, given: Sequence[Any], tier: str | None) -> Response:
    answers: dict[int, Answer] = {}
    by_pool: dict[str, tuple[Pool, dict[int, JobSpec]]] = {}
    models: dict[str, Found] = {}
    for n, one in enumerate(given):
        if n % BREATH == BREATH - 1:
            await asyncio.sleep(0)
        try:
            asked, whom = _asked(one, caller, tier)
            pool = await _pool(state, whom, asked.model, models)
            spec = state.intake.spec(asked, pool, whom)
            by_pool.setdefault(pool.code, (pool, {}))[1][n] = spec
        except FairlaneError as error:
            if error.status == 503:  # Redis is away: nothing was taken in, and so it will be for the rest
                raise
            answers[n] = error
    for pool, specs in by_pool.values():
        await state.intake.limiting.ensure_all(pool, (spec.tenant for spec in specs.values()))
        answers |= zip(specs, await state.queue.submit_many(pool, specs.values()), strict=True)
    in_order = [answers[n] for n in range(len(given))]
    _check_store(in_order)
    jobs: dict[str, Job] = {}
    headers: dict[str, str] = {}
    with suppress(StoreUnavailable):  # as above
        for pool, specs in by_pool.values():
            ids = [answer.id for answer in map(answers.__getitem__, specs) if isinstance(answer, Submitted)]
            jobs |= {job.id: job for job in await state.queue.inspect.jobs(pool, ids)}
        taken = [jobs[answer.id] for answer in in_order if isinstance(answer, Submitted) and answer.id in jobs]
        headers = await place_of(state, await state.intake.pool(taken[-1].pool), taken[-1]) if taken else {}
    return Json({"jobs": [_answer(answer, jobs) for answer in in_order]}, 202, headers)


async def _pool(state: State, caller: Caller, model: str, known: dict[str, Found]) -> Pool:
    """Asks for each model once. Raises ModelNotFound, InvalidRequest."""
    if model not in known:
        try:
            known[model] = await state.intake.pool(model, caller)
        except (ModelNotFound, InvalidRequest) as error:
            known[model] = error
    found = known[model]
    if isinstance(found, FairlaneError):
        raise found
    return found


def _check_store(answers: Iterable[Answer]) -> None:
    """Raises StoreUnavailable, StoreFull if that is why nothing at all was taken in."""
    refused: FairlaneError | None = None
    for answer in answers:
        if isinstance(answer, Submitted):
            return
        if answer.status == 503:
            refused = answer
    if refused:
        raise refused


def _answer(answer: Answer, jobs: dict[str, Job]) -> dict[str, Any]:
    if isinstance(answer, FairlaneError):
        body = error_body(answer)
        if answer.status in (429, 503):
            body["error"]["retry_after"] = retry_after_s(answer)
        return body
    if answer.id in jobs:
        return job_view(jobs[answer.id])
    return _bare(answer)  # an earlier one with the same key, which was moved to another pool; or Redis is away


def _bare(submitted: Submitted) -> dict[str, Any]:
    """What is known of a job that could not be read."""
    return {"object": "job", "id": submitted.id}
