"""Writes a pool's history: what each round of steering saw, and who was served in the last minute.

Only the pool's observer does it, one for the fleet. The first round of an observer has none before it, so it does not
know what came and ended: it writes how things stand.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from dispatcher.lately import Lately, Look, arrivals, tokens
from dispatcher.policy.fairness import Due
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.standing import Finish, PoolLoad
from fairlane.trend import Point, Served, ServedTenant, ServiceGap, TierPoint, class_of

SERVED_MOST: Final = 200  # tenants that are named


class Recording:
    """One pool's. It remembers the look before."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._before: Look | None = None
        self._finished: Mapping[str, int] = {}

    async def note(self, pool: Pool, load: PoolLoad, look: Look, lately: Lately, point: Point) -> None:
        """Writes one round; of `point` only what the whole pool has is given."""
        finished = {view.name: view.finished for view in load.backends}
        seen = _with_tiers(point, self._before, look, load, _unread(look, self._finished, finished))
        self._before, self._finished = look, finished
        await self._queue.record(pool, seen, served(lately, look.now_ms, pool.policy.fairness))


def _unread(look: Look, before: Mapping[str, int], finished: Mapping[str, int]) -> float:
    """How many jobs ended for each that was read: more than one only if so many did that not all were."""
    if look.whole:
        return 1.0
    read = sum(finish.state == "succeeded" for finish in look.finishes)
    ended = sum(n - before[name] for name, n in finished.items() if name in before)
    return max(1.0, ended / read) if read else 1.0


def _with_tiers(point: Point, before: Look | None, look: Look, load: PoolLoad, unread: float) -> Point:
    """The point, with what each tier had and did since the look before."""
    came: Mapping[str, int] = arrivals(before, look) if before else {}
    ended = look.finishes if before else ()
    tiers: dict[str, TierPoint] = {}
    for tier in load.tiers:
        finishes = [finish for finish in ended if finish.tier == tier.tier]
        lines = look.lines.get(tier.tier, ())
        n = round(unread * len(finishes))
        tiers[tier.tier] = TierPoint(
            depth=tier.waiting,
            oldest_ms=max(0, look.now_ms - lines[0].oldest_ms) if lines else 0,
            inflight=tier.inflight,
            came=max(0, came.get(tier.tier, 0) + n - len(finishes)),
            ended=n,
            tokens=round(unread * sum(map(tokens, finishes))),
            waits={k: round(unread * jobs) for k, jobs in _waits(finishes).items()},
        )
    took_s = (look.now_ms - before.now_ms) / 1000 if before else 0.0
    return Point(look.now_ms, took_s, tiers, point.slots, look.rho, point.gamma, point.replicas)


def _waits(finishes: Iterable[Finish]) -> Counter[int]:
    """By class; of those that ran."""
    return Counter(
        class_of(finish.started_at_ms - finish.ready_at_ms) for finish in finishes if finish.started_at_ms is not None
    )


def served(lately: Lately, now_ms: int, by: str) -> Served:
    """The last minute: the tenants that got the most, and of the others those furthest behind what they were owed."""
    dues = lately.dues
    got: dict[str, float] = defaultdict(float)
    owed: dict[str, float] = defaultdict(float)
    for tenant, due in (entry for of in dues.values() for entry in of.items()):
        got[tenant] += due.got
        owed[tenant] += due.owed
    service = lately.tokens if by == "tokens" else lately.ended
    most = sorted(lately.ended, key=lambda tenant: (-service.get(tenant, 0), tenant))
    behind = sorted(owed, key=lambda tenant: (got[tenant] - owed[tenant], tenant))
    named = list(dict.fromkeys([*most[: SERVED_MOST // 2], *behind[: SERVED_MOST // 2], *most]))[:SERVED_MOST]
    ended, used = lately.ended, lately.tokens
    return Served(
        at_ms=now_ms,
        took_s=lately.took_s,
        by=by,
        jobs=sum(ended.values()),
        tokens=sum(used.values()),
        tenants=tuple(
            ServedTenant(
                name, ended.get(name, 0), used.get(name, 0), round(got.get(name, 0), 3), round(owed.get(name, 0), 3)
            )
            for name in named
        ),
        gaps=tuple(_gap(tier, of) for tier, of in dues.items()),
    )


def _gap(tier: str, dues: Mapping[str, Due]) -> ServiceGap:
    """Those that were served the best and the worst; dues are of two tenants at least."""
    ranked = sorted(dues, key=lambda tenant: (dues[tenant].lead, tenant))
    return ServiceGap(tier, round(dues[ranked[-1]].lead - dues[ranked[0]].lead, 3), ranked[-1], ranked[0])
