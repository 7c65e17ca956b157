"""The production queue in a modelled world: everything is answered, the same seed gives the same run, parts matter."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from statistics import median

import pytest

from dispatcher.backends.timing import Speed
from dispatcher.simulator.fair.direct import Direct
from dispatcher.simulator.ours import OURS
from dispatcher.simulator.production import Production
from dispatcher.simulator.profile import Profile
from dispatcher.simulator.request import Arrival
from dispatcher.simulator.store import private_store
from dispatcher.simulator.world import Run, run
from fairlane.queue.connection import Client

PROFILE = Profile("small", Speed(slots=8, kv_tokens=6_000, step_ms=20.0, block_tokens=16), overhead_ms=2.0)
SMALL_CACHE = Profile("cache", Speed(slots=256, kv_tokens=12_000, step_ms=20.0, block_tokens=16))
FLOOD = [Arrival(n * 1.0, "heavy", "default", 100, 40) for n in range(200)]
LIGHT = [Arrival(500.0 + n * 500, "light", "default", 100, 40) for n in range(20)]


@pytest.fixture(scope="module")
def store() -> Iterator[Client]:
    with private_store() as client:
        yield client


async def through(
    store: Client, arrivals: list[Arrival], name: str = "ours", *, seed: int = 0, backends: int = 1
) -> Run:
    await store.flushall()
    variant = OURS[name]
    return await run(
        arrivals, Production(store, variant.setting, seed), PROFILE, backends=backends, order=variant.order
    )


def outcomes(found: Run) -> list[tuple[float, float, float, str]]:
    return [(one.sent_ms, one.first_ms, one.done_ms, one.backend) for one in found.requests]


def light_ms(found: Run) -> float:
    return median(one.done_ms - one.arrived_ms for one in found.requests if one.tenant == "light")


@pytest.mark.parametrize("name", OURS)
async def test_every_request_is_answered_whole_with_each_part_taken_out(store: Client, name: str) -> None:
    mixed = [
        Arrival(n * 60.0, f"t{n % 3}", ("priority", "default", "flex", "batch")[n % 4], 200, 30) for n in range(80)
    ]
    found = await through(store, mixed, name, backends=2)
    assert all(one.is_done and one.made == one.answer and one.sent_ms >= one.arrived_ms for one in found.requests)
    assert sum(use.answer_tokens for use in found.backends) == sum(one.answer for one in mixed)


async def test_the_same_seed_gives_the_same_run(store: Client) -> None:
    first = await through(store, FLOOD + LIGHT, backends=2, seed=7)
    with private_store() as another:
        assert outcomes(await through(another, FLOOD + LIGHT, backends=2, seed=7)) == outcomes(first)


async def test_a_light_tenant_hardly_notices_a_flood_and_the_backend_is_as_busy_as_without_us(store: Client) -> None:
    directly = await run(FLOOD + LIGHT, Direct(), PROFILE)
    ours = await through(store, FLOOD + LIGHT)
    alone = await run(LIGHT, Direct(), PROFILE)
    assert light_ms(directly) > 4 * light_ms(alone), "else there is no flood"
    assert light_ms(ours) < 2 * light_ms(alone)
    assert ours.end_ms < 1.05 * directly.end_ms


async def test_a_burst_of_long_prompts_does_not_fill_the_cache_for_the_highest_tier(store: Client) -> None:
    """The cache shows a job only when its prompt is read. The engine serves first come, first served."""
    short = [Arrival(n * 5.0, "t", "batch", 16, 60) for n in range(1500)]  # teach how many may run
    some = [Arrival(14_000.0 + n * 400, "t", "batch", 900, 60) for n in range(10)]  # … and these what they fill
    burst = [Arrival(18_200.0, "t", "batch", 900, 60)] * 60
    highest = [Arrival(12_000.0 + n * 200, "u", "priority", 100, 10) for n in range(120)]
    await store.flushall()
    ours = OURS["ours-no-hand-over"]
    arrivals = sorted(short + some + burst + highest, key=lambda one: one.at_ms)
    found = await run(arrivals, Production(store, ours.setting), SMALL_CACHE, order=ours.order)
    waits_ms = sorted(one.first_ms - one.arrived_ms for one in found.requests if one.tier == "priority")
    assert waits_ms[108] < 2_000, "5 s at the 90th percentile if the gate looks at the share in use only"


async def test_with_long_answers_the_highest_tier_does_not_wait_for_work_that_the_engine_has_put_back(
    store: Client,
) -> None:
    """Answers of minutes in a small cache: what was put back may wait as long, and is older than any new job."""
    dice, at_ms, arrivals = Random(3), 0.0, list[Arrival]()
    for _ in range(400):
        at_ms += dice.expovariate(1 / 1200)
        tier = dice.choices(("priority", "default", "flex", "batch"), (10, 15, 15, 60))[0]
        arrivals.append(Arrival(at_ms, "t", tier, 100, max(20, min(4_000, int(dice.lognormvariate(6.2, 1.0))))))
    await store.flushall()
    ours = OURS["ours"]
    found = await run(arrivals, Production(store, ours.setting), SMALL_CACHE, order=ours.order)
    assert sum(use.preemptions for use in found.backends) > 50, "else nothing was put back"
    waits_ms = [one.first_ms - one.arrived_ms for one in found.requests if one.tier == "priority"]
    assert max(waits_ms) < 2_000, "4 s with the gate or the lead as they were, 17 s with both"


async def test_without_turns_the_light_tenant_waits_behind_the_flood(store: Client) -> None:
    assert light_ms(await through(store, FLOOD + LIGHT, "ours-no-turns")) > 2 * light_ms(
        await through(store, FLOOD + LIGHT)
    )


async def test_without_the_gate_all_wait_in_the_backend(store: Client) -> None:
    found = await through(store, FLOOD, "ours-no-gate")
    assert all(one.sent_ms - one.arrived_ms < 1 for one in found.requests)
    assert max(one.first_ms - one.sent_ms for one in found.requests) > 5_000


async def test_a_run_may_end_before_everything_is_answered(store: Client) -> None:
    await store.flushall()
    found = await run(FLOOD, Production(store), PROFILE, order=OURS["ours"].order, until_ms=3_000)
    assert found.end_ms <= 3_000
    assert 0 < sum(one.is_done for one in found.requests) < len(FLOOD)
