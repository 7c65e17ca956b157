"""A dead job can be given new life, and only a dead one."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import IllegalTransition, NotFound
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import REFUSED, finish, ids_of, submit, take, take_one

pytestmark = pytest.mark.usefixtures("invariants")


async def dead_job(queue: Queue, pool: Pool, **changes: Any) -> str:
    (id_,) = await submit(queue, pool, max_attempts=1, **changes)
    assert await queue.retry(pool, await take_one(queue, pool), REFUSED, delay_ms=0, result=b"sorry") == "failed"
    return id_


async def test_a_dead_job_goes_to_the_end_of_its_line_with_fresh_attempts(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    created = clock.now_ms()
    id_ = await dead_job(queue, pool)
    waiting = await submit(queue, pool, n=2)
    clock.advance(1000)
    assert await queue.requeue(id_) == "queued"
    job = await queue.inspect.job(id_)
    assert (job.dead, job.error, job.result, job.status, job.finished_at_ms) == (False, None, None, None, None)
    assert job.created_at_ms == created
    leases = await take(queue, pool, 3)
    assert ids_of(leases) == [*waiting, id_]
    assert (leases[2].attempt, leases[2].max_attempts, leases[2].token) == (1, 1, 2)
    assert leases[2].arrived_at_ms == clock.now_ms(), "it waits since now"
    await finish(queue, pool, [leases[2]])
    job = await queue.inspect.job(id_)
    assert [attempt.outcome for attempt in job.attempts] == [REFUSED.code, "succeeded"]


async def test_a_requeued_job_can_die_again(queue: Queue, pool: Pool) -> None:
    id_ = await dead_job(queue, pool)
    for n in (2, 3):
        await queue.requeue(id_)
        assert await queue.inspect.index(pool, "dead") == ([], None)
        await queue.retry(pool, await take_one(queue, pool), REFUSED, delay_ms=0)
        job = await queue.inspect.job(id_)
        assert (job.dead, len(job.attempts)) == (True, n)
    dead, _ = await queue.inspect.index(pool, "dead")
    assert [job.id for job in dead] == [id_]


async def test_an_old_deadline_does_not_end_it_again(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    id_ = await dead_job(queue, pool, deadline_ms=1000)
    clock.advance(2000)
    await queue.requeue(id_)
    assert (await queue.sweep(pool)).expired == 0
    assert ids_of(await take(queue, pool)) == [id_]


async def test_a_poison_job_can_be_requeued(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    (id_,) = await submit(queue, pool, max_attempts=1)
    lease = await take_one(queue, pool)
    clock.advance(30_000)
    await queue.sweep(pool)
    assert await queue.requeue(id_) == "queued"
    assert await queue.renew(pool, [lease]) == ["lost"]
    assert (await take_one(queue, pool)).token > lease.token


async def test_only_a_dead_job_can_be_requeued(queue: Queue, pool: Pool) -> None:
    cancelled, *_ = await submit(queue, pool, n=5)
    await queue.cancel(cancelled)
    good, bad, leased = await take(queue, pool, 3)
    await finish(queue, pool, [good])
    await queue.settle(pool, bad, "failed", status=400)
    (delayed,) = await submit(queue, pool, delay_ms=1000)
    for id_ in (cancelled, good.id, bad.id, leased.id, delayed):
        before = await queue.inspect.job(id_)
        with pytest.raises(IllegalTransition):
            await queue.requeue(id_)
        assert await queue.inspect.job(id_) == before
    with pytest.raises(NotFound):
        await queue.requeue(f"job_{pool.code}99aaaaaaaaaaaa")


async def test_a_second_requeue_is_refused_while_it_waits(queue: Queue, pool: Pool) -> None:
    id_ = await dead_job(queue, pool)
    await queue.requeue(id_)
    with pytest.raises(IllegalTransition):
        await queue.requeue(id_)
    assert ids_of(await take(queue, pool, 5)) == [id_]
