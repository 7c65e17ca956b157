"""When a waiting job will probably start: what is before it, and how fast its pool works. A hint, not a promise.

Before a job come all that wait in higher tiers, and in its own tier as many of each tenant as the round robin serves
until the job's turn. They start as fast as places become free: with S the time that a job takes in a backend and n the
leases that the gates allow its tier, n/S a second (Little's law), less what comes into the higher tiers meanwhile. The
pool's observer says S and what came lately (dispatcher/steering.py). Where that leaves too little, the valve serves the
tier past the higher ones (docs/scheduling.md): of the two ways in, the one that is shorter counts.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.standing import BackendView, Explanation, GateView, LineView, PoolLoad

EVERY_S: Final = 1.0
GUESS_S: Final = 1.0  # a job's time, while nothing is known of the pool
LEAST: Final = 1 / 16  # of the pool's turns are the valve's, once a tier is in arrears
MOST: Final = 1 / 4  # are, once it has waited for long
LINES_MOST: Final = 100


@dataclass(frozen=True, slots=True)
class Estimate:
    """About how many jobs start before this one, and the seconds until it starts.

    `wait_s` is None if nobody knows: something is paused, or its pool has no backend that answers.
    """

    position: int
    wait_s: float | None


@dataclass(frozen=True, slots=True)
class Pace:
    """How a pool works: a job's mean time in a backend, and the jobs a second that come into each tier."""

    service_s: float
    came_per_s: Mapping[str, float]

    def per_s(self, places: int) -> float:
        """The jobs a second that start where there are `places`."""
        return max(1, places) / self.service_s

    def left_per_s(self, places: int, above: Sequence[str]) -> float:
        """Of those, what the tiers `above` leave; 0 or less if it is nothing."""
        return self.per_s(places) - sum(self.came_per_s.get(tier, 0.0) for tier in above)

    def wait_s(self, jobs: int, places: int, above: Sequence[str]) -> float:
        """Until `jobs` have started in one tier by its own gate; infinite if the tiers `above` leave it nothing."""
        left = self.left_per_s(places, above)
        return jobs / left if left > 0 else math.inf if jobs else 0.0


@dataclass(frozen=True, slots=True)
class Valve:
    """What the valve will do for a tier that its own gate does not serve.

    `opens_s`: how long until the tier is in arrears, 0 if it is. `waited_s`: the longest wait of the tiers in arrears
    by now. `others`: the jobs that wait in each of the other ones; they are served by turns.
    """

    valve_s: float
    opens_s: float
    waited_s: float
    others: Sequence[int] = ()

    def wait_s(self, jobs: int, per_s: float) -> float:
        """Until the valve has let in `jobs` of the tier, while the pool starts `per_s` jobs a second.

        It takes k = jobs + Σ min(other, jobs) turns. With V = valve_s and x the longest wait, which is x₀ = waited_s +
        opens_s at the first of them: ∫ per_s·min(1/4, x/(16·V)) dx = k. So x = √(x₀² + 32·V·k/per_s) up to 4·V; beyond,
        4/per_s a turn.
        """
        if not jobs:
            return 0.0
        turns = jobs + sum(min(other, jobs) for other in self.others)
        begin, full = self.waited_s + self.opens_s, self.valve_s * MOST / LEAST
        growing = max(0.0, per_s * LEAST * (full**2 - begin**2) / (2 * self.valve_s))
        if turns <= growing:  # its share is not yet full
            end = math.sqrt(begin**2 + 2 * self.valve_s * turns / (per_s * LEAST))
        else:
            end = max(begin, full) + (turns - growing) / (per_s * MOST)
        return end - self.waited_s


def position(why: Explanation, lines: Sequence[LineView]) -> int:
    """About how many jobs start before this one. `lines` are those of its tier, or the first of them."""
    *above, own = why.depths.values()
    weight = next((line.limits.weight for line in lines if line.tenant == why.tenant), 1.0)
    others = [line for line in lines if line.tenant != why.tenant and not line.held]
    rounds = why.ahead_in_line / weight
    # those before its tenant in the ring have one turn more; which these are is not known
    first = 1.0 if why.rank is None else why.rank / max(1, why.tenants - 1)
    turns = sum(min(line.jobs, rounds * line.limits.weight + first) for line in others)
    unseen = max(0, why.tenants - 1 - len(others))
    if unseen:
        jobs = max(0, own - 1 - why.ahead_in_line - sum(line.jobs for line in others))
        turns += min(jobs, unseen * (rounds + first))
    return sum(above) + min(why.ahead_in_line + round(turns), max(0, own - 1))


def answers(gate: GateView) -> bool:
    """Whether a backend takes jobs, or is known to be only too busy for one more."""
    return gate.reason not in ("down", "draining", "stale")


def pace_of(load: PoolLoad) -> Pace:
    """How a pool works, as its observer's last steering found it."""
    steer: Mapping[str, Any] = json.loads(load.steer)
    return Pace(max(0.001, steer.get("service_s") or GUESS_S), steer.get("came_per_s") or {})


def waiter(pool: Pool, load: PoolLoad, tier: str) -> Callable[[int, int], float | None]:
    """Says how many seconds until `ahead` jobs of this tier and those above have started, `own` of them of this one.

    None if nobody knows: no backend answers, or what waits in the tier may not run.
    """
    own = next((each for each in load.tiers if each.tier == tier), None)
    answering = any(_answers(view, tier, load.now_ms - pool.policy.stale_ms) for view in load.backends)
    if not answering or (own and own.waiting and not own.runnable):
        return lambda ahead, own: None
    return _waiter(pool, load, tier, _places(load, tier))


class Estimates:
    """Reads what it needs of each pool and tier at most once a second, by `clock`."""

    def __init__(self, queue: Queue, clock: Callable[[], float] = time.monotonic) -> None:
        self._queue = queue
        self._clock = clock
        self._loads: dict[str, tuple[float, PoolLoad]] = {}
        self._lines: dict[tuple[str, str], tuple[float, list[LineView]]] = {}

    async def of(self, pool: Pool, why: Explanation, not_before_ms: int | None = None) -> Estimate:
        """Of a job that waits; `not_before_ms` is when its delay ends."""
        load, lines = await self.load(pool), await self._lines_of(pool, why.tier)
        ahead = position(why, lines)
        if why.paused or why.held_by == "paused" or not any(map(answers, why.gates)):
            return Estimate(ahead, None)
        pace = pace_of(load)
        # with room in a backend the jobs ahead are only about to be taken, and so is this one
        more = 0 if any(gate.live < gate.limit for gate in why.gates) else 1
        own = ahead - sum([*why.depths.values()][:-1])
        places = sum(max(gate.limit, 0) for gate in why.gates)
        wait_s = _waiter(pool, load, why.tier, places)(ahead + more, own + more)
        line = next((line for line in lines if line.tenant == why.tenant), None)
        waits = [wait_s, _held_s(why, load) + _limited_s(why, line, pace)]
        if not_before_ms is not None and why.state == "delayed":
            waits.append((not_before_ms - load.now_ms) / 1000)
        return Estimate(ahead, max(0.0, *waits))

    async def refused(self, pool: Pool, tier: str) -> Estimate:
        """Of a job that was not taken in since the queue is full: as if it were the last of its tier."""
        load = await self._read(pool)
        tiers = [each.tier for each in load.tiers]
        upto = load.tiers[: tiers.index(tier) + 1] if tier in tiers else load.tiers
        ahead, own = sum(each.waiting for each in upto), upto[-1]
        return Estimate(ahead, waiter(pool, load, own.tier)(ahead + 1, own.waiting + 1))

    async def load(self, pool: Pool) -> PoolLoad:
        """The pool's load, of this moment or up to EVERY_S ago."""
        at, known = self._loads.get(pool.code, (0.0, None))
        return known if known and self._clock() - at < EVERY_S else await self._read(pool)

    async def _read(self, pool: Pool) -> PoolLoad:
        load = await self._queue.inspect.load(pool)
        self._loads[pool.code] = self._clock(), load
        return load

    async def _lines_of(self, pool: Pool, tier: str) -> list[LineView]:
        at, known = self._lines.get((pool.code, tier), (0.0, None))
        if known is None or self._clock() - at >= EVERY_S:
            known = await self._queue.inspect.lines(pool, tier, LINES_MOST)
            self._lines[pool.code, tier] = self._clock(), known
        return known


def _answers(view: BackendView, tier: str, fresh_ms: float) -> bool:
    """As `answers`, of what was seen in or before the millisecond `fresh_ms`."""
    fallback = view.gates[tier].fallback if tier in view.gates else 1
    return view.status == "up" and ((view.fresh_at_ms or 0) >= fresh_ms or view.counts.live < fallback)


def _places(load: PoolLoad, tier: str) -> int:
    working = [view for view in load.backends if view.status == "up"]
    return sum(view.gates[tier].limit for view in working if tier in view.gates)


def _waiter(pool: Pool, load: PoolLoad, tier: str, places: int) -> Callable[[int, int], float]:
    """Says how long until `ahead` jobs of the tier and those above have started, or the valve let in `own` of it."""
    names = [each.tier for each in load.tiers]
    rank = names.index(tier) if tier in names else len(names)  # the load may be older than the tier
    pace, most = pace_of(load), max(places, _places(load, names[0]))
    valve = _valve(load, rank, pool.policy.valve_ms, pace, most)
    return lambda ahead, own: min(pace.wait_s(ahead, places, names[:rank]), valve.wait_s(own, pace.per_s(most)))


def _valve(load: PoolLoad, rank: int, valve_ms: int, pace: Pace, places: int) -> Valve:
    """The valve for the tier at `rank`, of a pool with `places`. In arrears beside it are or will be the tiers that are
    so by now, those that those above leave less than the valve's least share, and those below itself."""
    least, names = LEAST * pace.per_s(places), [each.tier for each in load.tiers]
    waited_ms = [0 if each.since_ms is None else max(0, load.now_ms - each.since_ms) for each in load.tiers]
    own_ms = waited_ms[rank] if rank < len(names) else 0
    others = [
        n
        for n, each in enumerate(load.tiers)
        if each.runnable and n != rank
        if n > rank or waited_ms[n] >= valve_ms or pace.left_per_s(places, names[:n]) < least
    ]
    longest_ms = max([own_ms, *(waited_ms[n] for n in others)])
    waiting = [load.tiers[n].waiting for n in others]
    return Valve(valve_ms / 1000, max(0, valve_ms - own_ms) / 1000, longest_ms / 1000, waiting)


def _held_s(why: Explanation, load: PoolLoad) -> float:
    return 0.0 if why.held_until_ms is None else (why.held_until_ms - load.now_ms) / 1000


def _limited_s(why: Explanation, own: LineView | None, pace: Pace) -> float:
    """How long its tenant's own limits keep it, with what is ahead in its line."""
    if own is None:
        return 0.0
    per_minute, inflight = own.limits.requests_per_minute, own.limits.max_inflight
    by_rate = 60 * why.ahead_in_line / per_minute if per_minute else 0.0
    return max(by_rate, why.ahead_in_line * pace.service_s / inflight if inflight else 0.0)
