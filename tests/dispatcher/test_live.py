"""What is changed while a pool works holds from the next scrape on, and the next lease."""

from __future__ import annotations

import pytest

from fairlane.model import BackendSpec, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from tests.contract.acts import set_gate, take
from tests.dispatcher.observing import SCRAPE_S, observed, reached, view
from tests.dispatcher.pages import Page
from tests.dispatcher.scripted import Script, hang, in_state, make_worker, submit, until, working


@pytest.fixture
def policy(request: pytest.FixtureRequest) -> Policy:
    return getattr(request, "param", Policy(stale_ms=round(3000 * SCRAPE_S)))


@pytest.fixture
async def pool(queue: Queue, policy: Policy) -> Pool:
    made = await queue.pools.open("llama", policy)
    await queue.set_backend(made, "b1", "add", spec=BackendSpec("http://b1"))
    return made


async def gates_are(queue: Queue, pool: Pool, **limits: int) -> None:
    async def so() -> bool:
        found = (await view(queue, pool)).gates
        return limits.items() <= {tier: gate.limit for tier, gate in found.items()}.items()

    await until(so)


async def test_theta_kv_and_speed_hold_from_the_next_scrape_on(queue: Queue, pool: Pool) -> None:
    page = Page()
    page.kv, page.token_ms = 0.5, 20.0
    async with observed(queue, pool, page):
        await gates_are(queue, pool, priority=4, default=3, flex=2, batch=2)
        await queue.set_policy(pool, {"theta": (8, 4, 2)}, by="test")
        await gates_are(queue, pool, priority=9, default=5, flex=3, batch=3)
        await queue.set_policy(pool, {"kv_most": 0.4}, by="test")
        await gates_are(queue, pool, priority=9, default=0, flex=0, batch=0)
        await queue.set_policy(pool, {"kv_most": 0.95, "slow_ms": 15.0}, by="test")
        await gates_are(queue, pool, priority=0, default=0, flex=0, batch=0)
        await queue.set_policy(pool, {"slow_ms": 150.0}, by="test")
        await gates_are(queue, pool, priority=9, default=5, flex=3, batch=3)


async def test_the_rooms_hold_from_the_next_scrape_on(queue: Queue, pool: Pool) -> None:
    async with observed(queue, pool, Page()):
        await submit(queue, pool, tier="priority")
        await reached(queue, pool, rooms=[1.0, 0.8, 0.8, 0.8])
        await queue.set_policy(pool, {"reserve": 0.5}, by="test")
        await reached(queue, pool, rooms=[1.0, 0.5, 0.5, 0.5])
        await submit(queue, pool, tier="default")
        await queue.set_policy(pool, {"reserve": 0.2, "decay": 0.0}, by="test")
        await reached(queue, pool, rooms=[1.0, 0.8, 0.6, 0.6])


async def test_tiers_that_were_added_or_stand_in_another_order_have_their_gates(queue: Queue, pool: Pool) -> None:
    async with observed(queue, pool, Page()):
        await gates_are(queue, pool, priority=4, default=3, flex=2, batch=2)
        now = await queue.set_policy(pool, {"tiers": ("default", "gold", "priority", "flex", "batch")}, by="test")
        await gates_are(queue, now, default=4, gold=3, priority=2, flex=2, batch=2)
        await submit(queue, now, tier="gold")
        assert [lease.tier for lease in await take(queue, now)] == ["gold"]


@pytest.mark.parametrize("policy", [Policy(lease_ms=3_600_000, stale_ms=3_600_000)], indirect=True, ids=["long-leases"])
async def test_leases_that_were_made_shorter_are_kept(
    queue: Queue, pool: Pool, signals: Signals, script: Script
) -> None:
    """The next renewal was an hour away."""
    script.then(hang)
    await set_gate(queue, pool, "b1", 100)
    async with working(make_worker(queue, pool, script, drain_s=0.1), signals):
        (before,) = await submit(queue, pool)
        await in_state(queue, before, "leased")
        await queue.set_policy(pool, {"lease_ms": 400}, by="test")
        (after,) = await submit(queue, pool)
        await in_state(queue, after, "leased")

        async def were_renewed(since_ms: float) -> bool:
            assert (await queue.sweep(pool)).lost == 0
            found = await ends(queue, pool)
            return len(found) == 2 and since_ms < min(found) and max(found) - min(found) <= 400

        await until(lambda: were_renewed(0))
        now = max(await ends(queue, pool))
        await until(lambda: were_renewed(now))


async def ends(queue: Queue, pool: Pool) -> list[float]:
    """When each lease ends, in ms."""
    rows = await queue._store.client.zrange(pool.key("leases"), 0, -1, withscores=True)
    return [score for _, score in rows]
