"""What the gates let through, with the production scripts, watch and policy: slow tokens, rooms, the lowest tier."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import pairwise
from typing import Final

import pytest

from dispatcher.backends.timing import Speed
from fairlane.clock import ManualClock
from fairlane.model import JobSpec, Lease, Policy
from fairlane.queue.engine import Queue
from tests.virtual.floods import direct, long_jobs, speed_of
from tests.virtual.live import Live, job

POLICY: Final = Policy(lease_ms=3_600_000)
TIERS: Final = POLICY.tiers
THETA_0: Final = 3
ROOMS: Final = {"priority": 1.0, "default": 0.80, "flex": 0.713, "batch": 0.675}
ALONE_MS: Final = 4_000


def reasons(live: Live, tier: str = "priority") -> list[tuple[float, str]]:
    """What the gate says after each scrape: when that was, and why it would refuse."""
    return [(at, view.gates[tier].why) for (at, _), (_, view) in pairwise(live.found)]


# --- the speed of tokens ----------------------------------------------------------------------------------------------

FAST: Final = Speed(slots=8, step_ms=20, sequence_ms=0)
SLOW: Final = replace(FAST, step_ms=180)
COLLAPSE_MS: Final = 5_000


@pytest.mark.parametrize("phase_ms", [0, 60, 120, 180])
async def test_a_collapse_of_the_token_speed_shuts_the_gate_within_two_scrapes(
    queue: Queue, manual: ManualClock, phase_ms: int
) -> None:
    live = Live(queue, await queue.pools.open("llama", POLICY), manual, FAST)
    live.arrive(*(job(f"t{n % 4}", "priority", 60) for n in range(100)))
    collapsed_ms = COLLAPSE_MS + phase_ms
    await live.run(collapsed_ms)
    live.server.resize(SLOW)
    await live.run(collapsed_ms + 1_500)
    seen = [(at, why) for at, why in reasons(live) if at > collapsed_ms]
    assert "slow_tokens" in [why for _, why in seen[:2]]
    shut_ms = next(at for at, why in seen if why == "slow_tokens")
    assert all(why == "slow_tokens" for at, why in seen if at >= shut_ms)
    assert not [pop for pop in live.pops if pop.at_ms > shut_ms]
    live.server.resize(FAST)
    await live.run(collapsed_ms + 3_000)
    reopened_ms = next(at for at, why in reasons(live) if at > shut_ms and why != "slow_tokens")
    assert reopened_ms <= collapsed_ms + 1_500 + SLOW.step_ms + 2 * 200
    assert [pop for pop in live.pops if pop.at_ms >= reopened_ms]


async def test_a_backend_that_went_idle_while_it_was_slow_is_open(queue: Queue, manual: ManualClock) -> None:
    """Its last tokens were slow, and there are no others to judge it by."""
    live = Live(queue, await queue.pools.open("llama", POLICY), manual, SLOW)
    live.arrive(*(job("ann", "priority", 12) for _ in range(8)))
    await live.run(10_000)
    assert "slow_tokens" in [why for _, why in reasons(live)], "else this shows nothing"
    last_ms = max(live.done.values())
    idle = [why for at, why in reasons(live) if at > last_ms + 2 * 500]
    assert idle
    assert "slow_tokens" not in idle
    live.arrive(job("ann", "priority", 3))
    await live.run(10_001)
    assert live.pops[-1].at_ms >= 10_000, "it is sent at once"


async def test_jobs_come_through_a_backend_that_is_always_slow(queue: Queue, manual: ManualClock) -> None:
    live = Live(queue, await queue.pools.open("llama", POLICY), manual, SLOW)
    live.arrive(*(job("ann", "priority", 5) for _ in range(8)))
    await live.run(30_000)
    assert len(live.done) == 8


# --- rooms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("greedy", ["default", "flex", "batch"])
async def test_with_all_tiers_at_work_each_stays_within_its_room(
    queue: Queue, manual: ManualClock, greedy: str
) -> None:
    """The tier that is `greedy` has no end of jobs, each of the others four at a time; 64 slots."""
    slots, dice = 64, random.Random(1)

    def size() -> int:
        return dice.randint(80, 120)

    def another(lease: Lease) -> list[JobSpec]:
        return [job(lease.tenant, lease.tier, size())] if lease.tenant == "modest" else []

    speed = Speed(slots=slots, step_ms=30, sequence_ms=0)
    live = Live(queue, await queue.pools.open("llama", POLICY), manual, speed, at_end=another)
    live.arrive(*(job("flood", "priority", size()) for _ in range(180)))  # K is learned from these
    await live.run(ALONE_MS)
    live.arrive(*(job("modest", tier, size()) for tier in TIERS if tier != greedy for _ in range(4)))
    live.arrive(*(job("greedy", greedy, size()) for _ in range(400)))
    await live.run(ALONE_MS + 12_000)
    assert json.loads(live.found[-1][1].seen)["capacity"]["k"] == pytest.approx(slots, abs=1)
    settled = [pop for pop in live.pops if pop.at_ms > ALONE_MS + 6_000]
    for tier in TIERS:
        most = int((slots + THETA_0) * ROOMS[tier])
        held = [pop.live + 1 for pop in settled if pop.lease.tier == tier]
        assert not held or max(held) <= most, tier
        if tier == greedy:
            assert max(held) == most, "it fills its room"


async def test_the_lowest_tier_starts_only_when_nothing_waits_in_the_backend(queue: Queue, manual: ManualClock) -> None:
    """Batch work without end; priority work in bursts that are more than the backend can run at once."""
    dice = random.Random(1)
    live = Live(queue, await queue.pools.open("llama", POLICY), manual, Speed(slots=8, step_ms=20, sequence_ms=0))

    def burst() -> None:
        live.arrive(*(job("ann", "priority", dice.randint(20, 60)) for _ in range(dice.randint(1, 14))))
        live.clock.after(dice.uniform(500, 5_000), burst)

    live.arrive(*(job("bob", "batch", dice.randint(30, 90)) for _ in range(300)))
    live.clock.after(3_000, burst)
    await live.run(30_000)
    started = [pop for pop in live.pops if pop.lease.tier == "batch" and pop.at_ms > 3_000]
    assert len(started) > 40
    assert max(pop.waiting for pop in live.pops) > 1, "there are moments when it must wait"
    assert max(pop.shown for pop in started) == 0, "never while something is known to wait"
    # now and then the learner tries whether there is one slot more
    assert max(pop.waiting for pop in started) <= 1
    assert sum(pop.waiting == 0 for pop in started) >= 0.9 * len(started)


async def test_the_lowest_tier_alone_loses_next_to_nothing(queue: Queue, manual: ManualClock) -> None:
    speed, dice = speed_of(8), random.Random(0)
    live = Live(queue, await queue.pools.open("llama", POLICY), manual, speed)
    requests = [long_jobs(dice) for _ in range(120)]
    live.arrive(*(job(f"t{n % 3}", "batch", one.answer, prompt=one.prompt) for n, one in enumerate(requests)))
    await live.run(3_000)
    before = live.server.work()
    await live.run(23_000)
    assert live.server.work() - before >= 0.97 * direct(speed, long_jobs, 0, 3_000, 23_000)
