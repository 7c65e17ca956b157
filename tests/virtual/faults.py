"""What can happen to a backend at work, in virtual time, and how the fleet takes it: the worst or mean of all seeds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from statistics import mean
from typing import Final

from dispatcher.backends.timing import Speed
from tests.virtual.fleet import Fleet
from tests.virtual.floods import SEEDS, direct, long_jobs, new_fleet, shown_waiting, speed_of
from tests.virtual.server import Server

FAULT_MS: Final = 12_000  # when it happens: long after the ramp
SETTLED: Final = 3  # jobs that may wait


@dataclass(frozen=True)
class Drop:
    """After the backend lost half of what it could do.

    `net_sends`: the most by which the leases of one scrape interval exceeded those of the one before, from the second
    scrape on until hardly any waited. `settled_ms`: how long that took, at the most. `waiting` is from then on (µs).
    """

    net_sends: int
    settled_ms: float
    waiting: Counter[int]


def half_of_the_slots(speed: Speed) -> Speed:
    """Those who run go on; nobody follows them until half have gone."""
    return replace(speed, slots=speed.slots // 2)


def half_of_the_cache(speed: Speed) -> Speed:
    """Half of those who run are preempted at once."""
    return replace(speed, kv_tokens=speed.kv_tokens // 2)


@cache
def drop(speed: Speed, halved: Callable[[Speed], Speed], *, dispatchers: int = 1, seeds: int = SEEDS) -> Drop:
    net_sends, settled_ms, waiting = 0, 0.0, Counter[int]()
    for seed in range(seeds):
        fleet = new_fleet(speed, long_jobs, seed, dispatchers=dispatchers)
        fleet.clock.run(FAULT_MS)
        fleet.server.resize(halved(speed))
        fleet.clock.run(2 * FAULT_MS)
        second, settled = _from_second_scrape_until_settled(fleet)
        most = _most_leases(fleet, second, settled)
        net_sends = max([net_sends, *(after - before for before, after in pairwise(most))])
        settled_ms = max(settled_ms, settled - FAULT_MS)
        waiting += shown_waiting(fleet.server, settled, 2 * FAULT_MS)
    return Drop(net_sends, settled_ms, waiting)


def _from_second_scrape_until_settled(fleet: Fleet) -> tuple[float, float]:
    """With few slots it may be that no scrape shows many waiting: then it is settled at once."""
    scrapes = [scrape for scrape in fleet.observer.scrapes if scrape.now_ms > FAULT_MS]
    over = next((n for n, scrape in enumerate(scrapes) if scrape.waiting > SETTLED), 1)
    settled = next(scrape for scrape in scrapes[over:] if scrape.waiting <= SETTLED)
    return scrapes[1].now_ms, settled.now_ms


def _most_leases(fleet: Fleet, from_ms: float, until_ms: float) -> list[int]:
    """Per interval between scrapes."""
    scrapes = [scrape for scrape in fleet.observer.scrapes if from_ms <= scrape.now_ms <= until_ms]
    return [
        max([one.live, *(live for at, live, _ in fleet.store.pops if one.now_ms < at <= other.now_ms)])
        for one, other in pairwise(scrapes)
    ]


@dataclass(frozen=True)
class Restart:
    """`failed_beyond`: requests that failed beyond those in flight at that moment, at the most over the seeds.

    `full_ms`: how long after its return all slots but one in fifty were full again, at the most. `waiting` is the most
    that waited afterwards.
    """

    failed_beyond: int
    full_ms: float
    waiting: int


def restart(slots: int, down_ms: float, *, dispatchers: int = 1, seeds: int = SEEDS) -> Restart:
    beyond, full_ms, waiting = 0, 0.0, 0
    for seed in range(seeds):
        fleet = new_fleet(speed_of(slots), long_jobs, seed, dispatchers=dispatchers)
        _run_to_the_worst_moment(fleet, seed)
        in_flight, crash_ms = fleet.store.live, fleet.clock.now
        fleet.server.restart(down_ms)
        fleet.clock.run(2 * FAULT_MS)
        beyond = max(beyond, fleet.failed - in_flight)
        up_ms = crash_ms + down_ms
        after = [(ended, page) for ended, page in fleet.server.pages if ended > up_ms]
        full_ms = max(full_ms, next(ended for ended, page in after if page.running >= slots - 1 - slots // 50) - up_ms)
        waiting = max([waiting, *(page.waiting for _, page in after)])
    return Restart(beyond, full_ms, waiting)


def _run_to_the_worst_moment(fleet: Fleet, seed: int) -> None:
    """The observer holds a page of before the crash, and will open the gate that a refused connection has shut."""
    fleet.clock.run(FAULT_MS)
    while not fleet.observer.holds_page:
        fleet.clock.run(fleet.clock.now + 0.1)
    fleet.clock.run(fleet.clock.now + seed % 8 * 0.5)


def sends_while_it_hangs(slots: int, *, dispatchers: int = 1, seeds: int = SEEDS) -> int:
    """Jobs sent from the second scrape interval of a hang on: no page changes, nothing finishes."""
    sent = 0
    for seed in range(seeds):
        fleet = new_fleet(speed_of(slots), long_jobs, seed, dispatchers=dispatchers)
        fleet.clock.run(FAULT_MS)
        fleet.server.hang(FAULT_MS)
        fleet.clock.run(2 * FAULT_MS)
        sent += sum(at > FAULT_MS + 400 for at, _, _ in fleet.store.pops)
    return sent


@dataclass(frozen=True)
class Blind:
    """`share` of a direct flood, and what waited (µs), while the observer sees nothing or the page stands still."""

    share: float
    waiting: Counter[int]


def observer_dies(
    slots: int, *, every_ms: int = 5_000, for_ms: int = 2_000, times: int = 4, seeds: int = SEEDS
) -> Blind:
    """Again and again; another takes over `for_ms` later with what the first had learned."""
    shares, waiting, end_ms = list[float](), Counter[int](), FAULT_MS + times * every_ms
    for seed in range(seeds):
        fleet = new_fleet(speed_of(slots), long_jobs, seed)
        fleet.clock.run(FAULT_MS)
        before = fleet.server.work()
        for died_ms in range(FAULT_MS, end_ms, every_ms):
            fleet.observer.dead = True
            fleet.clock.run(died_ms + for_ms)
            fleet.observer.dead = False
            fleet.clock.run(died_ms + every_ms)
        shares.append((fleet.server.work() - before) / direct(speed_of(slots), long_jobs, seed, FAULT_MS, end_ms))
        waiting += shown_waiting(fleet.server, FAULT_MS, end_ms)
    return Blind(mean(shares), waiting)


def frozen_page(slots: int, *, seeds: int = SEEDS) -> int:
    """The most leases once the page was stale, beyond what could be held just before it froze."""
    beyond = -slots
    for seed in range(seeds):
        fleet = new_fleet(speed_of(slots), long_jobs, seed)
        fleet.clock.run(FAULT_MS)
        fleet.observer.frozen = fleet.server.page()
        limit = fleet.store.limit
        fleet.clock.run(2 * FAULT_MS)
        late = [live for at, live, _ in fleet.store.pops if at > FAULT_MS + 1_000]
        beyond = max([beyond, *(live - limit for live in late)])
    return beyond


@dataclass(frozen=True)
class Shared:
    """While others use the backend too: what both got done, as a share of a direct flood; what waited (µs)."""

    share: float
    waiting: Counter[int]


class Neighbour:
    """Somebody who always has `n` requests there, past our gate."""

    def __init__(self, server: Server, n: int, seed: int) -> None:
        self._server, self._dice = server, random.Random(f"neighbour {seed}")
        for _ in range(n):
            self._send()

    def _send(self, _: bool = True) -> None:
        self._server.send(long_jobs(self._dice), self._send)


def neighbours(slots: int, n: int, *, dispatchers: int = 1, seeds: int = SEEDS) -> Shared:
    """They come all at once; measured from 5 s later on."""
    shares, waiting = list[float](), Counter[int]()
    from_ms, until_ms = FAULT_MS + 5_000, FAULT_MS + 20_000
    for seed in range(seeds):
        fleet = new_fleet(speed_of(slots), long_jobs, seed, dispatchers=dispatchers)
        fleet.clock.run(FAULT_MS)
        Neighbour(fleet.server, n, seed)
        fleet.clock.run(from_ms)
        before = fleet.server.work()
        fleet.clock.run(until_ms)
        shares.append((fleet.server.work() - before) / direct(speed_of(slots), long_jobs, seed, from_ms, until_ms))
        waiting += shown_waiting(fleet.server, from_ms, until_ms)
    return Shared(mean(shares), waiting)
