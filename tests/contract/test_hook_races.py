"""Hooks where something comes in between: an outcome is told of all the same, and told of once."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import IllegalTransition
from fairlane.model import Policy
from fairlane.queue.engine import Queue
from fairlane.queue.hooks import HookEvent
from fairlane.queue.pools import Pool
from tests.contract.acts import REFUSED, finish, submit, take, take_one

pytestmark = pytest.mark.usefixtures("invariants")

DAY_MS = 86_400_000


async def told(queue: Queue, pool: Pool) -> list[HookEvent]:
    return (await queue.hooks.events(pool))[1]


async def test_what_acquire_finds_past_its_deadline_is_told_of(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    """Who takes work may come before the sweeper."""
    (id_,) = await submit(queue, pool, deadline_ms=1, hook=True)
    clock.advance(2)
    assert await take(queue, pool) == []
    assert [(event.job, event.state) for event in await told(queue, pool)] == [(id_, "expired")]


@pytest.mark.parametrize("policy", [Policy(result_ttl_ms=1000, dead_ttl_ms=2000)], indirect=True, ids=["short"])
async def test_the_hook_of_one_outcome_does_not_end_the_wait_for_that_of_the_next(
    queue: Queue, pool: Pool, client: Any
) -> None:
    (id_,) = await submit(queue, pool, max_attempts=1, hook=True)
    await queue.retry(pool, await take_one(queue, pool), REFUSED, delay_ms=0)
    await queue.requeue(id_)
    await finish(queue, pool, [await take_one(queue, pool)])
    first, second = await told(queue, pool)
    await queue.hooks.ack(pool, [first])
    assert await client.pttl(pool.key("job", id_)) > DAY_MS
    await queue.hooks.ack(pool, [second])
    assert 0 < await client.pttl(pool.key("job", id_)) <= 1000


async def test_a_job_that_moved_to_a_pool_that_its_tenant_never_used_is_told_of(
    queue: Queue, pool: Pool, target: Pool
) -> None:
    """That pool knows nothing of the tenant's endpoints."""
    await queue.hooks.set(pool, "ann", True, 1)
    (id_,) = await submit(queue, pool)
    await queue.move(id_, target)
    await finish(queue, target, [await take_one(queue, target)])
    assert [event.job for event in await told(queue, target)] == [id_]


async def test_a_pool_stays_until_its_outcomes_were_told_of(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, hook=True)
    await finish(queue, pool, [await take_one(queue, pool)])
    await queue.set_backend(pool, "b1", "drain")
    await queue.set_backend(pool, "b1", "remove")
    for _ in range(2):  # not read; read and not acknowledged
        with pytest.raises(IllegalTransition):
            await queue.pools.remove(pool.name)
        events = await told(queue, pool)
    await queue.hooks.ack(pool, events)
    await queue.pools.remove(pool.name)


async def test_results_are_read_up_to_a_size(queue: Queue, pool: Pool) -> None:
    """What is too large to be sent on need not come here."""
    ids = await submit(queue, pool, n=3)
    for lease, size in zip(await take(queue, pool, 3), (0, 10, 11), strict=True):
        await queue.settle(pool, lease, "succeeded", result=b"x" * size)
    assert await queue.hooks.results(pool, [*ids, "job_gone"], 10) == [b"", b"x" * 10, None, b""]
    assert await queue.hooks.results(pool, [], 10) == []


async def test_events_are_kept_from_the_first_one_on_that_was_not_told_of(
    queue: Queue, pool: Pool, client: Any
) -> None:
    """Who tells of them is behind."""
    await submit(queue, pool, n=400, hook=True)
    for _ in range(4):
        await finish(queue, pool, await take(queue, pool, 100))
    events = await told(queue, pool)
    left = events.pop(150)
    await queue.hooks.ack(pool, events)
    await queue.sweep(pool)
    kept = [id_.decode() for id_, _ in await client.xrange(pool.key("events"))]
    assert left.id in kept
    assert len(kept) < 400
    assert await told(queue, pool) == [left]
