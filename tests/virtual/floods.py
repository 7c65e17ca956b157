"""Floods of one backend in virtual time: through a fleet with its gate, paired with the same jobs sent directly."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import mean
from typing import Final

from dispatcher.backends.sequences import Sequence
from dispatcher.backends.timing import Speed
from dispatcher.simulator.clock import Clock
from tests.virtual.fleet import Fleet
from tests.virtual.server import Server

SEEDS: Final = int(os.environ.get("FAIRLANE_TEST_SEEDS", "2"))
RAMP_MS: Final = 10_000
END_MS: Final = 40_000
Jobs = Callable[[random.Random], Sequence]


def speed_of(slots: int, *, kv_tokens: int = 1_000_000) -> Speed:
    return Speed(slots=slots, kv_tokens=kv_tokens, sequence_ms=0.02)


def long_jobs(dice: random.Random) -> Sequence:
    """About 2 s each."""
    return Sequence(prompt=dice.randint(50, 400), answer=dice.randint(120, 280))


def short_prompts(dice: random.Random) -> Sequence:
    return Sequence(prompt=dice.randint(5, 30), answer=dice.randint(120, 280))


def tiny_jobs(dice: random.Random) -> Sequence:
    """Done in one to four steps."""
    return Sequence(prompt=dice.randint(5, 30), answer=dice.randint(1, 4))


@dataclass(frozen=True)
class Paired:
    """Some runs, each beside a direct flood of the same seed, after the ramp.

    `share` is the mean of their throughputs in those of the direct floods. `waiting` says for how long (µs) how many
    jobs waited in the backend, by its own gauge. `right` is the part of the scrapes after which K was within a tenth of
    the slots. `over` is the most by which leases exceeded the limit at a send.
    """

    share: float
    waiting: Counter[int]
    right: float
    over: int

    @property
    def waiting_p999(self) -> int:
        return p999(self.waiting)


def new_fleet(
    speed: Speed, jobs: Jobs, seed: int, *, dispatchers: int = 1, tier: int = 0, live_gauges: bool = False
) -> Fleet:
    clock = Clock()
    return Fleet(clock, Server(clock, speed, live_gauges=live_gauges), jobs, seed, dispatchers=dispatchers, tier=tier)


@cache
def paired(
    speed: Speed,
    jobs: Jobs,
    *,
    dispatchers: int = 1,
    tier: int = 0,
    live_gauges: bool = False,
    end_ms: float = END_MS,
    seeds: int = SEEDS,
) -> Paired:
    shares, waiting, right, over = list[float](), Counter[int](), list[bool](), 0
    for seed in range(seeds):
        fleet = new_fleet(speed, jobs, seed, dispatchers=dispatchers, tier=tier, live_gauges=live_gauges)
        fleet.clock.run(RAMP_MS)
        before = fleet.server.work()
        fleet.clock.run(end_ms)
        shares.append((fleet.server.work() - before) / direct(speed, jobs, seed, RAMP_MS, end_ms))
        waiting += shown_waiting(fleet.server, RAMP_MS, end_ms)
        learned = [known.k for known in fleet.observer.learned if known.fresh_at_ms >= RAMP_MS]
        right += [abs(k - speed.slots) <= speed.slots / 10 for k in learned]
        over = max([over, *(live - limit for _, live, limit in fleet.store.pops)])
    return Paired(mean(shares), waiting, mean(right), over)


@cache
def direct(speed: Speed, jobs: Jobs, seed: int, from_ms: float, until_ms: float) -> float:
    """Jobs done in that time when all are sent at once: there are always enough waiting."""
    clock, dice = Clock(), random.Random(seed)
    server = Server(clock, speed)

    def send(_: bool = True) -> None:
        server.send(jobs(dice), send)

    for _ in range(2 * speed.slots):
        send()
    clock.run(from_ms)
    before = server.work()
    clock.run(until_ms)
    return server.work() - before


def shown_waiting(server: Server, from_ms: float, until_ms: float) -> Counter[int]:
    """How long (µs) the backend's gauge showed how many waiting."""
    found = Counter[int]()
    ends = [ended for ended, _ in server.pages[1:]] + [until_ms]
    for (ended, page), next_end in zip(server.pages, ends, strict=True):
        if from_ms <= ended < until_ms:
            found[page.waiting] += round(1000 * (next_end - ended))
    return found


def p999(waiting: Counter[int]) -> int:
    """What was not exceeded in 999 of 1000 ms."""
    left = 0.999 * waiting.total()
    for shown, time in sorted(waiting.items()):
        left -= time
        if left <= 0:
            return shown
    return 0


def full_within_ms(slots: int, *, seeds: int = SEEDS) -> float:
    """How long it took from a cold start until all slots were full, with short prompts; the longest of all seeds."""
    longest = 0.0
    for seed in range(seeds):
        fleet = new_fleet(speed_of(slots), short_prompts, seed)
        fleet.clock.run(RAMP_MS)
        longest = max(longest, next(ended for ended, page in fleet.server.pages if page.running >= slots))
    return longest
