"""Leases: a hold that lasts while it is renewed, one outcome, and the old place for whatever comes back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import LeaseLost, NotFound
from fairlane.model import Attempt, JobError, Lease, Usage
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

LEASE_MS = 30_000


async def lose(queue: Queue, pool: Pool, clock: ManualClock) -> Lease:
    """A lease that has ended because its dispatcher fell silent."""
    lease = await take_one(queue, pool)
    clock.advance(LEASE_MS)
    assert (await queue.sweep(pool)).lost == 1
    return lease


async def refused(queue: Queue, pool: Pool, lease: Lease) -> None:
    """Nobody who holds `lease` may change anything any more."""
    before = await queue.inspect.job(lease.id)
    for act in (
        lambda: queue.settle(pool, lease, "succeeded", result=b"late"),
        lambda: queue.retry(pool, lease, REFUSED, delay_ms=0),
        lambda: queue.release(pool, lease),
    ):
        with pytest.raises(LeaseLost):
            await act()
    assert await queue.renew(pool, [lease]) == ["lost"]
    assert await queue.inspect.job(lease.id) == before


async def test_a_live_lease_is_renewed_and_only_a_silent_one_ends(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    """Case 13."""
    await submit(queue, pool, n=2)
    (lives, silent) = await take(queue, pool, 2)
    for _ in range(20):
        clock.advance(LEASE_MS - 1)
        await queue.sweep(pool)
        assert await queue.renew(pool, [lives]) == ["ok"]
    assert await state_of(queue, lives.id) == "leased"
    assert await state_of(queue, silent.id) == "queued"
    await finish(queue, pool, [lives])


async def test_renew_answers_for_each_lease_by_itself(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool, n=5)
    ok, settled, cancelled, ended, other = await take(queue, pool, 5)
    await finish(queue, pool, [settled])
    await queue.cancel(cancelled.id)
    await queue.cancel(ended.id)
    await queue.release(pool, ended)
    forged = replace(other, token=other.token + 1)
    unknown = replace(other, id=other.id[:-1] + "_")
    asked = [settled, ok, cancelled, ended, forged, unknown, other]
    assert await queue.renew(pool, asked) == ["lost", "ok", "cancelled", "lost", "lost", "lost", "ok"]
    assert await queue.renew(pool, []) == []
    clock.advance(LEASE_MS)
    assert (await queue.sweep(pool)).lost == 3, "a renewal counts from now, for whoever got an ok"


async def test_what_ends_a_lease_may_be_repeated_and_changes_nothing(queue: Queue, pool: Pool) -> None:
    """Nobody knows whether it was done when its reply is lost."""
    await submit(queue, pool, n=3, max_attempts=2)
    delayed, queued, released = await take(queue, pool, 3)
    acts = (
        lambda: queue.retry(pool, delayed, REFUSED, delay_ms=5000),
        lambda: queue.retry(pool, queued, REFUSED, delay_ms=0),
        lambda: queue.release(pool, released),
    )
    states = [await act() for act in acts]
    before = [await queue.inspect.job(lease.id) for lease in (delayed, queued, released)]
    assert states == ["delayed", "queued", "queued"]
    assert [await act() for act in acts] == states
    assert [await queue.inspect.job(lease.id) for lease in (delayed, queued, released)] == before
    for lease in (delayed, queued, released):
        with pytest.raises(LeaseLost):
            await queue.settle(pool, lease, "succeeded")
    assert [(lease.id, lease.attempt) for lease in await take(queue, pool, 3)] == [(queued.id, 2), (released.id, 1)]
    for act in acts[1:]:
        with pytest.raises(LeaseLost):
            await act()


async def test_a_lost_lease_changes_nothing_any_more(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool)
    lost = await lose(queue, pool, clock)
    await refused(queue, pool, lost)
    now = await take_one(queue, pool)
    await refused(queue, pool, lost)
    await finish(queue, pool, [now])
    await refused(queue, pool, lost)


@pytest.mark.parametrize("changes", [{"max_attempts": 1}, {"deadline_ms": 1}], ids=["dead", "expired"])
async def test_a_lost_lease_that_was_the_last_changes_nothing_either(
    queue: Queue, pool: Pool, clock: ManualClock, changes: dict[str, Any]
) -> None:
    await submit(queue, pool, **changes)
    await refused(queue, pool, await lose(queue, pool, clock))


async def test_each_lease_of_a_job_has_a_greater_token(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool)
    first = await lose(queue, pool, clock)
    second = await take_one(queue, pool)
    await queue.release(pool, second)
    third = await take_one(queue, pool)
    await queue.retry(pool, third, REFUSED, delay_ms=0)
    fourth = await take_one(queue, pool)
    tokens = [lease.token for lease in (first, second, third, fourth)]
    assert tokens == sorted(set(tokens))
    for lease in (first, second, third):
        await refused(queue, pool, lease)
    await finish(queue, pool, [fourth])


async def test_what_was_lost_runs_again_at_its_old_place(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    ids = await submit(queue, pool, n=4)
    await take(queue, pool, 3)
    await submit(queue, pool, n=1)
    clock.advance(LEASE_MS)
    assert (await queue.sweep(pool)).lost == 3
    assert ids_of(await drain(queue, pool))[:4] == ids
    (first, *_) = (await queue.inspect.job(ids[0])).attempts
    assert (first.n, first.outcome, first.status) == (1, "lost", None)


async def test_a_lease_that_is_not_swept_yet_still_holds(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool)
    lease = await take_one(queue, pool)
    clock.advance(2 * LEASE_MS)
    await finish(queue, pool, [lease])
    assert (await queue.sweep(pool)).lost == 0


async def test_a_retry_waits_out_its_delay_and_runs_at_its_old_place(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    """Case 2."""
    ids = await submit(queue, pool, n=3)
    lease = await take_one(queue, pool)
    clock.advance(100)
    assert await queue.retry(pool, lease, REFUSED, delay_ms=5000) == "delayed"
    job = await queue.inspect.job(lease.id)
    assert job.not_before_ms == clock.now_ms() + 5000
    assert job.attempts == (Attempt(1, "b1", clock.now_ms() - 100, clock.now_ms(), REFUSED.code, 502),)
    assert (job.finished_at_ms, job.error) == (None, None)
    assert ids_of(await take(queue, pool)) == ids[1:2]
    clock.advance(4999)
    await queue.sweep(pool)
    assert await state_of(queue, lease.id) == "delayed"
    clock.advance(1)
    await queue.sweep(pool)
    again = await take(queue, pool, 5)
    assert ids_of(again) == [ids[0], ids[2]]
    assert again[0].attempt == 2


async def test_a_retry_without_delay_is_next(queue: Queue, pool: Pool) -> None:
    ids = await submit(queue, pool, n=3)
    lease = await take_one(queue, pool)
    assert await queue.retry(pool, lease, REFUSED, delay_ms=0) == "queued"
    assert ids_of(await take(queue, pool, 5)) == ids


async def test_a_job_is_tried_as_often_as_it_may_be_and_then_dead(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    """Case 2: spaced, and no more than that."""
    (id_,) = await submit(queue, pool, max_attempts=3)
    began: list[int] = []
    for n in (1, 2, 3):
        lease = await take_one(queue, pool)
        began.append(clock.now_ms())
        error = JobError(f"no_{n}", "no", 500 + n)
        state = await queue.retry(pool, lease, error, delay_ms=1000 * n, result=b"sorry", usage=Usage(1, 0))
        assert state == ("delayed" if n < 3 else "failed")
        clock.advance(1000 * n)
        await queue.sweep(pool)
    assert await take(queue, pool) == []
    job = await queue.inspect.job(id_)
    assert (job.state, job.dead, job.result, job.status) == ("failed", True, b"sorry", 503)
    assert job.error == JobError("no_3", "no", 503)
    assert job.attempts == tuple(Attempt(n, "b1", at, at, f"no_{n}", 500 + n) for n, at in enumerate(began, 1))
    assert began == [began[0], began[0] + 1000, began[0] + 3000]
    dead, _ = await queue.inspect.index(pool, "dead")
    assert [job.id for job in dead] == [id_]


async def test_a_job_with_one_attempt_is_dead_after_it(queue: Queue, pool: Pool) -> None:
    (id_,) = await submit(queue, pool, max_attempts=1)
    assert await queue.retry(pool, await take_one(queue, pool), REFUSED, delay_ms=0) == "failed"
    assert (await queue.inspect.job(id_)).dead


async def test_a_release_gives_back_the_attempt_and_the_place(queue: Queue, pool: Pool) -> None:
    ids = await submit(queue, pool, n=3, max_attempts=1)
    for _ in range(4):
        leases = await take(queue, pool, 2)
        assert [lease.attempt for lease in leases] == [1, 1]
        for lease in reversed(leases):
            assert await queue.release(pool, lease) == "queued"
    job = await queue.inspect.job(ids[0])
    assert (job.attempts, job.started_at_ms) == ((), None)
    assert ids_of(await drain(queue, pool)) == ids


async def test_a_release_gives_back_the_turn(queue: Queue, pool: Pool) -> None:
    for tenant in ("ann", "bob"):
        await submit(queue, pool, tenant, n=6)
    for _ in range(5):
        lease = await take_one(queue, pool)
        assert lease.tenant == "ann"
        await queue.release(pool, lease)
    assert tenants_of(await take(queue, pool, 4)) == ["ann", "bob"] * 2


async def test_a_release_by_one_who_has_nothing_else_costs_a_turn_at_most(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "ann")
    await submit(queue, pool, "bob", n=6)
    for _ in range(5):
        await queue.release(pool, await take_one(queue, pool))
    assert "ann" in tenants_of(await take(queue, pool, 2))


async def test_a_lease_that_never_was_holds_nothing(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, n=2)
    lease = await take_one(queue, pool)
    forged = replace(lease, token=lease.token + 1)
    await refused(queue, pool, forged)
    gone = replace(lease, id=f"job_{pool.code}999aaaaaaaaaaaa")
    for act in (
        lambda: queue.settle(pool, gone, "failed"),
        lambda: queue.retry(pool, gone, REFUSED, delay_ms=0),
        lambda: queue.release(pool, gone),
    ):
        with pytest.raises(NotFound):
            await act()
    await finish(queue, pool, [lease])


@pytest.mark.parametrize("ended_by", ["retry", "release"])
async def test_a_lease_that_its_holder_ended_cannot_settle_what_expired_since(
    queue: Queue, pool: Pool, clock: ManualClock, ended_by: str
) -> None:
    """Found by the property test in CI: such a settle was taken for a repeated one."""
    (id_,) = await submit(queue, pool, deadline_ms=400)
    lease = await take_one(queue, pool)
    if ended_by == "retry":
        await queue.retry(pool, lease, REFUSED, delay_ms=0)
    else:
        await queue.release(pool, lease)
    clock.advance(400)
    assert (await queue.sweep(pool)).expired == 1
    with pytest.raises(LeaseLost):
        await queue.settle(pool, lease, "succeeded")
    assert await state_of(queue, id_) == "expired"
