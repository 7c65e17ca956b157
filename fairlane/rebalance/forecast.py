"""What a rebalancing does to each tenant's wait: computed from the lines before and after it, without I/O.

A line's wait is that of its last job, or of one that its tenant would submit now. In its tier the tenants take turns by
weight w: with r = jobs / w rounds, a line is through when of every other line v min(jobs_v, r · w_v) have started too,

    turns_u = Σ_{r_v ≤ r_u} jobs_v + r_u · Σ_{r_v > r_u} w_v

(itself among the first). Before those come all that wait in higher tiers; how fast they all start, by the tier's own
gates (Little's law) or by the valve, is `fairlane.estimate`'s. A tenant's own limits may take longer: jobs / rate, or
jobs · S / max_inflight with S the time that a job takes. Lines of tenants that are paused take no turns.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

from fairlane.estimate import pace_of, waiter
from fairlane.model import Limits
from fairlane.queue.pools import Pool
from fairlane.rebalance.values import Forecast, Shift
from fairlane.standing import PoolLoad, TierLoad

SHIFTS_MOST: Final = 200
SAME_S: Final = 0.5  # a change of less is none
Key = tuple[str, str]  # tier, tenant
Waits = Mapping[Key, float | None]


@dataclass(frozen=True, slots=True)
class Line:
    """The jobs that wait in one tenant's line of one tier, and what bounds it."""

    tier: str
    tenant: str
    jobs: float
    limits: Limits = field(default_factory=Limits)
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """One pool: its load, its lines, and by how many jobs the run makes some of them longer (negative: shorter)."""

    pool: Pool
    load: PoolLoad
    lines: Sequence[Line]
    shifts: Mapping[Key, float]


def forecast(scenes: Iterable[Scene]) -> Forecast:
    """What a run does to the lines of these pools, those that it changes most first."""
    shifts = [shift for scene in scenes for shift in _shifts(scene)]
    shifts.sort(key=lambda shift: (-abs(shift.change_s), -abs(shift.jobs_after - shift.jobs), shift.tenant, shift.tier))
    longer = sum(shift.change_s > SAME_S for shift in shifts)
    less = sum(shift.change_s < -SAME_S for shift in shifts)
    return Forecast(tuple(shifts[:SHIFTS_MOST]), longer, less, len(shifts) - longer - less)


def turns(lines: Sequence[Line]) -> dict[str, float]:
    """By tenant: how many jobs of one tier have started when the last of its own has. Paused lines are left out."""
    running = sorted((line for line in lines if not line.paused and line.jobs > 0), key=_rounds)
    weights, through, found = sum(line.limits.weight for line in running), 0.0, dict[str, float]()
    for rounds, group in groupby(running, key=_rounds):
        together = list(group)  # they are through at the same time
        through += sum(line.jobs for line in together)
        weights -= sum(line.limits.weight for line in together)
        found |= {line.tenant: through + rounds * max(0.0, weights) for line in together}
    return found


def waits(pool: Pool, load: PoolLoad, lines: Sequence[Line]) -> dict[Key, float | None]:
    """Each line's wait in seconds; None if nobody knows: it is paused, or no backend answers."""
    tiers: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        tiers[line.tier].append(line)
    found: dict[Key, float | None] = {}
    above, service_s = 0, pace_of(load).service_s
    for tier in load.tiers:
        wait_of, of_tier = waiter(pool, load, tier.tier), turns(tiers[tier.tier])
        for line in tiers[tier.tier]:
            own = of_tier.get(line.tenant)
            wait_s = None if own is None else wait_of(above + round(own), round(own))
            ends = wait_s is not None and math.isfinite(wait_s)
            found[tier.tier, line.tenant] = max(wait_s or 0.0, _bounded_s(line, service_s)) if ends else None
        above += tier.waiting
    return found


def _bounded_s(line: Line, service_s: float) -> float:
    """How long the tenant's own limits take for the line."""
    per_minute, inflight = line.limits.requests_per_minute, line.limits.max_inflight
    by_rate = 60 * line.jobs / per_minute if per_minute else 0.0
    return max(by_rate, line.jobs * service_s / inflight if inflight else 0.0)


def _rounds(line: Line) -> float:
    return line.jobs / line.limits.weight


def _shifts(scene: Scene) -> list[Shift]:
    before = {(line.tier, line.tenant): line for line in scene.lines}
    after = _after(scene, before)
    waited = waits(scene.pool, scene.load, scene.lines)
    will_wait = waits(scene.pool, _load_after(scene), list(after.values()))
    return [
        Shift(
            scene.pool.name, tier, tenant, round(before[key].jobs) if key in before else 0, round(line.jobs),
            waited.get(key), will_wait.get(key) if line.jobs > 0 else None,
        )
        for key, line in after.items()
        for tier, tenant in [key]
    ]  # fmt: skip


def _after(scene: Scene, before: Mapping[Key, Line]) -> dict[Key, Line]:
    """The lines as they are then; one that comes to be has its tenant's limits, as another of its lines tells them."""
    known = {line.tenant: line for line in scene.lines}
    after = dict(before)
    for (tier, tenant), jobs in scene.shifts.items():
        line = after.get((tier, tenant))
        if line is None:
            limits, paused = (known[tenant].limits, known[tenant].paused) if tenant in known else (Limits(), False)
            line = Line(tier, tenant, 0, limits, paused)
        after[tier, tenant] = replace(line, jobs=max(0.0, line.jobs + jobs))
    return after


def _load_after(scene: Scene) -> PoolLoad:
    moved: dict[str, float] = defaultdict(float)
    for (tier, _), jobs in scene.shifts.items():
        moved[tier] += jobs
    return replace(
        scene.load, tiers=tuple(_tier_after(tier, moved[tier.tier], scene.load) for tier in scene.load.tiers)
    )


def _tier_after(tier: TierLoad, moved: float, load: PoolLoad) -> TierLoad:
    waiting = max(0, round(tier.waiting + moved))
    if waiting and not tier.waiting:
        return replace(tier, waiting=waiting, since_ms=load.now_ms)
    return replace(tier, waiting=waiting, since_ms=tier.since_ms if waiting else None)
