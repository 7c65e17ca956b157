"""Moving jobs to another tier of their pool: age and order stay."""

from __future__ import annotations

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import IllegalTransition, NotFound, UnknownTier
from fairlane.model import Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import drain, finish, ids_of, spec, state_of, submit, submit_all, take

pytestmark = pytest.mark.usefixtures("invariants")


async def test_another_tier_keeps_age_and_order(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    first = await submit(queue, pool, n=3)
    clock.advance(1000)
    second = await submit(queue, pool, tier="flex", n=2)
    clock.advance(1000)
    third = await submit(queue, pool, n=1)
    ages = [(await queue.inspect.job(id_)).created_at_ms for id_ in first]
    assert await queue.retier(pool, [*third, first[2], first[0]], "flex") == [None] * 3
    assert [(await queue.inspect.job(id_)).created_at_ms for id_ in first] == ages
    assert (await queue.inspect.job(first[0])).tier == "flex"
    order = ids_of(await drain(queue, pool))
    assert order == [first[1], first[0], first[2], *second, *third]


async def test_a_job_that_came_back_changes_its_tier_too(queue: Queue, pool: Pool) -> None:
    ids = await submit(queue, pool, n=2)
    for lease in await take(queue, pool, 2):
        await queue.release(pool, lease)
    await queue.retier(pool, ids, "batch")
    assert [(lease.id, lease.tier) for lease in await drain(queue, pool)] == [(id_, "batch") for id_ in ids]


async def test_a_delayed_job_comes_due_in_its_new_tier(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    ids = await submit(queue, pool, delay_ms=1000)
    assert await queue.retier(pool, ids, "priority") == [None]
    assert await state_of(queue, ids[0]) == "delayed"
    clock.advance(1000)
    await queue.sweep(pool)
    assert [lease.tier for lease in await take(queue, pool)] == ["priority"]


async def test_each_job_changes_its_tier_by_itself(queue: Queue, pool: Pool) -> None:
    target = await queue.pools.open("mistral", Policy())
    await submit(queue, pool, n=2)
    leased, done = await take(queue, pool, 2)
    await finish(queue, pool, [done])
    same, other, gone = await submit(queue, pool, n=3)
    await queue.move(gone, target)
    unknown = f"job_{pool.code}77aaaaaaaaaaaa"
    await queue.retier(pool, [same], "flex")
    answers = await queue.retier(pool, [leased.id, same, done.id, unknown, gone, other], "flex")
    kinds = [type(answer) for answer in answers]
    assert kinds == [IllegalTransition, type(None), IllegalTransition, NotFound, NotFound, type(None)]
    assert ids_of(await take(queue, pool, 9)) == [same, other]
    with pytest.raises(UnknownTier):
        await queue.retier(pool, [other], "gold")


async def test_more_than_a_hundred_change_their_tier(queue: Queue, pool: Pool) -> None:
    ids = await submit_all(queue, pool, [spec()] * 130)
    assert await queue.retier(pool, ids, "flex") == [None] * 130
    assert [len(await take(queue, pool, 100)) for _ in range(2)] == [100, 30]
