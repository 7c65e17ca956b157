"""The valve, the one promise against starvation: a tier in arrears gets a bounded share of the pops, always."""

from __future__ import annotations

from collections import Counter

import pytest

from fairlane.clock import ManualClock
from fairlane.model import TierGate
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import finish, set_gates, submit, take

pytestmark = pytest.mark.usefixtures("invariants")

VALVE_MS = 60_000
OPEN, SHUT = TierGate(1000, 1000), TierGate(0, 0)


async def turns(queue: Queue, pool: Pool, n: int) -> Counter[str]:
    """The tiers of `n` pops."""
    return Counter(lease.tier for lease in await take(queue, pool, n))


async def flood(queue: Queue, pool: Pool, n: int) -> None:
    await submit(queue, pool, "flood", "priority", n=n)


@pytest.mark.parametrize(
    ("waited_ms", "share"),
    [
        (VALVE_MS - 1, 0),
        (VALVE_MS, 1 / 16),
        (2 * VALVE_MS, 1 / 8),
        (4 * VALVE_MS, 1 / 4),
        (1000 * VALVE_MS, 1 / 4),
    ],
)
async def test_a_tier_in_arrears_gets_a_share_that_grows_with_its_wait(
    queue: Queue, pool: Pool, clock: ManualClock, waited_ms: int, share: float
) -> None:
    await submit(queue, pool, tier="flex", n=20)
    await flood(queue, pool, 64)
    clock.advance(waited_ms)
    got = await turns(queue, pool, 64)
    assert got["flex"] == 64 * share
    assert got["priority"] == 64 - got["flex"]


async def test_the_share_does_not_come_in_one_lump(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool, tier="flex", n=20)
    await flood(queue, pool, 48)
    clock.advance(10 * VALVE_MS)
    for _ in range(8):
        assert (await turns(queue, pool, 4))["flex"] == 1


async def test_a_tier_that_its_own_gate_served_is_not_in_arrears(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool, tier="flex", n=20)
    clock.advance(VALVE_MS)
    assert await turns(queue, pool, 1) == {"flex": 1}
    await flood(queue, pool, 40)
    clock.advance(VALVE_MS - 1)
    assert await turns(queue, pool, 40) == {"priority": 40}


async def test_a_turn_by_the_valve_does_not_end_the_arrears(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool, tier="flex", n=20)
    await flood(queue, pool, 48)
    clock.advance(2 * VALVE_MS)
    assert (await turns(queue, pool, 16))["flex"] == 2
    clock.advance(2 * VALVE_MS)
    assert (await turns(queue, pool, 16))["flex"] == 4


async def test_a_tier_is_in_arrears_from_when_it_became_runnable(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool, tier="flex", n=3)
    clock.advance(10 * VALVE_MS)
    await turns(queue, pool, 3)
    await flood(queue, pool, 20)
    await submit(queue, pool, tier="flex", n=3)
    assert await turns(queue, pool, 20) == {"priority": 20}


async def test_the_tier_longest_in_arrears_goes_first(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    for tier in ("batch", "default", "flex"):
        await submit(queue, pool, tier=tier)
        clock.advance(VALVE_MS)
    await flood(queue, pool, 40)
    clock.advance(4 * VALVE_MS)
    served = [lease.tier for lease in await take(queue, pool, 40) if lease.tier != "priority"]
    assert served == ["batch", "default", "flex"]


async def test_everyone_is_served_under_a_flood_that_never_ends(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    low = ("default", "flex", "batch")
    for tier in low:
        await submit(queue, pool, "ann", tier, n=2)
        await submit(queue, pool, "bob", tier, n=1)
    await flood(queue, pool, 80)
    got: Counter[str] = Counter()
    for _ in range(20):
        clock.advance(VALVE_MS // 4)
        leases = await take(queue, pool, 4)
        got.update(lease.tier for lease in leases)
        await finish(queue, pool, leases)
    assert all(got[tier] == 3 for tier in low)
    assert got["priority"] >= 80 * 3 / 4 - 9


async def test_priority_loses_a_quarter_at_most_to_all_tiers_together(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    for tier in ("default", "flex", "batch"):
        await submit(queue, pool, tier=tier, n=30)
    await flood(queue, pool, 80)
    clock.advance(100 * VALVE_MS)
    assert (await turns(queue, pool, 80))["priority"] == 60


async def test_a_tier_whose_own_gate_never_opens_is_served_under_the_highest_ones(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    """Also when that one has no work, so that there are no pops to have a share of: then one now and then."""
    await set_gates(queue, pool, "b1", {"priority": OPEN, "default": OPEN, "flex": SHUT, "batch": OPEN})
    await submit(queue, pool, tier="flex", n=5)
    clock.advance(VALVE_MS - 1)
    assert await turns(queue, pool, 9) == {}
    clock.advance(1)
    for _ in range(3):
        assert await turns(queue, pool, 9) == {"flex": 1}
        clock.advance(VALVE_MS // 16 - 1)
        assert await turns(queue, pool, 9) == {}
        clock.advance(1)


async def test_a_shut_gate_of_its_own_does_not_bar_its_share(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await set_gates(queue, pool, "b1", {"priority": OPEN, "default": OPEN, "flex": SHUT, "batch": OPEN})
    await submit(queue, pool, tier="flex", n=20)
    await flood(queue, pool, 32)
    clock.advance(4 * VALVE_MS)
    assert (await turns(queue, pool, 32))["flex"] == 8


async def test_the_valve_never_goes_beyond_the_highest_tiers_gate(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await set_gates(queue, pool, "b1", dict.fromkeys(pool.policy.tiers, TierGate(3, 3)))
    await submit(queue, pool, tier="batch", n=9)
    await flood(queue, pool, 9)
    clock.advance(100 * VALVE_MS)
    assert (await turns(queue, pool, 9)).total() == 3
    assert await turns(queue, pool, 9) == {}


async def test_a_paused_tier_is_not_in_arrears(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool, tier="flex", n=9)
    await queue.pause(pool, tier="flex")
    await flood(queue, pool, 40)
    clock.advance(100 * VALVE_MS)
    assert await turns(queue, pool, 20) == {"priority": 20}
    await queue.resume(pool, tier="flex")
    assert await turns(queue, pool, 20) == {"priority": 20}


async def test_a_clock_that_was_set_back_stops_it_only_for_as_long_as_it_waits_anyway(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    await submit(queue, pool, tier="priority", n=400)
    await submit(queue, pool, tier="batch", n=50)
    clock.advance(VALVE_MS)
    assert "batch" in [lease.tier for lease in await take(queue, pool, 50)]
    clock.advance(-3_600_000)
    assert [lease.tier for lease in await take(queue, pool, 1)] == ["priority"]
    clock.advance(VALVE_MS)
    assert "batch" in [lease.tier for lease in await take(queue, pool, 50)]
