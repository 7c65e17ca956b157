"""A pool's history as its observer would have left it: a week, with days and nights."""

from __future__ import annotations

import math
import random
from typing import Final, Literal

from fairlane.clock import ManualClock
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.trend import STEPS, Point, Served, TierPoint, class_of

DAY_S: Final = 86_400
LOAD: Final = {"priority": 0.6, "default": 2.4, "flex": 1.1, "batch": 1.8}  # jobs per second, at noon
WAIT_MS: Final = {"priority": 120.0, "default": 900.0, "flex": 4_000.0, "batch": 15_000.0}
FLOOD_S: Final = 420  # so long ago it began
DOWN_S: Final = 480  # since then the backend is away
Trouble = Literal["none", "flood", "down"]


async def add_past(queue: Queue, clock: ManualClock, pool: Pool, now_ms: int, trouble: Trouble) -> None:
    """Writes the points of the last seven days, then hours, then minutes; of the last ones some tell of trouble."""
    dice = random.Random(pool.name)
    steps = sorted(STEPS.values(), key=lambda step: -step.s)
    untils = [step.s * step.kept for step in steps[1:]]
    for step, until_s in zip(steps, [*untils, 0], strict=True):
        for ago_s in range(step.s * step.kept, until_s, -step.s):
            at_ms = now_ms - ago_s * 1000
            clock.advance(at_ms - clock.now_ms())
            point = _point(dice, at_ms, step.s, ago_s, trouble)
            await queue.record(pool, point, Served(at_ms, 60, "requests", 0, 0, (), ()))


def _point(dice: random.Random, at_ms: int, step_s: int, ago_s: int, trouble: Trouble) -> Point:
    day = 0.55 + 0.45 * math.sin(2 * math.pi * (at_ms / 1000 % DAY_S) / DAY_S - math.pi / 2)
    flood = max(0.0, 1 - ago_s / FLOOD_S) if trouble == "flood" else 0.0
    down_s = max(0, DOWN_S - ago_s) if trouble == "down" else 0
    tiers = {tier: _tier(dice, tier, step_s, day, flood, down_s) for tier in LOAD}
    busy = 0.0 if down_s else min(1.0, 0.35 + 0.4 * day + 0.4 * flood)
    return Point(at_ms, step_s, tiers, slots=32, busy=busy, gamma=0.02 + 0.05 * flood, replicas=2 + round(2 * flood))


def _tier(dice: random.Random, tier: str, step_s: int, day: float, flood: float, down_s: int) -> TierPoint:
    """`flood`: how much of it has come, 0 to 1; `down_s`: how long nothing has run."""
    per_s = LOAD[tier] * day * dice.uniform(0.7, 1.3)
    flooded = flood if tier == "default" else 0.0
    wait_ms = WAIT_MS[tier] * (0.5 + day) * dice.uniform(0.8, 1.2) * (1 + 2 * flood * (tier != "priority"))
    ended = 0 if down_s else max(1, round(per_s * step_s))
    slow, slower = ended // 4, ended // 20
    return TierPoint(
        depth=round(per_s * wait_ms / 1000 + 6_500 * flooded + down_s / 30),
        oldest_ms=round(2 * wait_ms * (not down_s) + 1000 * max(down_s, FLOOD_S * flooded)),
        inflight=0 if down_s else round(4 * per_s),
        came=ended + round(15 * step_s * (0 < flooded < 0.7)),
        ended=ended,
        tokens=ended * 180,
        waits={class_of(wait_ms): ended - slow - slower, class_of(2 * wait_ms): slow, class_of(4 * wait_ms): slower},
    )
