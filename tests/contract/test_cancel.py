"""Cancel works in every state, at once, and once."""

from __future__ import annotations

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import NotFound
from fairlane.model import Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import (
    REFUSED,
    drain,
    finish,
    ids_of,
    live,
    set_gate,
    state_of,
    submit,
    take,
    take_one,
    tenants_of,
)

pytestmark = pytest.mark.usefixtures("invariants")


async def cancelled_while_leased(queue: Queue, pool: Pool):
    await submit(queue, pool)
    lease = await take_one(queue, pool)
    assert await queue.cancel(lease.id) == "cancelled"
    return lease


@pytest.mark.parametrize("delay_ms", [0, 5000], ids=["queued", "delayed"])
async def test_a_job_that_waits_is_cancelled(queue: Queue, pool: Pool, clock: ManualClock, delay_ms: int) -> None:
    (id_,) = await submit(queue, pool, delay_ms=delay_ms, deadline_ms=9000)
    clock.advance(10)
    assert await queue.cancel(id_) == "cancelled"
    job = await queue.inspect.job(id_)
    assert (job.state, job.finished_at_ms, job.attempts, job.error) == ("cancelled", clock.now_ms(), (), None)
    clock.advance(20_000)
    swept = await queue.sweep(pool)
    assert (swept.due, swept.expired) == (0, 0)
    assert await take(queue, pool) == []


async def test_the_others_in_the_line_go_on(queue: Queue, pool: Pool) -> None:
    ids = await submit(queue, pool, n=5)
    await submit(queue, pool, "bob", n=2)
    for gone in (ids[0], ids[2], ids[4]):
        await queue.cancel(gone)
    leases = await drain(queue, pool)
    assert tenants_of(leases) == ["ann", "bob", "ann", "bob"]
    assert [lease.id for lease in leases if lease.tenant == "ann"] == [ids[1], ids[3]]


async def test_a_job_that_came_back_to_its_place_is_cancelled_there(queue: Queue, pool: Pool) -> None:
    ids = await submit(queue, pool, n=3)
    for lease in await take(queue, pool, 2):
        await queue.release(pool, lease)
    await queue.cancel(ids[0])
    assert ids_of(await take(queue, pool, 3)) == ids[1:]


@pytest.mark.parametrize("policy", [Policy(max_waiting_tenant=2)], indirect=True, ids=["two"])
async def test_a_cancelled_job_makes_room_for_another(queue: Queue, pool: Pool) -> None:
    ids = [*await submit(queue, pool), *await submit(queue, pool, delay_ms=1000)]
    for id_ in ids:
        await queue.cancel(id_)
    await submit(queue, pool, n=2)


async def test_a_running_job_is_cancelled_at_once_and_its_lease_counts_until_it_is_released(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    await set_gate(queue, pool, "b1", 1)
    lease = await cancelled_while_leased(queue, pool)
    assert await state_of(queue, lease.id) == "cancelled"
    await submit(queue, pool, "bob")
    assert await live(queue, pool) == 1
    assert await take(queue, pool) == []
    assert await queue.renew(pool, [lease]) == ["cancelled"]
    clock.advance(100)
    assert await queue.release(pool, lease) == "cancelled"
    assert await live(queue, pool) == 0
    (attempt,) = (await queue.inspect.job(lease.id)).attempts
    assert (attempt.outcome, attempt.ended_at_ms) == ("cancelled", clock.now_ms())
    assert tenants_of(await take(queue, pool, 5)) == ["bob"]
    assert await queue.renew(pool, [lease]) == ["lost"]


async def test_a_cancelled_lease_that_is_never_released_ends_by_itself(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    lease = await cancelled_while_leased(queue, pool)
    clock.advance(29_999)
    assert await queue.renew(pool, [lease]) == ["cancelled"], "which prolongs nothing"
    clock.advance(1)
    assert (await queue.sweep(pool)).lost == 1
    assert await state_of(queue, lease.id) == "cancelled"
    assert await live(queue, pool) == 0
    before = await queue.inspect.job(lease.id)
    assert await queue.release(pool, lease) == "cancelled"
    assert await queue.inspect.job(lease.id) == before


async def test_a_late_settle_leaves_the_job_cancelled(queue: Queue, pool: Pool) -> None:
    lease = await cancelled_while_leased(queue, pool)
    assert await queue.settle(pool, lease, "succeeded", status=200, result=b"late") == "cancelled"
    job = await queue.inspect.job(lease.id)
    assert (job.state, job.result, job.status, job.usage) == ("cancelled", None, None, None)
    assert await queue.settle(pool, lease, "succeeded") == "cancelled"
    assert await live(queue, pool) == 0


async def test_a_late_retry_leaves_the_job_cancelled(queue: Queue, pool: Pool) -> None:
    lease = await cancelled_while_leased(queue, pool)
    assert await queue.retry(pool, lease, REFUSED, delay_ms=0) == "cancelled"
    job = await queue.inspect.job(lease.id)
    assert (job.state, job.error, job.dead) == ("cancelled", None, False)
    assert await take(queue, pool) == []


async def test_cancel_is_repeatable(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    lease = await cancelled_while_leased(queue, pool)
    before = await queue.inspect.job(lease.id)
    clock.advance(500)
    assert await queue.cancel(lease.id) == "cancelled"
    assert await queue.inspect.job(lease.id) == before
    assert await live(queue, pool) == 1
    await queue.release(pool, lease)
    assert await queue.cancel(lease.id) == "cancelled"


async def test_a_finished_job_stays_as_it_is(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    (expired,) = await submit(queue, pool, "bob", deadline_ms=10)
    clock.advance(10)
    await queue.sweep(pool)
    await submit(queue, pool, n=3, max_attempts=1)
    good, bad, dead = await take(queue, pool, 3)
    await finish(queue, pool, [good])
    await queue.settle(pool, bad, "failed", status=400)
    await queue.retry(pool, dead, REFUSED, delay_ms=0)
    for id_, state in ((good.id, "succeeded"), (bad.id, "failed"), (dead.id, "failed"), (expired, "expired")):
        before = await queue.inspect.job(id_)
        clock.advance(1)
        assert await queue.cancel(id_) == state
        assert await queue.inspect.job(id_) == before


@pytest.mark.parametrize(
    "id_", ["job_{code}9aaaaaaaaaaaa", "job_zzzz1aaaaaaaaaaaa", "job_", "", "no spaces", "job_{code}01"]
)
async def test_what_is_not_there_cannot_be_cancelled(queue: Queue, pool: Pool, id_: str) -> None:
    with pytest.raises(NotFound):
        await queue.cancel(id_.format(code=pool.code))
