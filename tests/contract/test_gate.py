"""The gate: no more leases on a backend than the observer's last word allows, and a reason for each refusal."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import IllegalTransition, InvalidRequest, NotFound, UnknownTier
from fairlane.model import BackendCounts, GateReason, TierGate
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import (
    NOTHING_COUNTED,
    REFUSED,
    finish,
    live,
    open_backend,
    set_gate,
    set_gates,
    submit,
    take,
    take_one,
)

pytestmark = pytest.mark.usefixtures("invariants")


async def reason(queue: Queue, job_id: str) -> GateReason:
    (gate,) = (await queue.inspect.explain(job_id)).gates
    return gate.reason


@pytest.mark.parametrize("why", ["full", "room", "kv", "slow_tokens"])
async def test_at_its_limit_a_gate_gives_the_observers_reason(queue: Queue, pool: Pool, why: GateReason) -> None:
    await set_gates(queue, pool, "b1", {"default": TierGate(2, 9, why), "flex": TierGate(9, 9)})
    ids = await submit(queue, pool, n=4)
    assert await reason(queue, ids[-1]) == "open"
    assert len(await take(queue, pool, 4)) == 2
    (gate,) = (await queue.inspect.explain(ids[-1])).gates
    assert (gate.backend, gate.live, gate.limit, gate.reason) == ("b1", 2, 2, why)
    backend = await queue.inspect.backend(pool, "b1")
    assert backend.said["default"].split()[:3] == [why, "2", "2"]
    assert backend.decisions == {"default:open": 2, f"default:{why}": 1}
    assert backend.gates["default"] == TierGate(2, 9, why)


async def test_refusals_are_counted_once_in_100_ms_until_they_are_noted(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    await set_gate(queue, pool, "b1", 2)
    await submit(queue, pool, n=5)
    await submit(queue, pool, tier="flex")
    taken = await take(queue, pool, 5)
    for ms in (0, 99, 1):
        clock.advance(ms)
        assert await take(queue, pool, 5) == []
    await queue.settle(pool, taken[0], "succeeded")
    counts = (await queue.inspect.backend(pool, "b1")).counts
    assert counts == BackendCounts(live=1, done=1, denied=2)
    left = await queue.observe(pool, "b1", {}, counted=BackendCounts(live=9, done=1, denied=1))
    assert left == BackendCounts(live=1, done=0, denied=1)


@pytest.mark.parametrize("why", ["kv", "slow_tokens", "stale", "draining", "down"])
async def test_only_a_refusal_for_want_of_room_may_raise_what_a_backend_is_thought_to_take(
    queue: Queue, pool: Pool, clock: ManualClock, why: GateReason
) -> None:
    """Found on the page: a backend that was drained under load, and had no job, was thought to take 393 million."""
    await set_gates(queue, pool, "b1", dict.fromkeys(pool.policy.tiers, TierGate(0, 0, why)))
    if why in ("draining", "down"):
        await queue.set_backend(pool, "b1", "drain" if why == "draining" else "down")
    clock.advance(pool.policy.stale_ms + 1 if why == "stale" else 0)
    await submit(queue, pool)
    assert await take(queue, pool) == []
    backend = await queue.inspect.backend(pool, "b1")
    assert (backend.decisions, backend.counts.denied) == ({f"default:{why}": 1}, 0)


async def test_only_work_that_the_backend_did_counts_as_done(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    """Found by attack: errors counted, and a backend that answered 500 at once was taken for one that can do much."""
    await submit(queue, pool, n=7)
    settled, failed, retried, released, lost, cancelled, settled_late = await take(queue, pool, 7)
    await finish(queue, pool, [settled])
    await queue.settle(pool, failed, "failed", status=400)
    await queue.retry(pool, retried, REFUSED, delay_ms=60_000)
    await queue.release(pool, released)
    await queue.cancel(cancelled.id)
    await queue.release(pool, cancelled)
    await queue.cancel(settled_late.id)
    await queue.settle(pool, settled_late, "succeeded")
    clock.advance(30_000)
    assert (await queue.sweep(pool)).lost == 1
    assert (await queue.inspect.job(lost.id)).state == "queued"
    assert (await queue.inspect.backend(pool, "b1")).counts == BackendCounts(live=0, done=2, denied=0)


async def test_on_stale_metrics_that_backend_alone_falls_back(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    """Case 14."""
    await set_gates(queue, pool, "b1", dict.fromkeys(pool.policy.tiers, TierGate(5, 2, "kv")))
    await open_backend(queue, pool, "b2", 1)
    ids = await submit(queue, pool, n=20)
    clock.advance(601)
    await set_gate(queue, pool, "b2", 3)
    taken = await take(queue, pool, 20)
    assert sorted(lease.backend for lease in taken) == ["b1"] * 2 + ["b2"] * 3
    gates = {gate.backend: gate for gate in (await queue.inspect.explain(ids[-1])).gates}
    assert (gates["b1"].limit, gates["b1"].reason) == (2, "stale")
    assert gates["b2"].reason == "full"
    await set_gates(queue, pool, "b1", {"default": TierGate(5, 2, "kv")})
    assert [lease.backend for lease in await take(queue, pool, 20)] == ["b1"] * 3


async def test_metrics_are_fresh_for_as_long_as_the_policy_says(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await set_gates(queue, pool, "b1", {"default": TierGate(1, 0)})
    await submit(queue, pool)
    clock.advance(600)
    assert len(await take(queue, pool)) == 1


async def test_a_backend_that_is_down_gets_nothing_until_it_is_observed(queue: Queue, pool: Pool) -> None:
    (id_, _) = await submit(queue, pool, n=2)
    await queue.set_backend(pool, "b1", "down")
    assert await take(queue, pool) == []
    assert await reason(queue, id_) == "down"
    await set_gate(queue, pool, "b1", 1)
    assert len(await take(queue, pool)) == 1


async def test_a_draining_backend_finishes_what_it_has(queue: Queue, pool: Pool) -> None:
    ids = await submit(queue, pool, n=2)
    lease = await take_one(queue, pool)
    await queue.set_backend(pool, "b1", "drain")
    await queue.set_backend(pool, "b1", "down")
    await set_gate(queue, pool, "b1", 9)
    assert await take(queue, pool) == []
    assert await reason(queue, ids[1]) == "draining"
    with pytest.raises(IllegalTransition):
        await queue.set_backend(pool, "b1", "remove")
    await finish(queue, pool, [lease])
    await queue.set_backend(pool, "b1", "undrain")
    assert len(await take(queue, pool)) == 1


async def test_a_backend_that_is_idle_can_go_and_come_back(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, n=3)
    await finish(queue, pool, [await take_one(queue, pool)])
    await queue.set_backend(pool, "b1", "remove")
    assert await take(queue, pool) == []
    assert (await queue.inspect.overview(pool)).backends == ()
    with pytest.raises(NotFound):
        await queue.inspect.backend(pool, "b1")
    with pytest.raises(NotFound):
        await set_gate(queue, pool, "b1", 5)
    await queue.set_backend(pool, "b1", "add")
    assert len(await take(queue, pool, 3)) == 1


async def test_a_backend_that_nobody_observed_gets_one_job_at_a_time(queue: Queue, pool: Pool) -> None:
    await queue.set_backend(pool, "b1", "drain")
    await queue.set_backend(pool, "b2", "add")
    await submit(queue, pool, n=3)
    (lease,) = await take(queue, pool, 3)
    assert lease.backend == "b2"
    assert await take(queue, pool, 3) == []
    await finish(queue, pool, [lease])
    assert len(await take(queue, pool, 3)) == 1


async def test_adding_a_backend_twice_changes_nothing(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, n=2)
    await take_one(queue, pool)
    await queue.set_backend(pool, "b1", "drain")
    await queue.set_backend(pool, "b1", "add")
    assert await live(queue, pool) == 1
    assert await take(queue, pool) == [], "it still drains"
    assert [backend.name for backend in (await queue.inspect.overview(pool)).backends] == ["b1"]


async def test_a_pool_has_64_backends_at_the_most(queue: Queue, pool: Pool) -> None:
    for n in range(63):
        await queue.set_backend(pool, f"http://10.0.0.{n}:8000", "add")
    with pytest.raises(InvalidRequest):
        await queue.set_backend(pool, "one-more", "add")
    await submit(queue, pool, n=70)
    await queue.set_backend(pool, "b1", "drain")
    assert len({lease.backend for lease in await take(queue, pool, 70)}) == 63


async def test_what_is_not_there_cannot_be_changed(queue: Queue, pool: Pool) -> None:
    for act in ("drain", "undrain", "down", "remove"):
        with pytest.raises(NotFound):
            await queue.set_backend(pool, "b9", act)
    with pytest.raises(InvalidRequest):
        await queue.set_backend(pool, "no spaces", "add")
    with pytest.raises(UnknownTier):
        await queue.observe(pool, "b1", {"gold": TierGate(1, 1)}, counted=NOTHING_COUNTED)


async def test_the_whole_fleet_together_stays_below_the_limit(queue: Queue, pool: Pool) -> None:
    """Case 7: 20 dispatchers act on the same reading."""
    await set_gate(queue, pool, "b1", 7)
    await submit(queue, pool, n=60)
    taken = await asyncio.gather(*(take(queue, pool, 5, f"d{n}") for n in range(20)))
    assert sum(map(len, taken)) == 7
    assert await live(queue, pool) == 7


async def test_a_lower_limit_takes_nothing_back(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, n=6)
    leases = await take(queue, pool, 4)
    await set_gate(queue, pool, "b1", 2)
    for lease in leases[:2]:
        await finish(queue, pool, [lease])
        assert await take(queue, pool) == []
    await finish(queue, pool, leases[2:3])
    assert len(await take(queue, pool, 5)) == 1
