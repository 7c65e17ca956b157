"""Pauses: of a pool, a tier or a tenant. What runs goes on, what waits keeps its place, and nobody gains by it."""

from __future__ import annotations

from collections import Counter

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import InvalidRequest, UnknownTier
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import (
    REFUSED,
    drain,
    finish,
    ids_of,
    state_of,
    submit,
    take,
    take_one,
    tenants_of,
)

pytestmark = pytest.mark.usefixtures("invariants")


async def test_a_paused_tenant_gets_no_turn_and_keeps_its_work(queue: Queue, pool: Pool) -> None:
    ids = await submit(queue, pool, "ann", n=2)
    assert await queue.pause(pool, tenant="ann")
    ids += await submit(queue, pool, "ann")
    await submit(queue, pool, "bob")
    assert tenants_of(await take(queue, pool, 9)) == ["bob"]
    assert await queue.resume(pool, tenant="ann")
    assert ids_of(await take(queue, pool, 9)) == ids


async def test_a_pause_is_told_from_no_change(queue: Queue, pool: Pool) -> None:
    for scope in ({}, {"tier": "flex"}, {"tenant": "ann"}):
        changes = [await act(pool, **scope) for act in (queue.resume, queue.pause, queue.pause, queue.resume)]
        assert changes == [False, True, False, True]


async def test_what_cannot_be_paused_is_refused(queue: Queue, pool: Pool) -> None:
    with pytest.raises(UnknownTier):
        await queue.pause(pool, tier="gold")
    with pytest.raises(InvalidRequest):
        await queue.pause(pool, tenant="no spaces")
    with pytest.raises(InvalidRequest):
        await queue.pause(pool, tier="flex", tenant="ann")


async def test_a_pause_earns_nothing(queue: Queue, pool: Pool) -> None:
    for tenant in ("ann", "bob"):
        await submit(queue, pool, tenant, n=10)
    await queue.pause(pool, tenant="ann")
    await take(queue, pool, 6)
    await queue.resume(pool, tenant="ann")
    assert abs(Counter(tenants_of(await take(queue, pool, 8)))["ann"] - 4) <= 1


async def test_pausing_again_and_again_earns_nothing(queue: Queue, pool: Pool) -> None:
    for tenant in ("ann", "bob"):
        await submit(queue, pool, tenant, n=10)
    order: list[str] = []
    for _ in range(10):
        order += tenants_of(await take(queue, pool))
        await queue.pause(pool, tenant="ann")
        await queue.resume(pool, tenant="ann")
    assert abs(Counter(order)["ann"] - 5) <= 1


@pytest.mark.parametrize("scope", [{}, {"tier": "default"}, {"tenant": "ann"}], ids=["pool", "tier", "tenant"])
async def test_under_a_pause_all_but_starting_goes_on(
    queue: Queue, pool: Pool, clock: ManualClock, scope: dict[str, str]
) -> None:
    ids = await submit(queue, pool, n=8, deadline_ms=50_000)
    settled, retried, released, lost = await take(queue, pool, 4)
    await queue.pause(pool, **scope)
    await finish(queue, pool, [settled])
    await queue.retry(pool, retried, REFUSED, delay_ms=10)
    await queue.release(pool, released)
    await queue.cancel(ids[4])
    await queue.retier(pool, ids[5:6], "flex")
    await queue.retier(pool, ids[5:6], "default")
    clock.advance(30_000)
    await queue.sweep(pool)
    assert await state_of(queue, lost.id) == "queued"
    assert await take(queue, pool, 9) == []
    await queue.resume(pool, **scope)
    assert ids_of(await take(queue, pool, 9)) == [retried.id, released.id, lost.id, *ids[5:]]


@pytest.mark.parametrize("scope", [{}, {"tier": "default"}, {"tenant": "ann"}], ids=["pool", "tier", "tenant"])
async def test_deadlines_pass_under_a_pause(
    queue: Queue, pool: Pool, clock: ManualClock, scope: dict[str, str]
) -> None:
    await submit(queue, pool, n=2, deadline_ms=1000)
    await queue.pause(pool, **scope)
    clock.advance(1000)
    assert (await queue.sweep(pool)).expired == 2


async def test_a_paused_tier_lets_the_others_go(queue: Queue, pool: Pool) -> None:
    await queue.pause(pool, tier="priority")
    for tier in pool.policy.tiers:
        await submit(queue, pool, tier=tier)
    assert [lease.tier for lease in await take(queue, pool, 9)] == ["default", "flex", "batch"]
    await queue.resume(pool, tier="priority")
    assert [lease.tier for lease in await take(queue, pool, 9)] == ["priority"]


async def test_a_tier_stays_paused_when_its_pool_is_resumed(queue: Queue, pool: Pool) -> None:
    for tier in ("priority", "flex"):
        await submit(queue, pool, tier=tier)
    await queue.pause(pool, tier="flex")
    await queue.pause(pool)
    assert await take(queue, pool, 9) == []
    await queue.resume(pool)
    assert [lease.tier for lease in await take(queue, pool, 9)] == ["priority"]
    await queue.pause(pool)
    await queue.resume(pool, tier="flex")
    assert await take(queue, pool, 9) == []
    await queue.resume(pool)
    assert [lease.tier for lease in await take(queue, pool, 9)] == ["flex"]


async def test_turns_go_on_after_a_pause_as_if_there_had_been_none(queue: Queue, pool: Pool) -> None:
    for tenant, n in (("ann", 6), ("bob", 4)):
        await submit(queue, pool, tenant, n=n)
    order = tenants_of(await take(queue, pool, 3))
    await queue.pause(pool)
    await submit(queue, pool, "bob", n=2)
    await queue.resume(pool)
    order += tenants_of(await drain(queue, pool))
    assert order == ["ann", "bob"] * 6


async def test_a_held_tenant_stays_held_when_the_pool_is_resumed(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "ann")
    await queue.pause(pool)
    await queue.pause(pool, tenant="ann")
    await queue.resume(pool)
    assert await take(queue, pool) == []
    await queue.pause(pool)
    await queue.resume(pool, tenant="ann")
    await queue.resume(pool)
    assert len(await take(queue, pool)) == 1


async def test_a_tenant_with_nothing_left_is_forgotten_after_its_pause(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool)
    lease = await take_one(queue, pool)
    await queue.pause(pool, tenant="ann")
    await finish(queue, pool, [lease])
    await queue.resume(pool, tenant="ann")
