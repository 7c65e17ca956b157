"""A flood of the highest tier, ten minutes long: the valve serves those below, and takes no more than its share."""

from __future__ import annotations

import random
from collections import Counter
from itertools import accumulate, pairwise
from typing import Final

import pytest

from dispatcher.backends.timing import Speed
from fairlane.clock import ManualClock
from fairlane.model import JobSpec, Policy
from fairlane.queue.engine import Queue
from tests.virtual.live import Live, Pop, job

FLOOD_MS: Final = 600_000
VALVE_MS: Final = 60_000
LOWER: Final = ("default", "flex", "batch")
SPEED: Final = Speed(slots=8, step_ms=100, sequence_ms=0)  # a job takes about 8 s
SCRAPE_MS: Final = 3_000
POLICY: Final = Policy(lease_ms=3_600_000, stale_ms=3 * SCRAPE_MS, valve_ms=VALVE_MS)
TURN: Final = 16  # pops until the valve gives one, at first


@pytest.fixture
async def flood(queue: Queue, manual: ManualClock) -> list[Pop]:
    """The pops of ten minutes in which every tier always has work."""
    dice = random.Random(1)

    def jobs(tenant: str, tier: str, n: int) -> list[JobSpec]:
        return [job(tenant, tier, dice.randint(60, 100)) for _ in range(n)]

    pool = await queue.pools.open("llama", POLICY)
    live = Live(queue, pool, manual, SPEED, scrape_ms=SCRAPE_MS)
    for n in range(4):
        live.arrive(*jobs(f"p{n}", "priority", 160))
    for tier in LOWER:
        live.arrive(*jobs("ann", tier, 160))
    await live.run(FLOOD_MS)
    return live.pops


def is_lower(pop: Pop) -> bool:
    return pop.lease.tier != "priority"


def share_of(pop: Pop) -> float:
    """What the valve gives at that moment: they all wait from the start."""
    return min(1 / 4, pop.at_ms / (TURN * VALVE_MS)) if pop.at_ms >= VALVE_MS else 0.0


def shares(pops: list[Pop], window: int) -> list[float]:
    """The lower tiers' part of each `window` pops in a row."""
    low = [is_lower(pop) for pop in pops]
    return [sum(low[n : n + window]) / window for n in range(len(pops) - window + 1)]


async def test_a_flood_holds_up_no_tier_for_longer_than_the_valve_says_and_pays_no_more(flood: list[Pop]) -> None:
    pops = Counter(pop.lease.tier for pop in flood)
    assert len(flood) >= 0.97 * FLOOD_MS / 8_000 * SPEED.slots, "the backend is as busy as it can be"
    per_pop_ms = FLOOD_MS / len(flood)
    most_ms = VALVE_MS + len(LOWER) * TURN * per_pop_ms
    for tier in LOWER:
        assert pops[tier], f"{tier} is served"
        times = [0.0, *(pop.at_ms for pop in flood if pop.lease.tier == tier), FLOOD_MS]
        assert max(after - before for before, after in pairwise(times)) <= most_ms, tier
    early = [pop for pop in flood if pop.at_ms <= 1.5 * VALVE_MS]
    assert sum(map(is_lower, early)) <= len(early) / TURN, "while waits are short"
    assert max(shares(flood, 4 * TURN)) <= 1 / 4
    for got, owed in zip(accumulate(map(is_lower, flood)), accumulate(map(share_of, flood)), strict=True):
        assert got <= owed + 1
