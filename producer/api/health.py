"""`/health/live`, `/health/ready` and `/metrics`."""

from __future__ import annotations

import time

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from fairlane.errors import FairlaneError
from fairlane.metrics import PoolCollector, PoolReading
from fairlane.webhooks.outbox import Outbox
from producer.api.answers import Json
from producer.api.documents import METRICS, READINESS, STORE_RESPONSES
from producer.api.errors import retry_after_s
from producer.api.state import Shared, State

router = APIRouter(tags=["health"])


@router.get("/health/live")
async def live() -> dict[str, str]:
    """The process answers."""
    return {"status": "live"}


@router.get("/health/ready", responses={200: READINESS, 503: READINESS}, response_model=None)
async def ready(state: Shared) -> Response:
    """200 if jobs can be taken in now (under `fairlane up`: and run), else 503 and why not."""
    reasons = await _reasons(state)
    if reasons:
        return Json({"status": "not_ready", "reasons": reasons}, 503, {"retry-after": str(retry_after_s())})
    return Json({"status": "ready"})


async def _reasons(state: State) -> list[str]:
    if state.closing.is_set():
        return ["draining"]
    try:
        await state.queue.check(writable=True)
        if not state.needs_dispatcher:
            return []
        return await _idle_pools(state)
    except FairlaneError as error:
        return [f"{error.code}: {error.public}"]


async def _idle_pools(state: State) -> list[str]:
    """Pools that nobody serves, or none of whose backends was ever scraped.

    A dead backend does not unready a queue, nor does a pool whose backends were all removed.
    """
    reasons: list[str] = []
    for pool in await state.queue.pools.all():
        load = await state.queue.inspect.load(pool)
        if not await state.queue.inspect.dispatchers(pool):
            reasons.append(f"no_dispatcher: nobody serves the pool {pool.name}")
        elif load.backends and not any(view.fresh_at_ms for view in load.backends):
            reasons.append(f"no_scrape: no backend of the pool {pool.name} was seen yet")
    return reasons


@router.get("/metrics", responses={200: METRICS, **STORE_RESPONSES}, response_model=None)
async def metrics(state: Shared) -> Response:
    """Pools, tiers, gates, backends and webhooks, read from Redis now; and what this front door has counted."""
    collector = PoolCollector(await Outbox(state.queue.store).counts())
    for pool in await state.queue.pools.all():
        overview = await state.queue.inspect.overview(pool)
        collector.show(PoolReading(pool.name, overview, pool.policy.gamma, round(1000 * time.time())))
    registry = CollectorRegistry()
    registry.register(collector)
    shown = generate_latest(registry) + generate_latest(state.registry)
    return Response(shown, media_type=CONTENT_TYPE_LATEST)
