"""The learner of a backend's capacity in virtual time: production policy against the timing model.

Each run is paired with a direct flood: the same jobs, all sent to the engine at once.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from dispatcher.backends.timing import Engine, Sequence, Speed
from dispatcher.policy import capacity, gate, headroom
from dispatcher.policy.capacity import Capacity, Scrape
from dispatcher.policy.gate import Load

SCRAPE_MS, SOON_MS = 200, 100
SEEDS = range(int(os.environ.get("FAIRLANE_TEST_SEEDS", "3")))
Jobs = Callable[[random.Random], Sequence]


def long_jobs(dice: random.Random) -> Sequence:
    """About 2 s each."""
    return Sequence(prompt=dice.randint(50, 400), answer=dice.randint(120, 280))


def short_prompts(dice: random.Random) -> Sequence:
    return Sequence(prompt=dice.randint(5, 30), answer=dice.randint(120, 280))


@dataclass
class Run:
    """What came of a run: jobs finished after the ramp, what waited at each scrape after it, when it was first full."""

    finished: int = 0
    waiting: list[int] = field(default_factory=lambda: list[int]())
    full_at_ms: float | None = None
    over: int = 0  # sends beyond the limit: never
    ramp_waiting: int = 0


def flood(speed: Speed, jobs: Jobs, seed: int, end_ms: float, ramp_ms: float) -> Run:
    """The same jobs sent directly: there is always enough waiting."""
    dice, engine, run, now = random.Random(seed), Engine(speed), Run(), 0.0
    while now < end_ms:
        while len(engine.waiting) < speed.slots:
            engine.add(jobs(dice))
        step = engine.step()
        now += step.ms
        run.finished += len(step.finished) if now > ramp_ms else 0
    return run


def steered(speed: Speed, jobs: Jobs, seed: int, end_ms: float, ramp_ms: float, tier: int = 0) -> Run:
    """An endless backlog of one tier, forwarded as the gate lets it."""
    dice, engine, run, now = random.Random(seed), Engine(speed), Run(), 0.0
    known, live, done, denied, next_scrape = Capacity(), 0, 0, 0, 0.0
    active = [False] * 4
    active[tier] = True
    limit = 1
    while now < end_ms:
        if now >= next_scrape:
            waiting, running = len(engine.waiting), len(engine.running)
            page = Scrape(
                now_ms=int(now), running=running, waiting=waiting, live=live, done=done, denied=denied,
                progress=engine.prompt_tokens + engine.answer_tokens,
            )  # fmt: skip
            early = capacity.soon(known, page)
            known = capacity.learn(known, page, gate.theta(0))
            done = denied = 0
            found = gate.gates(known, Load(waiting, engine.kv, None), headroom.rooms(active), slow=False)
            limit = found[tier].limit
            next_scrape = now + (SOON_MS if early else SCRAPE_MS)
            if now > ramp_ms:
                run.waiting.append(waiting)
            else:
                run.ramp_waiting = max(run.ramp_waiting, waiting)
            if run.full_at_ms is None and running >= speed.slots:
                run.full_at_ms = now
        while live < limit:
            engine.add(jobs(dice))
            live += 1
        denied += 1  # the backlog never ends: there is always a pop that is refused
        if engine.idle:
            now = next_scrape
            continue
        step = engine.step()
        now += step.ms
        live -= len(step.finished)
        done += len(step.finished)
        run.finished += len(step.finished) if now > ramp_ms else 0
    return run


def p999(values: list[int]) -> int:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.999))]


@pytest.mark.parametrize("slots", [8, 64])
def test_long_jobs_flow_as_in_a_direct_flood_and_hardly_any_wait(slots: int) -> None:
    speed = Speed(slots=slots, sequence_ms=0.02)
    ratios: list[float] = []
    waiting: list[int] = []
    for seed in SEEDS:
        direct = flood(speed, long_jobs, seed, 60_000, 10_000)
        ours = steered(speed, long_jobs, seed, 60_000, 10_000)
        ratios.append(ours.finished / direct.finished)
        waiting += ours.waiting
    assert sum(ratios) / len(ratios) >= 0.99
    assert p999(waiting) <= 3


def test_256_slots_are_full_within_two_seconds() -> None:
    for seed in SEEDS:
        run = steered(Speed(slots=256, sequence_ms=0.02), short_prompts, seed, 4_000, 4_000)
        assert run.full_at_ms is not None
        assert run.full_at_ms <= 2_000


def test_a_backend_that_is_short_of_cache_is_filled_as_far_as_it_goes() -> None:
    speed = Speed(slots=256, kv_tokens=16_000, sequence_ms=0.02)
    ratios = [
        steered(speed, long_jobs, seed, 60_000, 10_000).finished
        / flood(speed, long_jobs, seed, 60_000, 10_000).finished
        for seed in SEEDS
    ]
    assert sum(ratios) / len(ratios) >= 0.985


def test_with_only_the_lowest_tier_at_work_next_to_nothing_is_lost() -> None:
    speed = Speed(slots=64, sequence_ms=0.02)
    ratios = [
        steered(speed, long_jobs, seed, 60_000, 10_000, tier=3).finished
        / flood(speed, long_jobs, seed, 60_000, 10_000).finished
        for seed in SEEDS
    ]
    assert sum(ratios) / len(ratios) >= 0.97
