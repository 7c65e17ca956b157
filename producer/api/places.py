"""How long the queue is, for the headers of what was taken in or refused."""

from __future__ import annotations

from fastapi import Response

from fairlane.errors import QueueFull
from fairlane.queue.pools import Pool
from producer.api.errors import error_response
from producer.api.state import State


async def place_headers(state: State, pool: Pool, ahead: int) -> dict[str, str]:
    """Of a job with `ahead` jobs before it."""
    wait_s = await state.estimates.wait_s(pool, ahead)
    return {"x-fairlane-queue-position": str(ahead), "x-fairlane-estimated-wait": f"{wait_s:.3f}"}


async def full_response(state: State, pool: Pool, full: QueueFull) -> Response:
    """The refusal, with the place that the job would have had."""
    load = await state.queue.inspect.load(pool)
    return error_response(full, **await place_headers(state, pool, sum(tier.waiting for tier in load.tiers)))
