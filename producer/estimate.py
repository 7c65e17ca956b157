"""When a waiting job will probably start: what is before it, and how fast its pool works. A hint, not a promise.

Before a job come all that wait in higher tiers, and in its own tier as many of each tenant as the round robin serves
until the job's turn. They start as fast as places become free: with S the time that a job takes in a backend and n the
leases that the gates allow its tier, n/S a second (Little's law), less what comes into the higher tiers meanwhile. The
pool's observer says S and what came lately (dispatcher/steering.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.standing import Explanation, LineView, PoolLoad

EVERY_S: Final = 1.0
GUESS_S: Final = 1.0  # a job's time, while nothing is known of the pool
VALVE: Final = 1 / 16  # of the pool's turns come to a tier at least, once it has waited long
LINES_MOST: Final = 100


@dataclass(frozen=True, slots=True)
class Estimate:
    """About how many jobs start before this one, and the seconds until it starts. While something is paused: as if it
    went on now."""

    position: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class Pace:
    """How a pool works: a job's mean time in a backend, and the jobs a second that come into each tier."""

    service_s: float
    came_per_s: Mapping[str, float]

    def wait_s(self, jobs: int, places: int, above: Sequence[str]) -> float:
        """Until `jobs` have started in one tier for which there are `places`, with the tiers `above` it."""
        most = max(1, places) / self.service_s
        left = most - sum(self.came_per_s.get(tier, 0.0) for tier in above)
        return jobs / max(left, most * VALVE)


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
        pace, ahead = _pace(load), position(why, lines)
        free = sum(max(0, gate.limit - gate.live) for gate in why.gates)
        places = sum(max(gate.limit, 0) for gate in why.gates)
        # with room in a backend the jobs ahead are only about to be taken, and so is this one
        wait_s = pace.wait_s(ahead if free else ahead + 1, places, [*why.depths][:-1])
        own = next((line for line in lines if line.tenant == why.tenant), None)
        waits = [wait_s, _held_s(why, load), _limited_s(why, own, pace)]
        if not_before_ms is not None and why.state == "delayed":
            waits.append((not_before_ms - load.now_ms) / 1000)
        return Estimate(ahead, max(0.0, *waits))

    async def refused(self, pool: Pool, tier: str) -> Estimate:
        """Of a job that was not taken in since the queue is full: as if it were the last of its tier."""
        load = await self._read(pool)
        tiers = [each.tier for each in load.tiers]
        upto = load.tiers[: tiers.index(tier) + 1] if tier in tiers else load.tiers
        ahead = sum(each.waiting for each in upto)
        working = [view for view in load.backends if view.status == "up"]
        places = sum(view.gates[tier].limit for view in working if tier in view.gates)
        return Estimate(ahead, _pace(load).wait_s(ahead + 1, places, [each.tier for each in upto[:-1]]))

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


def _pace(load: PoolLoad) -> Pace:
    steer: Mapping[str, Any] = json.loads(load.steer)
    return Pace(max(0.001, steer.get("service_s") or GUESS_S), steer.get("came_per_s") or {})


def _held_s(why: Explanation, load: PoolLoad) -> float:
    return 0.0 if why.held_until_ms is None else (why.held_until_ms - load.now_ms) / 1000


def _limited_s(why: Explanation, own: LineView | None, pace: Pace) -> float:
    """How long its tenant's own limits keep it, with what is ahead in its line."""
    if own is None:
        return 0.0
    per_minute, inflight = own.limits.requests_per_minute, own.limits.max_inflight
    by_rate = 60 * why.ahead_in_line / per_minute if per_minute else 0.0
    return max(by_rate, why.ahead_in_line * pace.service_s / inflight if inflight else 0.0)
