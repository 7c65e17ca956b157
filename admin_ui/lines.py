"""The lines of a pool: who waits in which tier, how many jobs and for how long, and what holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from admin_ui.binding import Binding, tenant_binding, tier_binding, tier_gates
from admin_ui.bridge import Stores
from fairlane.queue import searching
from fairlane.queue.pools import Pool
from fairlane.queue.trends import STANDINGS_MOST
from fairlane.standing import TierView

EACH: Final = 25  # lines of each tier, where all tiers are shown
MOST: Final = 100  # where one is


@dataclass(frozen=True, slots=True)
class Line:
    """One tenant's jobs in one tier. `inflight` counts all its tiers'."""

    tenant: str
    jobs: int
    oldest_at_ms: int
    inflight: int
    weight: float
    binding: Binding
    paused: bool


@dataclass(frozen=True, slots=True)
class TierLines:
    """A tier and its lines, the one that has waited longest first; `more` of them are not shown (None: not known)."""

    view: TierView
    binding: Binding
    lines: tuple[Line, ...]
    more: int | None


async def lines(stores: Stores, pool: Pool, tier: str | None, scope: Sequence[str] | None) -> list[TierLines]:
    """Those of one tier or of all (None), for a viewer of these tenants or of all (None)."""
    glance = await stores.queue.inspect.overview(pool)
    gates = tier_gates(pool, glance)
    shown = [view for view in glance.tiers if tier in (None, view.tier)]
    most = MOST if tier else EACH
    depths = {view.tier: await _depths(stores, pool, view.tier, scope, most) for view in shown}
    names = list(dict.fromkeys(name for found in depths.values() for name in found))[:STANDINGS_MOST]
    standings = {each.tenant: each for each in await stores.queue.inspect.standings(pool, names)}
    answer: list[TierLines] = []
    for view in shown:
        rows = [
            Line(
                tenant,
                jobs,
                of.oldest_ms[view.tier],
                of.inflight,
                of.limits.weight,
                tenant_binding(glance, gates, of, pool.policy.max_waiting_tenant),
                of.held_by == "paused",
            )
            for tenant, jobs in depths[view.tier].items()
            if (of := standings.get(tenant)) and view.tier in of.oldest_ms
        ]
        rows.sort(key=lambda line: line.oldest_at_ms)
        more = None if scope is not None else max(0, view.tenants - len(rows))
        answer.append(TierLines(view, tier_binding(glance, view, gates[view.tier]), tuple(rows[:most]), more))
    return answer


async def _depths(stores: Stores, pool: Pool, tier: str, scope: Sequence[str] | None, most: int) -> dict[str, int]:
    """The jobs in each line, of the `most` that have waited longest."""
    if scope is not None:
        return await searching.lines_of(stores.queue.store, pool, tier, scope[:STANDINGS_MOST])
    return {line.tenant: line.jobs for line in await stores.queue.inspect.lines(pool, tier, most)}
