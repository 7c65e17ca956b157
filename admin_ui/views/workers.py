"""Workers: the dispatchers, whether they are heard, and what they hold."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from flask import Blueprint, render_template

from admin_ui.access import current, needs
from admin_ui.bridge import Stores
from admin_ui.reading import cached
from fairlane.queue.fleet import Dispatcher, Fleet, Held
from fairlane.webhooks.outbox import Outbox

page = Blueprint("workers", __name__)
LATE_MS: Final = 5_000  # a heartbeat comes every second
POOLS_MOST: Final = 20  # whose leases are shown on one page


@dataclass(frozen=True, slots=True)
class Crew:
    """All dispatchers; `unserved`: pools without one; `hooks_due`: deliveries that wait for a Celery worker."""

    dispatchers: tuple[Dispatcher, ...]
    unserved: tuple[str, ...]
    hooks_due: int


@page.get("/workers")
@needs("viewer")
def index() -> str:
    """All that were heard lately."""
    return render_template("workers.html", crew=cached(("crew",), _crew), late_ms=LATE_MS)


@page.get("/workers/<name>")
@needs("viewer")
def show(name: str) -> str:
    """One dispatcher and its leases; a viewer with some tenants sees those of their jobs only."""
    scope = current().scope

    async def read(stores: Stores) -> tuple[Dispatcher, list[Held]]:
        found = await Fleet(stores.queue).get(name)
        return found, await _held(stores, found, scope)

    dispatcher, held = cached(("dispatcher", name, scope), read)
    return render_template("worker.html", dispatcher=dispatcher, held=held, scoped=scope is not None, late_ms=LATE_MS)


async def _crew(stores: Stores) -> Crew:
    dispatchers, pools, counts = await asyncio.gather(
        Fleet(stores.queue).dispatchers(), stores.queue.pools.all(), Outbox(stores.queue.store).counts()
    )
    served = {post.pool for one in dispatchers if not one.draining for post in one.posts if post.silent_ms < LATE_MS}
    return Crew(tuple(dispatchers), tuple(pool.name for pool in pools if pool.name not in served), counts.due)


async def _held(stores: Stores, dispatcher: Dispatcher, scope: tuple[str, ...] | None) -> list[Held]:
    """What it holds of the pools in which it does most."""
    busy = sorted((post for post in dispatcher.posts if post.inflight), key=lambda post: -post.inflight)
    fleet = Fleet(stores.queue)
    pools = [await stores.queue.pools.by_name(post.pool) for post in busy[:POOLS_MOST]]
    return await asyncio.gather(*(fleet.held(pool, dispatcher.name, scope) for pool in pools))
