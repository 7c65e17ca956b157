"""Reads tenants for the page: lists of them, and one with all that it may do and has. Every read is bounded."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from admin_ui.bridge import Stores
from admin_ui.numerals import whole
from fairlane.accounts.values import Account, KeyView
from fairlane.model import TENANT_PATTERN, Limits
from fairlane.queue.pools import Pool
from fairlane.queue.trends import STANDINGS_MOST
from fairlane.standing import Standing, TenantView

PAGE: Final = 50
POOLS_MOST: Final = 20  # in which a list's numbers are added up
KEYS_SHOWN: Final = 100
RANK_MOST: Final = 10**9  # of a tenant in its tier
NAME: Final = re.compile(TENANT_PATTERN)


@dataclass(frozen=True, slots=True)
class Row:
    """A tenant in a list; `account` None: it is not registered. `standings`: what it has, by the pool's name."""

    tenant: str
    account: Account | None
    standings: Mapping[str, Standing]

    @property
    def waiting(self) -> int:
        return sum(one.waiting for one in self.standings.values())

    @property
    def inflight(self) -> int:
        return sum(one.inflight for one in self.standings.values())

    @property
    def oldest_ms(self) -> int | None:
        return min((at for one in self.standings.values() for at in one.oldest_ms.values()), default=None)

    @property
    def held(self) -> list[tuple[str, str]]:
        """Where it is held, and by what."""
        return [(pool, one.held_by) for pool, one in self.standings.items() if one.held_by]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A tenant with queued work in one tier of a pool. `paused`: the tier is, or the whole pool."""

    tier: str
    paused: bool
    view: TenantView
    standing: Standing
    registered: bool


@dataclass(frozen=True, slots=True)
class Place:
    """What one tenant has in a pool. `own`: its limits are others there than its account says. `paused`: the tiers
    that are, by themselves or with the whole pool."""

    pool: Pool
    standing: Standing
    own: bool
    paused: frozenset[str]

    @property
    def max_waiting(self) -> int:
        limit = self.standing.limits.max_waiting
        return self.pool.policy.max_waiting_tenant if limit is None else limit


@dataclass(frozen=True, slots=True)
class Tenant:
    """All about one tenant. `keys`: the newest first, without secrets."""

    name: str
    account: Account | None
    keys: Sequence[KeyView]
    places: Sequence[Place]


async def registered(stores: Stores, starts: str, after: str) -> tuple[list[Row], str | None]:
    """A page of the registered tenants by name, of those that start so; and the cursor of the next one."""
    first = [found] if starts and not after and (found := await _find(stores, starts)) else []
    accounts, following = await stores.accounts.tenants(max(after, starts), PAGE)
    mine = [one for one in accounts if one.tenant.startswith(starts)]
    rows = await _rows(stores, {one.tenant: one for one in [*first, *mine]})
    return rows, following if len(mine) == len(accounts) else None


async def named(stores: Stores, tenants: Sequence[str]) -> list[Row]:
    """These tenants, registered or not."""
    shown = tenants[:STANDINGS_MOST]
    known = await stores.accounts.known(shown)
    return await _rows(stores, {name: known.get(name) for name in shown})


async def waiting(stores: Stores, name: str, cursor: str) -> tuple[list[Waiting], str | None]:
    """A page of those with queued work in a pool, from the highest tier down, in each who waits longest first.

    `cursor` is `tier:rank`, '' for the first page. Raises NotFound.
    """
    pool = await stores.queue.pools.by_name(name)
    tier, rank = _position(pool, cursor)
    found: list[tuple[str, TenantView]] = []
    following: str | None = None
    for at in pool.policy.tiers[pool.policy.tiers.index(tier) :]:
        views, more = await stores.queue.inspect.tenants(pool, at, rank if at == tier else 0, PAGE - len(found))
        found += [(at, view) for view in views]
        if len(found) == PAGE:
            following = None if more is None else f"{at}:{more}"
            break
    return await _waiting(stores, pool, found), following


async def tenant(stores: Stores, name: str) -> Tenant:
    """One tenant, whether anything is known of it or not."""
    account, pools = await asyncio.gather(stores.accounts.find(name), stores.queue.pools.all())
    keys = await stores.accounts.keys(name) if account else []
    places = await asyncio.gather(*(_place(stores, pool, name, account) for pool in pools))
    return Tenant(name, account, keys[::-1], places)


async def _waiting(stores: Stores, pool: Pool, found: Sequence[tuple[str, TenantView]]) -> list[Waiting]:
    names = list(dict.fromkeys(view.tenant for _, view in found))
    standings, paused, known = await asyncio.gather(
        stores.queue.inspect.standings(pool, names), _paused(stores, pool), stores.accounts.known(names)
    )
    by_name = {one.tenant: one for one in standings}
    return [Waiting(tier, tier in paused, view, by_name[view.tenant], view.tenant in known) for tier, view in found]


async def _place(stores: Stores, pool: Pool, name: str, account: Account | None) -> Place:
    (one,), paused = await asyncio.gather(stores.queue.inspect.standings(pool, [name]), _paused(stores, pool))
    return Place(pool, one, _is_own(account, one.limits), paused)


async def _paused(stores: Stores, pool: Pool) -> frozenset[str]:
    """The tiers that are paused, by themselves or with the whole pool."""
    view = await stores.queue.inspect.overview(pool)
    return frozenset(tier.tier for tier in view.tiers if view.paused or tier.paused)


async def _rows(stores: Stores, accounts: Mapping[str, Account | None]) -> list[Row]:
    pools = (await stores.queue.pools.all())[:POOLS_MOST]
    names = list(accounts)
    found = await asyncio.gather(*(stores.queue.inspect.standings(pool, names) for pool in pools))
    by_pool = {pool.name: {one.tenant: one for one in each} for pool, each in zip(pools, found, strict=True)}
    return [
        Row(name, account, {pool: each[name] for pool, each in by_pool.items()}) for name, account in accounts.items()
    ]


async def _find(stores: Stores, name: str) -> Account | None:
    return await stores.accounts.find(name) if NAME.fullmatch(name) else None


def _position(pool: Pool, cursor: str) -> tuple[str, int]:
    """Where a page starts; the first one for a cursor of a tier that is gone."""
    tier, _, rank = cursor.partition(":")
    at = whole(rank, RANK_MOST)
    return (tier, at) if tier in pool.policy.tiers and at is not None else (pool.policy.tiers[0], 0)


def _is_own(account: Account | None, limits: Limits) -> bool:
    """A pool where a tenant has not submitted yet has no copy of its limits."""
    return limits != Limits() if account is None else limits not in (account.limits, Limits())
