"""The observer leaves a history: what came, what ended, how long it had waited, and who was served."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from itertools import count

import pytest

from dispatcher import steering
from dispatcher.steering import Steering
from fairlane.clock import ManualClock
from fairlane.model import Limits, Policy, TierGate, Usage
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.trend import ServiceGap, percentile
from tests.contract.acts import NOTHING_COUNTED, finish, submit, take
from tests.servers import ValkeyServer

SLOTS = 8
EVERY_MS = 5_000
_numbers = count()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def queue(valkey: ValkeyServer, clock: ManualClock) -> AsyncIterator[Queue]:
    made = Queue(connect(valkey.url), namespace=f"r{os.getpid()}x{next(_numbers)}", clock=clock)
    await made.check()
    yield made
    await made.close()


@pytest.fixture
async def pool(queue: Queue) -> Pool:
    made = await queue.pools.open("llama", Policy(gamma=0.25))
    await queue.set_backend(made, "b1", "add")
    gates = {tier: TierGate(1000, 1000) for tier in made.policy.tiers}
    await queue.observe(made, "b1", gates, counted=NOTHING_COUNTED, seen=json.dumps({"slots": SLOTS}))
    return made


async def test_a_round_writes_what_came_what_ended_and_how_long_it_had_waited(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    clock.advance(EVERY_MS - clock.now_ms() % EVERY_MS)
    await submit(queue, pool, n=2)
    here = Steering(queue, pool, 20)
    await here.round()
    (first,) = await queue.inspect.trend(pool, "15m")
    assert (first.took_s, first.tiers["default"].depth, first.tiers["default"].came) == (0, 2, 0)
    await submit(queue, pool, n=4)
    await submit(queue, pool, "bob", "batch", n=3)
    clock.advance(1_000)
    leases = await take(queue, pool, 4)
    clock.advance(EVERY_MS - 1_000)
    for lease in leases[:3]:
        await queue.settle(pool, lease, "succeeded", status=200, usage=Usage(7, 3))
    await here.round()
    _, point = await queue.inspect.trend(pool, "15m")
    default, batch = point.tiers["default"], point.tiers["batch"]
    assert (default.depth, default.inflight, default.came, default.ended, default.tokens) == (2, 1, 4, 3, 30)
    assert (batch.depth, batch.oldest_ms, batch.came, batch.ended) == (3, EVERY_MS, 3, 0)
    assert percentile(default.waits, 0.5) == pytest.approx(1_000, rel=0.2)
    assert (point.took_s, point.per_s(default.came), point.slots, point.busy, point.gamma) == (
        5,
        0.8,
        SLOTS,
        1 / 8,
        0.25,
    )


async def test_jobs_that_are_moved_did_not_come_nor_end(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    """Not in the tier that they come into, nor in the one that they leave; nor in the pool, nor when they come back."""
    other = await queue.pools.open("mistral", Policy())
    ids = await submit(queue, pool, n=9)
    here = Steering(queue, pool, 20)
    await here.round()
    for act in ("away", "back"):
        if act == "away":
            await queue.retier(pool, ids[:4], "batch")
            for job_id in ids[4:6]:
                await queue.move(job_id, other)
        else:
            await queue.retier(pool, ids[:4], "default")
            for job_id in ids[4:6]:
                await queue.move(job_id, pool)
        await submit(queue, pool, tier="batch", n=3)
        clock.advance(EVERY_MS)
        await here.round()
        point = (await queue.inspect.trend(pool, "15m"))[-1]
        came = {tier: of.came for tier, of in point.tiers.items() if of.came}
        assert came == {"batch": 3}, act
        assert not any(of.ended for of in point.tiers.values()), act
    depths = {tier: of.depth for tier, of in point.tiers.items() if of.depth}
    assert depths == {"default": 9, "batch": 6}


async def test_a_new_observer_goes_on_with_the_history_and_counts_nothing_twice(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    for _ in range(3):
        await submit(queue, pool, n=5)
        here = Steering(queue, pool, 20)
        await here.round()
        clock.advance(EVERY_MS)
        await finish(queue, pool, await take(queue, pool, 5))
        await here.round()
    points = await queue.inspect.trend(pool, "7d")
    assert sum(point.tiers["default"].ended for point in points) == 15


async def test_when_more_ends_than_is_read_the_backends_own_counts_say_how_many(
    queue: Queue, pool: Pool, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steering, "PAGE_MOST", 3)
    monkeypatch.setattr(steering, "PAGES_MOST", 2)
    here = Steering(queue, pool, 20)
    await here.round()
    await submit(queue, pool, n=60)
    clock.advance(EVERY_MS)
    await finish(queue, pool, await take(queue, pool, 60))
    await here.round()
    point = (await queue.inspect.trend(pool, "15m"))[-1]
    default = point.tiers["default"]
    assert (default.ended, default.came, sum(default.waits.values())) == (60, 60, 60)


async def test_who_was_served_in_the_last_minute(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    """Ann has four times the weight, so for eight jobs of hers two of Bob's are his due. Cho waits alone: no due."""
    await queue.set_limits(pool, "ann", Limits(weight=4.0))
    here = Steering(queue, pool, 20)
    for tenant in ("ann", "bob"):
        await submit(queue, pool, tenant, n=60)
    await here.round()
    leases = await take(queue, pool, 50)
    await submit(queue, pool, "cho", "flex")
    clock.advance(EVERY_MS)
    by_tenant = {name: [lease for lease in leases if lease.tenant == name] for name in ("ann", "bob")}
    for lease in by_tenant["ann"][:8] + by_tenant["bob"][:1]:
        await queue.settle(pool, lease, "succeeded", status=200, usage=Usage(10, 5))
    await here.round()
    served = await queue.inspect.served(pool)
    assert served is not None
    assert (served.took_s, served.by, served.jobs, served.tokens) == (5, "requests", 9, 135)
    rows = [(row.tenant, row.jobs, row.tokens, row.got, row.owed) for row in served.tenants]
    assert rows == [("ann", 8, 120, 2.0, 1.5), ("bob", 1, 15, 1.0, 1.5)]
    assert served.gaps == (ServiceGap("default", 1.0, "ann", "bob"),)
    clock.advance(61_000)
    await here.round()
    await here.round()
    later = await queue.inspect.served(pool)
    assert later is not None
    assert later.tenants == ()
