"""A pool's tenants side by side: how long each waits in each tier, what it got of the service, and what binds it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from admin_ui.binding import Binding, tenant_binding, tier_gates
from admin_ui.bridge import Stores
from fairlane.queue.pools import Pool
from fairlane.queue.trends import STANDINGS_MOST
from fairlane.standing import Overview, Standing
from fairlane.trend import Served, ServedTenant, ServiceGap

LOOKED_AT: Final = 60  # tenants that wait or are held; beside them those that were served the most
ROWS_MOST: Final = 100
HEATS_S: Final = (0.3, 1, 3, 10, 30, 60, 180, 600, 3600)  # a wait of so much is one degree hotter


@dataclass(frozen=True, slots=True)
class Cell:
    """How long the oldest job of one tenant in one tier has waited; None if none waits. `heat` is from 0 to 9."""

    tier: str
    age_ms: int | None
    heat: int


@dataclass(frozen=True, slots=True)
class TenantRow:
    """One tenant. `share` is its part of the last minute's service, `weight_share` its weight's part of those shown;
    `due` is what it got over what it was owed while it waited, `lead` the difference."""

    standing: Standing
    cells: tuple[Cell, ...]
    oldest_ms: int | None
    served: ServedTenant
    share: float | None
    weight_share: float | None
    due: float | None
    lead: float
    binding: Binding


@dataclass(frozen=True, slots=True)
class Shares:
    """A pool's tenants; for a viewer who may see only some, those, and no other's name.

    `waiting_lines` counts everybody's; `jain` and `compared` are of the last minute. `all_rows`: of the tenants that
    wait, and may be named, none is left out.
    """

    pool: Pool
    view: Overview
    rows: tuple[TenantRow, ...]
    by: str
    jain: float | None
    compared: int
    gap: ServiceGap | None
    runs_most: TenantRow | None
    waits_most: TenantRow | None
    waiting_lines: int
    all_rows: bool


ORDERS: Final[Mapping[str, tuple[str, Callable[[TenantRow], float]]]] = {
    "age": ("Longest wait", lambda row: -(row.oldest_ms or -1)),
    "waiting": ("Most waiting", lambda row: -row.standing.waiting),
    "inflight": ("Most in flight", lambda row: -row.standing.inflight),
    "service": ("Most service", lambda row: -(row.share or 0)),
    "behind": ("Furthest behind", lambda row: row.lead),
}


async def shares(stores: Stores, pool: Pool, scope: Sequence[str] | None, order: str) -> Shares:
    """Two round trips. `scope`: the only tenants that may be named; None: all."""
    inspect = stores.queue.inspect
    view, served = await asyncio.gather(inspect.overview(pool), inspect.served(pool))
    if scope is None:
        notable = await inspect.notable(pool, LOOKED_AT)
        names = list(dict.fromkeys([*notable, *(row.tenant for row in served.tenants)] if served else notable))
    else:
        names = list(scope)
    standings = await inspect.standings(pool, names[: ROWS_MOST if scope is None else STANDINGS_MOST])
    return shares_of(pool, view, served, standings, order, scope)


def shares_of(
    pool: Pool,
    view: Overview,
    served: Served | None,
    standings: Sequence[Standing],
    order: str,
    scope: Sequence[str] | None,
) -> Shares:
    """What was read, as the page shows it."""
    steer = cast("Mapping[str, Any]", json.loads(view.steer))
    rows = sorted(_rows(pool, view, served, standings, everybody=scope is None), key=ORDERS[order][1])
    waiting = sum(tier.tenants for tier in view.tiers)
    return Shares(
        pool=pool,
        view=view,
        rows=tuple(rows),
        by=served.by if served else pool.policy.fairness,
        jain=steer.get("jain"),
        compared=steer.get("compared", 0),
        gap=_gap(served, scope),
        runs_most=_most(rows, lambda row: row.standing.inflight),
        waits_most=_most(rows, lambda row: row.standing.waiting),
        waiting_lines=waiting,
        all_rows=_is_whole(rows, waiting, scope),
    )


def _is_whole(rows: Sequence[TenantRow], lines: int, scope: Sequence[str] | None) -> bool:
    """Whether everybody who waits, and may be named, is there."""
    if scope is not None:
        return len(scope) <= STANDINGS_MOST
    return sum(len(row.standing.oldest_ms) for row in rows) >= lines


def heat(age_ms: int | None) -> int:
    """How hot a wait is, from 0 (nobody waits, or only just) to 9 (an hour and more)."""
    return 0 if age_ms is None else sum(age_ms >= 1000 * least_s for least_s in HEATS_S)


def _rows(
    pool: Pool, view: Overview, served: Served | None, standings: Sequence[Standing], *, everybody: bool
) -> Iterable[TenantRow]:
    gates = tier_gates(pool, view)
    known = {row.tenant: row for row in served.tenants} if served else {}
    total = (served.tokens if served.by == "tokens" else served.jobs) if served else 0
    weights = sum(of.limits.weight for of in standings)
    for of in standings:
        got = known.get(of.tenant, ServedTenant(of.tenant, 0, 0, 0.0, 0.0))
        mine = got.tokens if served and served.by == "tokens" else got.jobs
        ages = {tier: max(0, view.now_ms - at_ms) for tier, at_ms in of.oldest_ms.items()}
        yield TenantRow(
            standing=of,
            cells=tuple(Cell(tier, ages.get(tier), heat(ages.get(tier))) for tier in pool.policy.tiers),
            oldest_ms=max(ages.values(), default=None),
            served=got,
            share=mine / total if total else None,
            weight_share=of.limits.weight / weights if everybody and weights else None,
            due=got.got / got.owed if got.owed else None,
            lead=got.got - got.owed,
            binding=tenant_binding(view, gates, of, pool.policy.max_waiting_tenant),
        )


def _gap(served: Served | None, scope: Sequence[str] | None) -> ServiceGap | None:
    """The largest one; whom it is between is told only of tenants that may be named."""
    largest = max(served.gaps, key=lambda gap: gap.gap, default=None) if served else None
    if largest is None or scope is None:
        return largest
    most, least = (name if name in scope else "another tenant" for name in (largest.most, largest.least))
    return ServiceGap(largest.tier, largest.gap, most, least)


def _most(rows: Sequence[TenantRow], of: Callable[[TenantRow], int]) -> TenantRow | None:
    first = max(rows, key=of, default=None)
    return first if first and of(first) else None
