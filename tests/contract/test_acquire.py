"""Handing jobs out: who is next, never twice, and the same again to one who asks again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import InvalidRequest, StaleCall
from fairlane.model import Policy, TierGate
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import (
    REFUSED,
    drain,
    finish,
    ids_of,
    open_backend,
    set_gates,
    spec,
    state_of,
    submit,
    submit_all,
    take,
    take_one,
    tenants_of,
)

pytestmark = pytest.mark.usefixtures("invariants")


async def test_a_lease_says_all_that_a_dispatcher_needs(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    (id_,) = await submit(queue, pool, "ann", "flex", body=b"body", head=b"head", input_tokens=3, output_tokens=4)
    submitted = clock.now_ms()
    clock.advance(700)
    lease = await take_one(queue, pool)
    assert (lease.id, lease.backend, lease.tenant, lease.tier, lease.token) == (id_, "b1", "ann", "flex", 1)
    assert (lease.attempt, lease.max_attempts, lease.input_tokens, lease.output_tokens) == (1, 3, 3, 4)
    assert (lease.body, lease.head) == (b"body", b"head")
    assert (lease.arrived_at_ms, lease.until_ms) == (submitted, clock.now_ms() + 30_000)
    job = await queue.inspect.job(id_)
    assert (job.state, job.started_at_ms) == ("leased", clock.now_ms())
    assert [(a.n, a.backend, a.started_at_ms, a.ended_at_ms) for a in job.attempts] == [(1, "b1", clock.now_ms(), None)]


async def test_work_expected_to_be_short_gets_a_bounded_head_start(queue: Queue, pool: Pool) -> None:
    await submit_all(queue, pool, [spec(expected_ms=ms) for ms in (0, 100, 1000, 10_000, 10_000_000)])
    boosts = [lease.arrived_at_ms - lease.phi_ms for lease in await take(queue, pool, 5)]
    assert boosts == sorted(boosts, reverse=True)
    assert (boosts[0], boosts[-1]) == (30_000, 0)


async def test_long_work_can_be_taken_too(queue: Queue, pool: Pool) -> None:
    await submit_all(queue, pool, [spec(expected_ms=1000 * seconds) for seconds in (100, 180, 200, 10_000)])
    assert [lease.arrived_at_ms - lease.phi_ms for lease in await take(queue, pool, 5)] == [0] * 4


async def test_at_most_as_many_as_there_are(queue: Queue, pool: Pool) -> None:
    ids = await submit(queue, pool, n=3)
    assert ids_of(await take(queue, pool, 2)) == ids[:2]
    assert ids_of(await take(queue, pool, 100)) == ids[2:]
    assert await take(queue, pool, 100) == []


async def test_a_call_says_whether_what_it_left_could_run(queue: Queue, pool: Pool) -> None:
    assert (await queue.acquire(pool, "d", 1, 9)).rest == "none"
    await submit(queue, pool, n=4)
    await submit(queue, pool, "bob", delay_ms=1_000)
    assert (await queue.acquire(pool, "d", 2, 3)).rest == "more"
    assert (await queue.acquire(pool, "d", 2, 3)).rest == "more", "nobody looks when a call is repeated"
    await set_gates(queue, pool, "b1", {tier: TierGate(3, 3) for tier in pool.policy.tiers})
    assert (await queue.acquire(pool, "d", 3, 1)).rest == "shut"
    await set_gates(queue, pool, "b1", {tier: TierGate(4, 4) for tier in pool.policy.tiers})
    last = await queue.acquire(pool, "d", 4, 1)
    assert (len(last), last.rest) == (1, "none")
    await submit(queue, pool)
    await queue.pause(pool)
    assert (await queue.acquire(pool, "d", 5, 1)).rest == "none"


@pytest.mark.parametrize(("dispatcher", "call_no", "n"), [("d", 1, 0), ("d", 1, 101), ("d", 0, 1), ("no spaces", 1, 1)])
async def test_a_call_that_makes_no_sense_is_refused(
    queue: Queue, pool: Pool, dispatcher: str, call_no: int, n: int
) -> None:
    with pytest.raises(InvalidRequest):
        await queue.acquire(pool, dispatcher, call_no, n)


async def test_the_highest_tier_goes_first(queue: Queue, pool: Pool) -> None:
    for tier in ("batch", "flex", "default", "priority"):
        await submit(queue, pool, tier=tier, n=2)
    tiers = [lease.tier for lease in await drain(queue, pool)]
    assert tiers == [tier for tier in pool.policy.tiers for _ in range(2)]


async def test_a_tier_whose_gate_is_shut_lets_the_next_one_go(queue: Queue, pool: Pool) -> None:
    shut, open_ = TierGate(0, 0), TierGate(5, 5)
    await set_gates(queue, pool, "b1", {"priority": shut, "default": open_, "flex": shut, "batch": open_})
    for tier in pool.policy.tiers:
        await submit(queue, pool, tier=tier)
    assert [lease.tier for lease in await take(queue, pool, 9)] == ["default", "batch"]


async def test_each_tier_is_fair_by_itself(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "ann", "flex", n=4)
    await submit(queue, pool, "ann", "priority", n=2)
    await submit(queue, pool, "bob", "flex", n=2)
    order = [(lease.tier, lease.tenant) for lease in await drain(queue, pool)]
    assert order[:2] == [("priority", "ann")] * 2
    assert order[2:] == [("flex", "ann"), ("flex", "bob"), ("flex", "ann"), ("flex", "bob")] + [("flex", "ann")] * 2


async def test_two_dispatchers_never_hold_one_job(queue: Queue, pool: Pool) -> None:
    """Case 15."""
    ids = await submit(queue, pool, n=20) + await submit(queue, pool, "bob", n=20)
    taken = await asyncio.gather(*(take(queue, pool, 7, f"d{n}") for n in range(8)))
    held = [lease.id for leases in taken for lease in leases]
    assert sorted(held) == sorted(ids)


async def test_a_call_that_is_repeated_gets_the_same_leases(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool, n=5)
    first = await queue.acquire(pool, "d", 7, 3)
    clock.advance(1000)
    assert await queue.acquire(pool, "d", 7, 3) == first
    assert len(await queue.acquire(pool, "d", 8, 3)) == 2


async def test_a_repeated_call_leaves_out_what_no_longer_lives(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool, n=6, max_attempts=9)
    settled, cancelled, released, lost, lives, renewed = await queue.acquire(pool, "d", 1, 6)
    await finish(queue, pool, [settled])
    await queue.cancel(cancelled.id)
    await queue.release(pool, released)
    clock.advance(20_000)
    await queue.renew(pool, [lives, renewed])
    clock.advance(10_000)
    assert (await queue.sweep(pool)).lost == 2
    clock.advance(1)
    await queue.renew(pool, [renewed])
    (elsewhere,) = await take(queue, pool, 1, "e")
    assert elsewhere.id == released.id
    again = await queue.acquire(pool, "d", 1, 6)
    assert [(lease.id, lease.token) for lease in again] == [(lives.id, 1), (renewed.id, 1)]
    assert [lease.until_ms - clock.now_ms() for lease in again] == [30_000 - 10_001, 30_000]
    assert await state_of(queue, lost.id) == "queued"


async def test_a_repeated_call_leases_nothing_new(queue: Queue, pool: Pool) -> None:
    assert await queue.acquire(pool, "d", 1, 3) == []
    await submit(queue, pool, n=2)
    assert await queue.acquire(pool, "d", 1, 3) == []
    assert len(await queue.acquire(pool, "d", 2, 3)) == 2


async def test_a_call_from_before_the_last_one_is_refused(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, n=3)
    await queue.acquire(pool, "d", 10**12, 1)
    for earlier in (1, 10**12 - 1):
        with pytest.raises(StaleCall):
            await queue.acquire(pool, "d", earlier, 1)
    assert len(await queue.acquire(pool, "other", 1, 1)) == 1
    assert (await queue.inspect.overview(pool)).leased == 2


async def test_what_was_taken_together_is_charged_as_if_taken_singly(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "ann", n=6)
    await submit(queue, pool, "bob", n=3)
    await submit(queue, pool, "cho", "flex", n=2)
    order = [(lease.tenant, lease.tier) for n in (4, 1, 3, 9) for lease in await take(queue, pool, n)]
    tenants = ["ann", "bob"] * 3 + ["ann"] * 3
    assert order == [(tenant, "default") for tenant in tenants] + [("cho", "flex")] * 2


async def test_work_goes_to_the_backend_with_the_most_room(queue: Queue, pool: Pool) -> None:
    room = {"b1": 2, "b2": 5, "b3": 3}
    await set_gates(queue, pool, "b1", dict.fromkeys(pool.policy.tiers, TierGate(2, 2)))
    for name in ("b2", "b3"):
        await open_backend(queue, pool, name, room[name])
    await submit(queue, pool, n=12)
    for lease in [lease for n in (3, 9) for lease in await take(queue, pool, n)]:
        assert room[lease.backend] == max(room.values())
        room[lease.backend] -= 1
    assert set(room.values()) == {0}


@pytest.mark.parametrize(
    "policy", [Policy(tiers=("only",)), Policy(tiers=tuple(f"t{n}" for n in range(10)))], indirect=True, ids=["1", "10"]
)
async def test_a_pool_has_one_tier_or_ten(queue: Queue, pool: Pool) -> None:
    tiers = pool.policy.tiers
    for tier in reversed(tiers):
        await submit(queue, pool, tier=tier, n=2)
    expected = [tier for tier in tiers for _ in range(2)]
    assert [lease.tier for lease in await take(queue, pool, len(tiers))] == expected[: len(tiers)]
    depths = [tier.depth for tier in (await queue.inspect.overview(pool)).tiers]
    assert sum(depths) == len(tiers)
    assert [lease.tier for lease in await take(queue, pool, 99)] == expected[len(tiers) :]


@pytest.mark.parametrize("policy", [Policy(gamma=0)], indirect=True, ids=["no-boost"])
async def test_there_may_be_no_head_start_at_all(queue: Queue, pool: Pool) -> None:
    await submit_all(queue, pool, [spec(expected_ms=ms) for ms in (0, 1000, 10_000_000)])
    assert [lease.arrived_at_ms - lease.phi_ms for lease in await take(queue, pool, 3)] == [0] * 3


async def test_a_job_that_somebody_deleted_by_hand_is_passed_over(queue: Queue, pool: Pool, client: Any) -> None:
    gone, *left = await submit(queue, pool, n=3)
    (alone,) = await submit(queue, pool, "bob")
    await client.delete(*(pool.key("job", id_) for id_ in (gone, alone)))
    taken = [lease.id for _ in range(4) for lease in await take(queue, pool)]
    assert taken == left


async def test_a_job_past_its_deadline_is_not_started(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    late = await submit(queue, pool, n=3, deadline_ms=100, batch_id="b")
    (good,) = await submit(queue, pool)
    clock.advance(99)
    assert ids_of(await take(queue, pool)) == late[:1], "it has a millisecond left"
    clock.advance(1)
    assert ids_of(await take(queue, pool)) == [good]
    for id_ in late[1:]:
        job = await queue.inspect.job(id_)
        assert (job.state, job.attempts, job.finished_at_ms) == ("expired", (), clock.now_ms())
        assert job.error is not None
        assert job.error.code == "expired"
    assert await state_of(queue, late[0]) == "leased", "a job that has started is never thrown away"


async def test_what_expires_at_its_turn_is_told_and_costs_no_turn(
    queue: Queue, pool: Pool, clock: ManualClock, client: Any
) -> None:
    (late,) = await submit(queue, pool, "ann", deadline_ms=100)
    await submit(queue, pool, "ann", n=2)
    await submit(queue, pool, "bob", n=2)
    clock.advance(100)
    async with client.pubsub() as pubsub:
        await pubsub.subscribe(pool.key("settled", late))
        assert (await pubsub.get_message(timeout=5))["type"] == "subscribe"
        leases = await take(queue, pool, 4)
        assert (await pubsub.get_message(timeout=5))["data"] == b"expired"
    assert tenants_of(leases) == ["ann", "bob", "ann", "bob"]
    events = await client.xrange(pool.key("events"))
    assert [(e[b"job"].decode(), e[b"state"]) for _, e in events] == [(late, b"expired")]


async def test_a_retried_job_is_not_started_again_after_its_deadline(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    (id_,) = await submit(queue, pool, deadline_ms=100)
    lease = await take_one(queue, pool)
    clock.advance(200)
    assert await queue.retry(pool, lease, REFUSED, delay_ms=0) == "queued"
    assert await take(queue, pool) == []
    job = await queue.inspect.job(id_)
    assert (job.state, len(job.attempts)) == ("expired", 1)


@pytest.mark.parametrize("policy", [Policy(max_waiting_tenant=1000)], indirect=True)
async def test_a_call_passes_over_a_bounded_number_of_jobs_and_says_that_there_may_be_more(
    queue: Queue, pool: Pool, clock: ManualClock, client: Any
) -> None:
    late = await submit(queue, pool, n=250, deadline_ms=100)
    (good,) = await submit(queue, pool)
    clock.advance(100)
    async with client.pubsub() as pubsub:
        await pubsub.subscribe(pool.key("wake"))
        assert (await pubsub.get_message(timeout=5))["type"] == "subscribe"
        taken = [ids_of(await take(queue, pool)) for _ in range(3)]
        assert taken == [[], [], [good]]
        assert [(await pubsub.get_message(timeout=5))["data"] for _ in range(2)] == [b"late"] * 2
    assert {await state_of(queue, id_) for id_ in late} == {"expired"}
