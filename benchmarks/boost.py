"""What the boost and its thermostat are worth, in virtual time: `python -m benchmarks.boost --help`.

Short and long requests arrive in bursts before one backend that is four fifths busy. All runs of a seed have the same
arrivals. *One line*: all that wait stands in one order by Φ, which is the most that the boost can do. *Ring*: the
production scripts on a real Valkey, tenants in turn, the boost as credit of at most one turn. In both cases the engine
orders the few that wait there by the priority that is handed over. Sojourn is from arrival to answer.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import fmean, median
from typing import Final

from benchmarks.bursts import KINDS, PROMPT, SPEED, TENANTS, THETA, Job, Outcome, load
from benchmarks.flood import quantile
from benchmarks.servers import server
from dispatcher.backends.known import GAMMA_FIRST
from dispatcher.backends.sequences import Sequence as Request
from dispatcher.policy.boost import ClassStats, boost_ms, learned
from dispatcher.policy.lead import engine_priority
from dispatcher.policy.thermostat import WINDOW, Sample, Thermostat, next_gamma
from dispatcher.simulator.clock import Clock
from fairlane.clock import ManualClock
from fairlane.ids import SeededIds
from fairlane.model import Policy
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from tests.virtual import live as virtual
from tests.virtual.server import Server

STEER_MS: Final = 5_000
RHO_ROUNDS: Final = 12  # a minute
EVERYTHING: Final = 1_000_000_000  # ms of virtual time: until all are answered
SCRAPE_MS: Final = 1_000
_numbers = count()


class OneLine:
    """All that wait, in one order by Φ, before the engine. `gamma` (per second) None: the thermostat sets it."""

    def __init__(self, jobs: Sequence[Job], gamma: float | None) -> None:
        self.done: list[Outcome] = []
        self.gammas: list[float] = []
        self._pinned, self._gamma = gamma, GAMMA_FIRST if gamma is None else gamma
        self._policy = Policy()
        self._clock = Clock()
        self._server = Server(self._clock, SPEED, by_priority=True)
        self._waiting: list[tuple[float, int, Job]] = []
        self._live = 0
        self._numbers = count()
        self._classes: dict[str, ClassStats] = {}
        self._thermostat = Thermostat()
        self._samples: deque[Sample] = deque(maxlen=WINDOW)
        self._rhos: deque[float] = deque(maxlen=RHO_ROUNDS)
        for job in jobs:
            self._clock.after(job.at_ms, lambda job=job: self._arrive(job))
        self._end_ms = jobs[-1].at_ms
        self._clock.after(STEER_MS, self._steer)

    def run(self) -> None:
        self._clock.run(EVERYTHING)

    def _arrive(self, job: Job) -> None:
        stats = self._classes.get(job.kind, ClassStats())
        expected_ms = stats.w_ms if stats.n else PROMPT + 2 * job.answer  # no class yet: by size, as the queue does
        boost = boost_ms(self._gamma, expected_ms, self._policy.boost_max_ms)
        heapq.heappush(self._waiting, (job.at_ms - boost, next(self._numbers), job))
        self._send()

    def _send(self) -> None:
        while self._waiting and self._live < SPEED.slots + THETA:
            phi_ms, _, job = heapq.heappop(self._waiting)
            self._live += 1
            began_ms = self._clock.now
            priority = engine_priority(phi_ms, 0, 1, 0.0, 0.0)
            request = Request(PROMPT, job.answer, priority)
            self._server.send(request, lambda _, job=job, began_ms=began_ms: self._answered(job, began_ms))

    def _answered(self, job: Job, began_ms: float) -> None:
        self._live -= 1
        now_ms = self._clock.now
        self.done.append(Outcome(job.kind, now_ms - job.at_ms))
        self._samples.append(Sample(now_ms - job.at_ms, now_ms - began_ms))
        self._classes[job.kind] = learned(self._classes.get(job.kind, ClassStats()), self._gamma, now_ms - began_ms)
        self._send()

    def _steer(self) -> None:
        """The observer's round."""
        self._rhos.append(self._live / SPEED.slots)
        oldest_ms = max((self._clock.now - job.at_ms for _, _, job in self._waiting), default=0.0)
        most_ms = self._policy.boost_max_ms
        self._thermostat = next_gamma(self._thermostat, list(self._samples), fmean(self._rhos), oldest_ms, most_ms)
        if self._pinned is None:
            self._gamma = self._thermostat.gamma
            self.gammas.append(self._gamma)
        if self._clock.now < self._end_ms:
            self._clock.after(STEER_MS, self._steer)


async def ring(url: str, jobs: Sequence[Job], gamma: float | None) -> tuple[list[Outcome], list[float]]:
    """The same through the production queue: the outcomes, and γ at each round of the thermostat."""
    client, manual = connect(url), ManualClock()
    queue = Queue(client, namespace=f"b{next(_numbers)}", clock=manual, ids=SeededIds())
    began_ms = manual.now_ms()
    policy = Policy(gamma=gamma, lease_ms=3_600_000, stale_ms=3 * SCRAPE_MS)
    pool = await queue.pools.open("llama", policy)
    live = virtual.Live(queue, pool, manual, SPEED, scrape_ms=SCRAPE_MS, by_priority=True, steers=gamma is None)
    for one in jobs:
        spec = virtual.job(one.tenant, "default", one.answer, prompt=PROMPT, estimate=KINDS[one.kind][2])
        live.clock.after(one.at_ms, lambda spec=spec: live.arrive(spec))
    gammas = list[float]()
    while len(live.done) < len(jobs):
        await live.run(live.clock.now + STEER_MS)
        if gamma is None:
            gammas.append(json.loads((await queue.inspect.load(pool)).steer)["gamma"])
    kinds, found = {most: kind for kind, (_, _, most) in KINDS.items()}, list[Outcome]()
    for pop in live.pops:
        sojourn_ms = live.done[pop.lease.id] - (pop.lease.arrived_at_ms - began_ms)
        found.append(Outcome(kinds[pop.lease.output_tokens], sojourn_ms))
    await queue.close()
    return found, gammas


@dataclass(frozen=True)
class Shown:
    """What one way did, over all seeds. Sojourns in s; of all requests, and of each kind."""

    name: str
    mean_s: float
    p99_s: float
    kinds: Mapping[str, tuple[float, float]]
    gamma: float | None


def shown(name: str, runs: Sequence[Sequence[Outcome]], gammas: Sequence[float]) -> Shown:
    """The mean and p99 of each seed's run, and of these the median."""

    def of(kind: str | None) -> tuple[float, float]:
        times = [[one.sojourn_ms / 1000 for one in run if kind in (None, one.kind)] for run in runs]
        return median(map(fmean, times)), median(quantile(each, 0.99) for each in times)

    mean_s, p99_s = of(None)
    return Shown(name, mean_s, p99_s, {kind: of(kind) for kind in KINDS}, median(gammas) if gammas else None)


def one_line(loads: Sequence[Sequence[Job]], gammas: Sequence[float | None]) -> Iterator[Shown]:
    for gamma in gammas:
        lines = [OneLine(jobs, gamma) for jobs in loads]
        for line in lines:
            line.run()
        found = [gamma for line in lines for gamma in line.gammas]
        yield shown(called("one line", gamma), [line.done for line in lines], found)


def rings(loads: Sequence[Sequence[Job]], gammas: Sequence[float | None]) -> Iterator[Shown]:
    with server("valkey") as running:
        for gamma in gammas:
            runs = [asyncio.run(ring(running.url, jobs, gamma)) for jobs in loads]
            yield shown(called("ring", gamma), [run for run, _ in runs], [each for _, found in runs for each in found])


def called(how: str, gamma: float | None) -> str:
    return f"{how}, " + ("thermostat" if gamma is None else "no boost" if gamma == 0 else f"γ = {gamma:g}/s")


def rows(ways: Sequence[Shown]) -> Iterator[str]:
    """For the docs. Each way beside the first, which has no boost."""
    base = ways[0]
    for way in ways:
        name = way.name if way.gamma is None else f"{way.name} (γ = {way.gamma:.2f}/s in the median)"
        pairs = [(way.mean_s, base.mean_s), (way.p99_s, base.p99_s)]
        for kind in KINDS:
            pairs += zip(way.kinds[kind], base.kinds[kind], strict=True)
        cells = [f"{mine:.2f} s ({mine / its:.2f} ×)" for mine, its in pairs]
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=20, help="of virtual time")
    parser.add_argument("--tenants", type=int, default=TENANTS)
    parser.add_argument("--gammas", type=float, nargs="*", default=[0.05, 0.2, 1.0], help="fixed ones, per second")
    given = parser.parse_args()
    ways = [0.0, *given.gammas, None]
    loads = [load(seed, given.minutes, given.tenants) for seed in range(given.seeds)]
    print(f"{given.tenants} tenants, {given.seeds} seeds of {given.minutes:g} minutes\n")
    columns = ["way", "mean", "p99", *(f"{kind}: {what}" for kind in KINDS for what in ("mean", "p99"))]
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}", flush=True)
    for shown_ways in (one_line(loads, ways), rings(loads, ways)):
        print("\n".join(rows([*shown_ways])), flush=True)


if __name__ == "__main__":
    main()
