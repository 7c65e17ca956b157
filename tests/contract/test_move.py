"""Moving jobs to another pool: whole, with their id and age, wherever they went before."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import IllegalTransition, NotFound, UnknownTier
from fairlane.model import Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import (
    REFUSED,
    another_process,
    finish,
    ids_of,
    open_backend,
    spec,
    state_of,
    submit,
    take,
    take_one,
)
from tests.contract.invariants import raw_state

pytestmark = pytest.mark.usefixtures("invariants")


@pytest.mark.parametrize("delay_ms", [0, 60_000], ids=["queued", "delayed"])
async def test_a_job_moves_whole(queue: Queue, pool: Pool, target: Pool, clock: ManualClock, delay_ms: int) -> None:
    given = spec(tier="flex", body=b"\xff\x00", head=b'{"a":1}', deadline_ms=90_000, delay_ms=delay_ms, max_attempts=5)
    id_ = (await queue.submit(pool, given)).id
    before = await queue.inspect.job(id_)
    clock.advance(5000)
    await queue.move(id_, target)
    after = await queue.inspect.job(id_)
    assert (before.pool, after.pool) == ("llama", "mistral")
    for name in ("id", "tenant", "tier", "state", "created_at_ms", "not_before_ms", "deadline_at_ms", "body", "head"):
        assert getattr(after, name) == getattr(before, name)
    clock.advance(delay_ms)
    await queue.sweep(target)
    assert await take(queue, pool) == []
    lease = await take_one(queue, target)
    assert (lease.id, lease.backend, lease.body, lease.max_attempts) == (id_, "m1", b"\xff\x00", 5)
    assert lease.arrived_at_ms == before.created_at_ms
    assert await queue.settle(target, lease, "succeeded", result=b"1") == "succeeded"
    assert (await queue.inspect.job(id_)).result == b"1"


async def test_a_job_moves_with_its_attempts(queue: Queue, pool: Pool, target: Pool) -> None:
    (id_,) = await submit(queue, pool, max_attempts=2)
    first = await take_one(queue, pool)
    await queue.retry(pool, first, REFUSED, delay_ms=0)
    await queue.move(id_, target)
    second = await take_one(queue, target)
    assert second.attempt == 2
    assert second.token > first.token
    await queue.retry(target, second, REFUSED, delay_ms=0)
    job = await queue.inspect.job(id_)
    assert (job.dead, [attempt.backend for attempt in job.attempts]) == (True, ["b1", "m1"])


async def test_a_moved_job_expires_where_it_is(queue: Queue, pool: Pool, target: Pool, clock: ManualClock) -> None:
    (id_,) = await submit(queue, pool, deadline_ms=1000)
    await queue.move(id_, target)
    clock.advance(1000)
    assert (await queue.sweep(pool)).expired == 0
    assert (await queue.sweep(target)).expired == 1
    assert await state_of(queue, id_) == "expired"


async def test_all_acts_find_a_job_that_was_moved(queue: Queue, pool: Pool, target: Pool) -> None:
    cancelled, dead = await submit(queue, pool, n=2, max_attempts=1)
    for id_ in (cancelled, dead):
        await queue.move(id_, target)
    assert await queue.cancel(cancelled) == "cancelled"
    assert (await queue.inspect.explain(dead)).state == "queued"
    await queue.retry(target, await take_one(queue, target), REFUSED, delay_ms=0)
    assert await queue.requeue(dead) == "queued"
    assert ids_of(await take(queue, target)) == [dead]


async def test_two_may_move_one_job_at_once(queue: Queue, pool: Pool, target: Pool) -> None:
    ids = await submit(queue, pool, n=5)
    await asyncio.gather(*(another_process(queue).move(id_, target) for id_ in ids for _ in range(4)))
    assert sorted(ids_of(await take(queue, target, 20))) == sorted(ids)


async def test_a_job_can_go_there_and_back_again(queue: Queue, pool: Pool, target: Pool) -> None:
    (id_,) = await submit(queue, pool)
    for _ in range(6):
        await queue.move(id_, target)
        assert (await queue.inspect.job(id_)).pool == "mistral"
        await queue.move(id_, pool)
        assert (await queue.inspect.job(id_)).pool == "llama"
    assert ids_of(await take(queue, pool, 9)) == [id_]
    assert await take(queue, target, 9) == []


async def test_a_job_may_go_through_many_pools(queue: Queue, pool: Pool) -> None:
    (id_,) = await submit(queue, pool)
    for n in range(6):
        await queue.move(id_, await queue.pools.open(f"pool{n}", Policy()))
    fresh = another_process(queue)
    assert (await fresh.inspect.job(id_)).pool == "pool5"
    assert await fresh.cancel(id_) == "cancelled"


async def test_a_move_to_where_it_is_changes_nothing(queue: Queue, pool: Pool, target: Pool) -> None:
    ids = await submit(queue, pool, n=2)
    await queue.move(ids[0], pool)
    assert ids_of(await take(queue, pool, 2)) == ids


async def test_what_may_not_move_is_refused(queue: Queue, pool: Pool, target: Pool) -> None:
    narrow = await queue.pools.open("narrow", Policy(tiers=("flex",)))
    await submit(queue, pool, n=2)
    leased, done = await take(queue, pool, 2)
    await finish(queue, pool, [done])
    (batch,) = await submit(queue, pool, batch_id="batch_1")
    for id_ in (leased.id, done.id, batch):
        with pytest.raises(IllegalTransition):
            await queue.move(id_, target)
    (id_,) = await submit(queue, pool)
    with pytest.raises(UnknownTier):
        await queue.move(id_, narrow)
    for place in (pool, target):
        with pytest.raises(NotFound):
            await queue.move(f"job_{pool.code}77aaaaaaaaaaaa", place)
    assert ids_of(await take(queue, pool, 9)) == [batch, id_]
    assert await queue.retier(pool, [batch], "flex") != [None], "it runs now"


@pytest.mark.parametrize("policy", [Policy(result_ttl_ms=60_000)], indirect=True, ids=["short"])
async def test_a_stub_is_kept_while_its_job_is_there_and_no_longer(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    target = await queue.pools.open("mistral", Policy(result_ttl_ms=1_000))
    await open_backend(queue, target, "m1", 9)
    (id_,) = await submit(queue, pool)
    await queue.move(id_, target)
    clock.advance(60_000)
    assert (await queue.sweep(pool)).moves == 1
    assert (await queue.inspect.job(id_)).state == "queued"
    assert (await queue.sweep(pool)).next_at_ms == clock.now_ms() + 60_000
    await finish(queue, target, [await take_one(queue, target)])
    while await raw_state(queue, target, id_) is not None:
        await asyncio.sleep(0.01)
    assert await raw_state(queue, pool, id_) == "moved"
    clock.advance(60_000)
    await queue.sweep(pool)
    assert await raw_state(queue, pool, id_) is None
    assert (await queue.sweep(pool)).next_at_ms is None
    with pytest.raises(NotFound):
        await queue.inspect.job(id_)


async def test_a_key_still_finds_its_job_after_a_move(queue: Queue, pool: Pool, target: Pool) -> None:
    given = spec(idempotency_key="k")
    first = await queue.submit(pool, given)
    await queue.move(first.id, target)
    assert (await queue.submit(pool, given)).id == first.id
    assert ids_of(await take(queue, target, 9)) == [first.id]
    assert await take(queue, pool) == []
