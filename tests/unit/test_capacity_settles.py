"""The learner of capacity settles within a tenth of what a backend really takes, whatever that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.policy import capacity, gate
from dispatcher.policy.capacity import Capacity, Scrape
from dispatcher.simulator.clock import Clock
from tests.virtual.engines import Choice, Engines, in_turn, least_loaded
from tests.virtual.fleet import Fleet
from tests.virtual.floods import RAMP_MS, direct, long_jobs, speed_of

THETA = gate.DEFAULT.of(0)
SCRAPE_MS = 200
SCRAPES = 60
slots = st.integers(1, 1024)
shares = st.floats(0, 1)


@dataclass
class Flooded:
    """A backend that always gets as much as it may have. It runs `slots` at once, `others` of which are not ours.

    `done` is the part of our jobs that ends between two scrapes; a page may show up to `lag` of those that run as gone.
    """

    slots: int
    others: int = 0
    done: float = 0.1
    lag: list[int] = field(default_factory=lambda: [0])
    known: Capacity = field(default_factory=Capacity)
    scrapes: int = 0

    def scrape(self, times: int = 1) -> None:
        for _ in range(times):
            self.scrapes += 1
            live = self.known.cap + THETA
            running = min(self.slots, live + self.others)
            waiting = live + self.others - running
            page = Scrape(
                now_ms=self.scrapes * SCRAPE_MS,
                running=running - min(self.lag[self.scrapes % len(self.lag)], running // 16),
                waiting=waiting,
                live=live,
                done=round(self.done * live),
                denied=1,
                progress=float(self.scrapes),
            )
            self.known = capacity.learn(self.known, page, THETA)

    def is_settled(self, least: int = 1) -> bool:
        """Within a tenth, or `least`, of what is ours; during the scrapes to come, too. No slot is ever free."""
        ours = self.slots - self.others
        for _ in range(SCRAPES):
            self.scrape()
            if abs(self.known.cap - ours) > max(least, ours / 10) or self.known.cap + THETA < ours:
                return False
        return True


@settings(max_examples=60)
@given(slots, shares)
def test_it_settles_at_the_slots(n: int, done: float) -> None:
    backend = Flooded(n, done=done)
    backend.scrape(SCRAPES)
    assert backend.is_settled()


@settings(max_examples=60)
@given(slots, shares, st.lists(st.integers(0, 64), min_size=1, max_size=7))
def test_it_settles_though_the_page_shows_less_than_runs(n: int, done: float, lag: list[int]) -> None:
    backend = Flooded(n, done=done, lag=lag)
    backend.scrape(SCRAPES)
    assert backend.is_settled()


@settings(max_examples=60)
@given(slots, shares, shares)
def test_it_settles_at_what_others_leave(n: int, used: float, done: float) -> None:
    """Within θ - 1: with K so much lower something waits already, and whose that is cannot be seen."""
    backend = Flooded(n, others=round(used * (n - 1)), done=done)
    backend.scrape(SCRAPES)
    assert backend.is_settled(THETA - 1), "they were there before"
    backend.others = 0
    backend.scrape(2 * SCRAPES)
    assert backend.is_settled(), "they went"
    backend.others = round(used * (n - 1))
    backend.scrape(SCRAPES)
    assert backend.is_settled(THETA - 1), "they came"


@settings(max_examples=60)
@given(slots, st.floats(0.1, 1), shares)
def test_it_follows_a_cache_that_takes_fewer_and_then_as_many_again(n: int, part: float, done: float) -> None:
    """Long prompts fill the KV cache before the slots are used: the batch that runs is smaller."""
    backend = Flooded(n, done=done)
    backend.scrape(SCRAPES)
    backend.slots = max(1, round(part * n))
    backend.scrape(2)
    assert backend.known.cap <= backend.slots, "at once"
    assert backend.is_settled()
    backend.slots = n
    backend.scrape(2 * SCRAPES)
    assert backend.is_settled()


@pytest.mark.parametrize(("choice", "share", "within"), [(lambda: least_loaded, 0.97, 0.1), (in_turn, 0.94, 0.15)])
@pytest.mark.parametrize(("engines", "each"), [(2, 8), (4, 8), (2, 32)])
def test_several_engines_on_one_page_are_one_backend_of_all_their_slots(
    engines: int, each: int, choice: Callable[[], Choice], share: float, within: float
) -> None:
    """In virtual time. Those that take requests in turn, whoever is free, waste a few slots themselves."""
    clock, until_ms = Clock(), RAMP_MS + 10_000
    fleet = Fleet(clock, Engines(clock, speed_of(each), engines, choice()), long_jobs, seed=0)
    clock.run(RAMP_MS)
    before = fleet.server.work()
    clock.run(until_ms)
    alone = direct(speed_of(each), long_jobs, 0, RAMP_MS, until_ms)
    assert (fleet.server.work() - before) / engines >= share * alone
    learned = [known.k for known in fleet.observer.learned if known.fresh_at_ms >= RAMP_MS]
    assert all(abs(k - engines * each) <= within * engines * each for k in learned)
