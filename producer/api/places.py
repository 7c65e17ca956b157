"""How long the queue is, for the headers of what was taken in or refused."""

from __future__ import annotations

from fastapi import Response

from fairlane.errors import QueueFull
from fairlane.estimate import Estimate
from fairlane.model import Job, JobSpec
from fairlane.queue.pools import Pool
from producer.api.errors import error_response
from producer.api.rates import read_rates
from producer.api.state import State


async def place_of(state: State, pool: Pool, job: Job) -> dict[str, str]:
    """The headers of a job that was just taken in; what they say of its wait is compared with it later."""
    if job.state not in ("queued", "delayed"):
        return _headers(Estimate(0, 0.0))
    why = await state.queue.inspect.explain(job.id)
    estimate = await state.estimates.of(pool, why, job.not_before_ms)
    if estimate.wait_s is not None:
        state.promises.made(job.id, estimate.wait_s)
    return _headers(estimate)


async def full_response(state: State, pool: Pool, spec: JobSpec, full: QueueFull) -> Response:
    """The refusal, with the place that the job would have had, and what the tenant's rates still allow."""
    place = _headers(await state.estimates.refused(pool, spec.tier))
    return error_response(full, **place, **await read_rates(state, pool, spec.tenant))


def _headers(estimate: Estimate) -> dict[str, str]:
    headers = {"x-fairlane-queue-position": str(estimate.position)}
    if estimate.wait_s is not None:
        headers["x-fairlane-estimated-wait"] = f"{estimate.wait_s:.3f}"
    return headers
