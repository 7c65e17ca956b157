"""The sweeper's clocks: leases that end, jobs that are due, deadlines that pass; bounded, and when to come again."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import NotFound
from fairlane.model import Limits, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import REFUSED, ids_of, spec, state_of, submit, submit_all, take, take_one
from tests.contract.invariants import raw_state

pytestmark = pytest.mark.usefixtures("invariants")

LEASE_MS = 30_000


async def test_with_nothing_to_do_it_says_so(queue: Queue, pool: Pool) -> None:
    swept = await queue.sweep(pool)
    assert (swept.lost, swept.due, swept.expired, swept.moves, swept.more, swept.next_at_ms) == (
        0,
        0,
        0,
        0,
        False,
        None,
    )


async def test_it_tells_when_the_next_thing_is_due(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    now = clock.now_ms()
    await submit(queue, pool, "ann")
    await take_one(queue, pool)
    assert (await queue.sweep(pool)).next_at_ms == now + LEASE_MS
    (later,) = await submit(queue, pool, "bob", deadline_ms=20_000)
    assert (await queue.sweep(pool)).next_at_ms == now + 20_000
    (soon,) = await submit(queue, pool, "bob", delay_ms=10_000)
    assert (await queue.sweep(pool)).next_at_ms == now + 10_000
    await queue.set_limits(pool, "cho", Limits(requests_per_minute=6))
    await submit(queue, pool, "cho", "priority")
    await take_one(queue, pool)
    clock.advance(5000)
    assert (await queue.sweep(pool)).next_at_ms == now + 10_000
    await queue.cancel(soon)
    await queue.cancel(later)
    clock.advance(5000)
    assert (await queue.sweep(pool)).next_at_ms == now + LEASE_MS


async def test_a_job_that_waited_beyond_its_deadline_expires(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    """Case 4: with an outcome, whether it was queued or delayed."""
    queued = await submit(queue, pool, n=2, deadline_ms=1000)
    delayed = await submit(queue, pool, delay_ms=5000, deadline_ms=1000)
    (fresh,) = await submit(queue, pool, deadline_ms=1001)
    clock.advance(999)
    assert (await queue.sweep(pool)).expired == 0
    clock.advance(1)
    swept = await queue.sweep(pool)
    assert (swept.expired, swept.more, swept.next_at_ms) == (3, False, clock.now_ms() + 1)
    for id_ in [*queued, *delayed]:
        job = await queue.inspect.job(id_)
        assert (job.state, job.finished_at_ms, job.attempts) == ("expired", clock.now_ms(), ())
        assert job.error is not None
        assert job.error.code == "expired"
    assert ids_of(await take(queue, pool, 5)) == [fresh]


async def test_what_is_due_and_late_at_once_expires(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    (id_,) = await submit(queue, pool, delay_ms=1000, deadline_ms=2000)
    clock.advance(3000)
    swept = await queue.sweep(pool)
    assert (swept.due, swept.expired) == (0, 1)
    assert await state_of(queue, id_) == "expired"


async def test_a_deadline_bounds_the_wait_and_not_the_work(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    (id_,) = await submit(queue, pool, deadline_ms=1000)
    lease = await take_one(queue, pool)
    clock.advance(LEASE_MS - 1)
    assert (await queue.sweep(pool)).expired == 0
    assert await queue.settle(pool, lease, "succeeded") == "succeeded"
    assert await state_of(queue, id_) == "succeeded"


async def test_a_lost_job_whose_deadline_has_passed_expires(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    (id_,) = await submit(queue, pool, deadline_ms=LEASE_MS)
    await take_one(queue, pool)
    clock.advance(LEASE_MS)
    await queue.sweep(pool)
    job = await queue.inspect.job(id_)
    assert (job.state, [attempt.outcome for attempt in job.attempts]) == ("expired", ["lost"])


@pytest.mark.parametrize("delay_ms", [0, 500], ids=["queued", "delayed"])
async def test_a_retried_job_whose_deadline_passes_expires_with_its_history(
    queue: Queue, pool: Pool, clock: ManualClock, delay_ms: int
) -> None:
    (id_,) = await submit(queue, pool, deadline_ms=1000)
    await queue.retry(pool, await take_one(queue, pool), REFUSED, delay_ms=delay_ms)
    clock.advance(1000)
    assert (await queue.sweep(pool)).expired == 1
    job = await queue.inspect.job(id_)
    assert (job.state, [attempt.outcome for attempt in job.attempts]) == ("expired", [REFUSED.code])


async def test_it_takes_no_more_than_it_was_told(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit_all(queue, pool, [spec(deadline_ms=10)] * 7 + [spec("bob", delay_ms=5)] * 7)
    await submit(queue, pool, "cho", "priority", n=7)
    await take(queue, pool, 7)
    clock.advance(LEASE_MS)
    for left in (4, 1):
        swept = await queue.sweep(pool, most=3)
        assert (swept.lost, swept.due, swept.expired, swept.more) == (3, 3, 3, True)
        assert (await queue.inspect.overview(pool)).leased == left
    swept = await queue.sweep(pool, most=3)
    assert (swept.lost, swept.due, swept.expired, swept.more, swept.next_at_ms) == (1, 1, 1, False, None)


async def test_a_poison_job_ends_as_dead_with_its_history(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    """Case 26: each dispatcher that takes it vanishes."""
    (poison,) = await submit(queue, pool, max_attempts=3)
    await submit(queue, pool, "bob")
    for n in (1, 2, 3):
        (lease, *_) = [lease for lease in await take(queue, pool, 2) if lease.id == poison]
        assert lease.attempt == n
        clock.advance(LEASE_MS)
        await queue.sweep(pool)
    job = await queue.inspect.job(poison)
    assert (job.state, job.dead) == ("failed", True)
    assert [(attempt.n, attempt.outcome) for attempt in job.attempts] == [(1, "lost"), (2, "lost"), (3, "lost")]
    assert job.error is not None
    assert job.error.code == "lease_lost"
    assert poison not in ids_of(await take(queue, pool, 5))


async def test_whoever_is_held_by_a_rate_is_let_go_in_time(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    for n in range(3):
        await queue.set_limits(pool, f"t{n}", Limits(requests_per_minute=60 // (n + 1)))
        await submit(queue, pool, f"t{n}", n=20)
    assert len(await take(queue, pool, 60)) < 60
    for _ in range(5):
        next_at = (await queue.sweep(pool)).next_at_ms
        assert next_at is not None
        clock.advance(next_at - clock.now_ms() - 1)
        await queue.sweep(pool)
        assert await take(queue, pool, 60) == []
        clock.advance(1)
        await queue.sweep(pool)
        assert await take(queue, pool, 60) != []


@pytest.mark.parametrize("policy", [Policy(dead_ttl_ms=1_000, result_ttl_ms=1_000)], indirect=True, ids=["short"])
async def test_what_is_past_its_retention_is_gone(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    """Case 27."""
    ids = await submit(queue, pool, n=3, max_attempts=1)
    done, dead = await take(queue, pool, 2)
    await queue.settle(pool, done, "succeeded")
    await queue.retry(pool, dead, REFUSED, delay_ms=0)
    await queue.cancel(ids[2])
    clock.advance(1_001)
    await queue.sweep(pool)
    for id_ in ids:
        while await raw_state(queue, pool, id_):  # Redis's own clock has a second to go
            await asyncio.sleep(0.01)
        with pytest.raises(NotFound):
            await queue.inspect.job(id_)
    for index in ("done", "dead"):
        assert await queue.inspect.index(pool, index) == ([], None)
    assert (await queue.inspect.overview(pool)).dead == 0


async def test_it_asks_to_come_again_for_tenants_it_has_yet_to_let_go(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    for n in range(7):
        await queue.set_limits(pool, f"t{n}", Limits(requests_per_minute=6))
        await submit(queue, pool, f"t{n}", n=2)
    assert len(await take(queue, pool, 20)) == 7
    clock.advance(10_000)
    for left in (4, 1):
        swept = await queue.sweep(pool, most=3)
        assert swept.more or (swept.next_at_ms or 0) <= clock.now_ms()
        assert (await queue.inspect.overview(pool)).held == left
    await queue.sweep(pool, most=3)
    assert len(await take(queue, pool, 20)) == 7
