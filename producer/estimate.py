"""When a waiting job will probably start: its place, and how fast its pool has been lately. A hint, not a promise."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from fairlane.model import Explanation, PoolLoad
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool

EVERY_S: Final = 1.0
WEIGHT: Final = 0.3  # of the newest second
GUESS_S: Final = 1.0  # a job's time, while nothing is known of the pool


def position(why: Explanation) -> int:
    """About how many jobs start before this one: those of higher tiers, and a round of its tenants for each ahead."""
    *above, own = why.depths.values()
    rounds = why.ahead_in_line * max(1, why.tenants) + (why.rank or 0)
    return sum(above) + min(rounds, max(0, own - 1))


@dataclass(slots=True)
class _Pace:
    at: float
    ended: int
    per_s: float | None = None
    places: int = 1


class Estimates:
    """Remembers how many jobs each pool has finished, and so how fast it is."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._paces: dict[str, _Pace] = {}

    async def wait_s(self, pool: Pool, jobs_ahead: int) -> float:
        """Seconds until `jobs_ahead` jobs have started."""
        pace = await self._pace(pool)
        if jobs_ahead <= 0:
            return 0.0
        return jobs_ahead / pace.per_s if pace.per_s else jobs_ahead * GUESS_S / pace.places

    async def _pace(self, pool: Pool) -> _Pace:
        now, known = time.monotonic(), self._paces.get(pool.code)
        if known and now - known.at < EVERY_S:
            return known
        load = await self._queue.inspect.load(pool)
        ended = sum(view.finished for view in load.backends)
        new = self._paces[pool.code] = _Pace(now, ended, known.per_s if known else None, _places(load))
        if known and ended >= known.ended:
            recent = (ended - known.ended) / (now - known.at)
            if recent > 0 or any(tier.inflight for tier in load.tiers):
                new.per_s = recent if known.per_s is None else (1 - WEIGHT) * known.per_s + WEIGHT * recent
        return new


def _places(load: PoolLoad) -> int:
    return max(1, sum(max((gate.limit for gate in view.gates.values()), default=1) for view in load.backends))
