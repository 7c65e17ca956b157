"""Whatever a backend is like, every way answers every request, and what it says of them adds up."""

from __future__ import annotations

import random

import pytest

from dispatcher.backends.timing import Speed
from dispatcher.simulator.catalogue import WITHOUT_STORE
from dispatcher.simulator.measures import measure
from dispatcher.simulator.profile import Profile
from dispatcher.simulator.request import Arrival
from dispatcher.simulator.stage import opened
from fairlane.model import DEFAULT_TIERS

COUNT = 20
SPEEDS = {
    "one slot": Speed(slots=1),
    "a prompt is larger than the cache": Speed(kv_tokens=50),
    "a block is larger than the cache": Speed(kv_tokens=100, block_tokens=1000),
    "a cache of one token": Speed(kv_tokens=1),
    "a step reads one token": Speed(step_tokens=1),
    "a cache that overflows": Speed(kv_tokens=400, block_tokens=16, step_tokens=64),
    "steps of a microsecond": Speed(step_ms=0.001, sequence_ms=0.0, prompt_token_ms=0.0),
    "a cache that is slow": Speed(kv_token_ms=1.0),
}


def arrivals() -> list[Arrival]:
    """Some of them at once."""
    dice = random.Random(7)
    return [
        Arrival(
            dice.choice([0.0, dice.uniform(0, 5000)]),
            f"tenant-{dice.randrange(3)}",
            dice.choice(DEFAULT_TIERS),
            dice.randint(1, 90),
            dice.randint(1, 30),
        )
        for _ in range(COUNT)
    ]


@pytest.mark.parametrize("speed", SPEEDS.values(), ids=SPEEDS)
@pytest.mark.parametrize("backends", [1, 3])
async def test_every_way_answers_everything_and_its_figures_add_up(speed: Speed, backends: int) -> None:
    given = arrivals()
    prompts, answers = sum(one.prompt for one in given), sum(one.answer for one in given)
    names = [*WITHOUT_STORE, "ours"]
    with opened(names) as stage:
        for name in names:
            run = await stage.run(name, given, Profile("odd", speed, 2.0), tiers=DEFAULT_TIERS, backends=backends)
            found = measure(run)
            assert (found.all.n, found.all.done) == (COUNT, COUNT), name
            for groups in (found.tiers, found.tenants):
                assert sum(group.done for group in groups.values()) == COUNT, name
            assert 0 < found.utilisation <= 1 + 1e-9, name
            assert sum(one.answer_tokens for one in run.backends) == answers, name
            assert 0 <= sum(one.prompt_tokens for one in run.backends) - prompts <= found.wasted_tokens + answers, name
            for one in run.requests:
                assert one.arrived_ms <= one.sent_ms < one.done_ms, name
                assert one.arrived_ms < one.first_ms <= one.done_ms, name
            for group in (found.all, *found.tiers.values(), *found.tenants.values()):
                assert group.ttft.p50 <= group.ttft.p95 <= group.ttft.p99 <= group.e2e.p99, name
                assert group.e2e.p50 <= group.e2e.p95 <= group.e2e.p99, name
