"""Reads what a dry run is computed from: the lines of every pool that a run touches, and what it takes of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import anyio.to_thread

from fairlane.errors import NotFound
from fairlane.queue import replies
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.rebalance.forecast import Key, Line, Scene, forecast
from fairlane.rebalance.values import Forecast, Run

PAGE: Final = 200
LINES_MOST: Final = 20_000  # of a tier: those that wait longest


async def weigh(queue: Queue, pool: Pool, run: Run) -> Forecast:
    """What a run does to each tenant's wait, as the lines stand now."""
    lines, chosen = await _lines(queue, pool, pool.policy.tiers, run.id)
    if not run.chosen:
        return Forecast()
    scenes = [Scene(pool, await queue.inspect.load(pool), lines, _away(run, pool, chosen))]
    names = [name for name in run.plan.target.pools if name != pool.name]
    for name in names:
        with suppress(NotFound):  # it was removed meanwhile
            target = await queue.pools.by_name(name)
            there, _ = await _lines(queue, target, target.policy.tiers)
            share = 1 / len(run.plan.target.pools)
            more = {key: n * share for key, n in chosen.items() if key[0] in target.policy.tiers}
            scenes.append(Scene(target, await queue.inspect.load(target), there, more))
    return await anyio.to_thread.run_sync(forecast, scenes)


def _away(run: Run, pool: Pool, chosen: Mapping[Key, int]) -> Mapping[Key, float]:
    """By how many jobs the run changes the lines of its own pool."""
    stays = 1 / len(run.plan.target.pools) if pool.name in run.plan.target.pools else 0.0
    shifts: dict[Key, float] = defaultdict(float)
    for (tier, tenant), jobs in chosen.items():
        shifts[tier, tenant] -= jobs * (1 - stays)
        if run.plan.target.tier is not None:
            shifts[run.plan.target.tier, tenant] += jobs
    return shifts


async def _lines(
    queue: Queue, pool: Pool, tiers: tuple[str, ...], run_id: str = ""
) -> tuple[list[Line], dict[Key, int]]:
    """The lines of some tiers, and how many jobs of each the run has chosen, if any."""
    lines: dict[Key, Line] = {}
    chosen: dict[Key, int] = {}
    for tier in tiers:
        after = ""
        for _ in range(0, LINES_MOST, PAGE):
            args = (run_id, tier, after, str(PAGE))
            after, *rows = replies.items(await queue.store.run("run_lines", pool.prefix, *args))
            for row in map(replies.items, rows):
                tenant, limits = replies.text(row[0]), replies.limits(replies.text(row[3]).encode() or None)
                paused = replies.number(row[4]) == 1
                lines[tier, tenant] = Line(tier, tenant, replies.number(row[1]), limits, paused)
                if taken := replies.number(row[2]):
                    chosen[tier, tenant] = taken
            after = replies.text(after)
            if not after:
                break
    return list(lines.values()), chosen
