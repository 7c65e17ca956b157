"""Clusters as published: where each way sends a request, and that a moved request loses nothing and gains nothing."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import astuple

import pytest

from dispatcher.backends.sequences import ByPriority
from dispatcher.backends.timing import Speed
from dispatcher.simulator.backend import Backend
from dispatcher.simulator.clock import Clock
from dispatcher.simulator.clusters import CLUSTERS
from dispatcher.simulator.clusters.freeness import freeness
from dispatcher.simulator.clusters.freest import PAIR_EVERY_MS, Freest
from dispatcher.simulator.clusters.moves import Link
from dispatcher.simulator.clusters.priorities import Priorities, many_tiers, two_priorities
from dispatcher.simulator.profile import Profile
from dispatcher.simulator.request import Arrival, Request
from dispatcher.simulator.world import Run, Scheduler, World, run
from fairlane.model import DEFAULT_TIERS

ROOMY = Profile("roomy", Speed(slots=64, kv_tokens=10_000, kv_token_ms=0.01, block_tokens=16))
TIGHT = Profile("tight", Speed(slots=64, kv_tokens=1_000, kv_token_ms=0.01, block_tokens=16))
SLOW = Link(tokens_per_ms=10.0, downtime_ms=25.0)


def went(way: str, arrivals: Sequence[Arrival], backends: int = 3) -> list[str]:
    """To which backend each request was sent."""
    return [request.backend for request in ran(way, arrivals, backends=backends).requests]


def ran(way: str, arrivals: Sequence[Arrival], profile: Profile = ROOMY, backends: int = 3, tiers: int = 4) -> Run:
    names = DEFAULT_TIERS if tiers == 4 else tuple(f"tier-{n}" for n in range(tiers))
    one = CLUSTERS[way]
    return asyncio.run(run(arrivals, one.scheduler(), profile, backends=backends, order=one.order, tiers=names))


def crowd(seed: int, tiers: Sequence[str] = DEFAULT_TIERS, n: int = 150) -> list[Arrival]:
    """More at times than TIGHT backends hold."""
    dice = random.Random(f"{seed} crowd")
    at = sorted(dice.uniform(0, 6_000) for _ in range(n))
    return [Arrival(ms, "t", dice.choice(tiers), dice.randint(1, 300), dice.randint(1, 120)) for ms in at]


def put(requests: Sequence[tuple[int, int]], profile: Profile = ROOMY) -> Backend:
    """A backend to which requests of (prompt, priority) have come, in the middle of its first step."""
    clock = Clock()
    backend = Backend("b1", clock, profile, ByPriority())
    for number, (prompt, priority) in enumerate(requests):
        request = Request(prompt, 50, priority=priority, number=number, tenant="t", tier="default")
        backend.send(request, lambda _: None)
    clock.run(0.1)
    return backend


class Skewed(Freest):
    """All that comes goes to the first backend: only migration can help."""

    async def act(self) -> None:
        for request in self._came:
            self._world.send(request, self._world.backends[0])
        self._came.clear()


def skewed(below: float, link: Link = SLOW) -> tuple[Run, Skewed]:
    arrivals = [Arrival(40.0 * n, "t", "default", 50, 100) for n in range(30)]
    scheduler = Skewed(lambda _: Priorities({"default": 0}, (0.0,), below), link)
    return asyncio.run(run(arrivals, scheduler, TIGHT, backends=2, tiers=("default",))), scheduler


# --- dispatch ---------------------------------------------------------------------------------------------------------


def test_round_robin_takes_turns_whatever_the_load() -> None:
    assert went("round-robin", [Arrival(n, "t", "flex", 900 if n == 0 else 1, 50) for n in range(5)]) == [
        "b1", "b2", "b3", "b1", "b2",
    ]  # fmt: skip


def test_least_loaded_counts_requests_not_tokens() -> None:
    """The third finds a long request on the second backend and none on the first, the fourth one on each."""
    shapes = [(0, 5, 1), (1, 5000, 50), (800, 5, 50), (801, 5, 50)]
    arrivals = [Arrival(ms, "t", "flex", prompt, answer) for ms, prompt, answer in shapes]
    assert went("least-loaded", arrivals, backends=2) == ["b1", "b2", "b1", "b1"]


def test_infaas_counts_the_tokens_of_those_that_run_and_wait() -> None:
    arrivals = [Arrival(0, "t", "flex", 900, 50), *[Arrival(n, "t", "flex", 100, 50) for n in range(1, 4)]]
    assert went("infaas", arrivals, backends=2) == ["b1", "b2", "b2", "b2"]


@pytest.mark.parametrize("way", ["llumnix", "multi-tier"])
def test_a_burst_within_one_step_spreads_over_the_backends(way: str) -> None:
    arrivals = [Arrival(0, "t", "flex", 100, 50) for _ in range(6)]
    assert sorted(went(way, arrivals)) == ["b1", "b1", "b2", "b2", "b3", "b3"]


@pytest.mark.parametrize("way", ["llumnix", "multi-tier"])
def test_of_those_that_come_at_once_the_highest_tier_chooses_first(way: str) -> None:
    """The second backend is free; the one that came last gets it."""
    shapes = [(0, "batch", 500), (1, "batch", 2000), (1, "priority", 100)]
    arrivals = [Arrival(ms, "t", tier, prompt, 50) for ms, tier, prompt in shapes]
    assert went(way, arrivals, backends=2) == ["b1", "b1", "b2"]


@pytest.mark.parametrize("way", ["llumnix", "multi-tier"])
def test_headroom_sends_others_elsewhere(way: str) -> None:
    """The backend with the high request has less in its cache, and still counts as the fuller one."""
    arrivals = [
        Arrival(0, "t", "priority", 100, 90),
        Arrival(1, "t", "batch", 1200, 90),
        Arrival(150, "t", "batch", 9, 9),
    ]
    assert went(way, arrivals, backends=2) == ["b1", "b2", "b2"]


# --- freeness ---------------------------------------------------------------------------------------------------------


def test_freeness_is_the_free_cache_for_each_request_of_the_batch() -> None:
    assert freeness(put([]), (0.0,)) == 10_000
    assert freeness(put([(100, 0), (300, 0)]), (0.0,)) == (10_000 - 400) / 2


def test_the_head_of_the_line_counts_whole_and_those_behind_it_not_at_all() -> None:
    assert freeness(put([(700, 0), (500, 0)], TIGHT), (0.0,)) == (1000 - 1200) / 1
    assert freeness(put([(700, 0), (500, 0), (900, 0), (5, 0)], TIGHT), (0.0,)) == (1000 - 1200) / 1


def test_a_tier_has_its_headroom_once_however_many_of_it_run() -> None:
    assert freeness(put([(100, 0)]), (0.2, 0.1)) == 10_000 - 100 - 2000
    assert freeness(put([(100, 0), (100, 0)]), (0.2, 0.1)) == (10_000 - 200 - 2000) / 2
    assert freeness(put([(100, 0), (100, 1)]), (0.2, 0.1)) == pytest.approx((10_000 - 200 - 3000) / 2)


def test_who_is_on_the_move_to_a_backend_is_counted_there() -> None:
    moving = Request(300, 50, number=9, tenant="t", tier="default")
    assert freeness(put([(100, 0)]), (0.0,), [moving]) == (10_000 - 400) / 2


@pytest.mark.parametrize("tiers", range(1, 11))
def test_headroom_falls_exponentially_from_tier_to_tier(tiers: int) -> None:
    made = many_tiers([f"tier-{n}" for n in range(tiers)])
    assert list(made.of.values()) == list(range(tiers))
    assert made.headroom[0] == 0.20
    if tiers > 1:
        assert made.headroom[-1] == pytest.approx(0.20 * math.exp(-2.5))
        ratios = {round(b / a, 9) for a, b in zip(made.headroom, made.headroom[1:], strict=False)}
        assert len(ratios) == 1


def test_two_priorities_set_the_highest_tier_apart() -> None:
    made = two_priorities(DEFAULT_TIERS)
    assert [made.of[tier] for tier in DEFAULT_TIERS] == [0, 1, 1, 1]
    assert made.headroom[1] == 0


# --- migration --------------------------------------------------------------------------------------------------------


def test_migration_relieves_a_backend_that_gets_everything() -> None:
    alone, _ = skewed(-math.inf)
    helped, scheduler = skewed(48.0)
    assert scheduler.moves.done > 0
    assert helped.end_ms < 0.8 * alone.end_ms
    assert max(one.done_ms - one.arrived_ms for one in helped.requests) < max(
        one.done_ms - one.arrived_ms for one in alone.requests
    )


def test_a_moved_request_computes_nothing_twice() -> None:
    """Unless it is preempted, as some are here before anybody can help."""
    result, scheduler = skewed(48.0)
    assert scheduler.moves.done > 0
    assert sum(one.answer_tokens for one in result.backends) == 30 * 100
    read = sum(one.prompt_tokens for one in result.backends)
    assert read == 30 * 50 + sum(one.wasted_tokens for one in result.backends)


def test_nothing_moves_while_all_are_free_enough() -> None:
    scheduler = CLUSTERS["multi-tier"].scheduler()
    asyncio.run(run(crowd(1), scheduler, ROOMY, backends=3, order=ByPriority))
    assert isinstance(scheduler, Freest)
    assert scheduler.moves.done == 0


def test_of_the_lowest_tier_the_smallest_moves_first() -> None:
    shapes = [("high", 20), ("low", 300), ("low", 100), ("low", 200), ("high", 250)]
    arrivals = [Arrival(0, "t", tier, prompt, 100) for tier, prompt in shapes]
    scheduler = Skewed(lambda _: Priorities({"high": 0, "low": 1}, (0.0, 0.0), 48.0), Link(math.inf, 0.0))
    result = asyncio.run(
        run(arrivals, scheduler, TIGHT, backends=2, order=ByPriority, tiers=("high", "low"), until_ms=PAIR_EVERY_MS + 1)
    )
    assert [request.number for request in result.requests if request.backend == "b2"] == [2]


def test_a_moved_request_stops_for_the_downtime_and_then_goes_on() -> None:
    fast, slow = Link(math.inf, 0.0), Link(math.inf, 400.0)
    ends = {link: max(one.done_ms for one in skewed(48.0, link)[0].requests) for link in (fast, slow)}
    assert ends[slow] > ends[fast]


def test_a_request_that_is_preempted_while_it_is_copied_stays() -> None:
    arrivals = [Arrival(0, "t", "default", 600, 300), Arrival(1, "t", "default", 300, 300)]
    scheduler = Skewed(lambda _: Priorities({"default": 0}, (0.0,), 48.0), Link(tokens_per_ms=0.05, downtime_ms=25.0))
    result = asyncio.run(run(arrivals, scheduler, TIGHT, backends=2, tiers=("default",)))
    assert [(one.backend, one.preempted) for one in result.requests] == [("b1", 0), ("b1", 1)]
    assert scheduler.moves.done == 0


# --- what holds for all -----------------------------------------------------------------------------------------------


class Counted:
    """Passes everything on to another scheduler, and looks at what happens."""

    def __init__(self, inner: Scheduler) -> None:
        self.inner, self.ends, self.made = inner, list[int](), dict[int, int]()

    def begin(self, world: World) -> None:
        self.world = world
        self.inner.begin(world)

    def arrive(self, request: Request) -> None:
        self.made[request.number] = 0
        self.inner.arrive(request)

    def ended(self, request: Request) -> None:
        self.ends.append(request.number)
        self.inner.ended(request)

    async def act(self) -> None:
        await self.inner.act()
        for backend in self.world.backends:
            for request, made in backend.made():
                assert self.made[request.number] <= made <= request.answer
                assert request.backend == backend.name
                self.made[request.number] = made


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("way", list(CLUSTERS))
def test_every_request_is_answered_once_and_whole(way: str, seed: int) -> None:
    arrivals, one = crowd(seed), CLUSTERS[way]
    counted = Counted(one.scheduler())
    result = asyncio.run(run(arrivals, counted, TIGHT, backends=3, order=one.order))
    assert sorted(counted.ends) == list(range(len(arrivals)))
    for request in result.requests:
        assert request.made == request.answer
        assert request.arrived_ms <= request.first_ms <= request.done_ms
    assert sum(use.answer_tokens for use in result.backends) == sum(one.answer for one in arrivals)
    read = sum(use.prompt_tokens for use in result.backends) - sum(one.prompt for one in arrivals)
    assert 0 <= read <= sum(use.wasted_tokens for use in result.backends)
    assert all(use.wasted_tokens == 0 or use.preemptions > 0 for use in result.backends)


def test_the_crowd_makes_requests_move() -> None:
    """Else the test above would say little of migration."""
    for make in (two_priorities, many_tiers):
        scheduler = Freest(make)
        asyncio.run(run(crowd(0), scheduler, TIGHT, backends=3, order=ByPriority))
        assert scheduler.moves.done >= 5, make.__name__


@pytest.mark.parametrize("way", list(CLUSTERS))
def test_the_same_workload_has_the_same_result_to_the_bit(way: str) -> None:
    fate: Callable[[Run], object] = lambda result: [astuple(one) for one in result.requests]  # noqa: E731
    assert fate(ran(way, crowd(5), TIGHT)) == fate(ran(way, crowd(5), TIGHT))


@pytest.mark.parametrize("tiers", range(1, 11))
@pytest.mark.parametrize("way", ["llumnix", "multi-tier"])
def test_any_number_of_tiers_works(way: str, tiers: int) -> None:
    names = DEFAULT_TIERS if tiers == 4 else tuple(f"tier-{n}" for n in range(tiers))
    result = ran(way, crowd(7, names, 60), TIGHT, tiers=tiers)
    assert all(request.is_done for request in result.requests)


@pytest.mark.parametrize("way", list(CLUSTERS))
def test_one_backend_is_a_cluster_too(way: str) -> None:
    assert all(request.is_done for request in ran(way, crowd(2, n=40), TIGHT, backends=1).requests)


def test_a_way_makes_all_anew_for_each_run() -> None:
    for way in CLUSTERS.values():
        assert way.scheduler() is not way.scheduler()
        assert way.order() is not way.order()


def test_within_an_engine_the_highest_tier_is_served_first() -> None:
    tiers = ["flex", "batch", "batch", "default", "priority"]
    arrivals = [Arrival(n, "t", tier, 900, 40) for n, tier in enumerate(tiers)]
    served = sorted(ran("multi-tier", arrivals, TIGHT, backends=1).requests, key=lambda one: one.first_ms)
    assert [one.number for one in served] == [0, 4, 3, 1, 2]
