"""The dispatchers as an operator sees them: processes that were heard lately, what they hold, how one is drained.

A process goes by one name in all pools that it serves, and has a new one with each start.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from fairlane.errors import NotFound
from fairlane.queue import replies
from fairlane.queue.checks import check_dispatcher
from fairlane.queue.engine import Queue
from fairlane.queue.inspection import SILENT_MS
from fairlane.queue.pools import Pool
from fairlane.standing import DispatcherView

HELD_MOST: Final = 100
POOLS_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Post:
    """What a dispatcher does for one pool: `inflight` jobs and its `roles`, as it last said, `silent_ms` ago."""

    pool: str
    silent_ms: int
    inflight: int
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """One process. `host` and `pid` are what it says of itself; `draining`: it was told to, and ends."""

    name: str
    host: str
    pid: int | None
    draining: bool
    posts: tuple[Post, ...]

    @property
    def silent_ms(self) -> int:
        """For how long nothing was heard of it."""
        return min(post.silent_ms for post in self.posts)

    @property
    def inflight(self) -> int:
        """The jobs that it runs."""
        return sum(post.inflight for post in self.posts)

    @property
    def roles(self) -> tuple[str, ...]:
        """What it is elected to, in whatever pool."""
        return tuple(sorted({role for post in self.posts for role in post.roles}))


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job that a dispatcher has leased. Times in Unix milliseconds."""

    id: str
    pool: str
    tenant: str
    tier: str
    backend: str
    since_ms: int
    until_ms: int
    dispatcher: str


@dataclass(frozen=True, slots=True)
class Held:
    """Some leases of a pool: those among the first `looked` of `leases`, whose lease ends first."""

    jobs: tuple[HeldJob, ...]
    looked: int
    leases: int


class Fleet:
    """Every method may raise StoreUnavailable."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def dispatchers(self) -> list[Dispatcher]:
        """Those that were heard in the last SILENT_MS, by name; one call for each pool."""
        pools = await self._queue.pools.all()
        found: dict[str, list[tuple[str, DispatcherView]]] = {}
        for pool, views in zip(pools, await self._views(pools), strict=True):
            for view in views:
                found.setdefault(view.name, []).append((pool.name, view))
        return [_dispatcher(name, rows) for name, rows in sorted(found.items())]

    async def get(self, name: str) -> Dispatcher:
        """Raises NotFound if it was not heard lately."""
        for one in await self.dispatchers():
            if one.name == name:
                return one
        raise _unknown(name)

    async def held(
        self, pool: Pool, dispatcher: str = "", tenants: Collection[str] | None = None, most: int = HELD_MOST
    ) -> Held:
        """What a dispatcher ('': any) holds of a pool, up to `most`; only of these tenants (None: of all)."""
        if tenants is not None and not tenants:
            return Held((), 0, 0)
        args = (dispatcher, str(most), *sorted(tenants or ()))
        leases, looked, *rows = replies.items(await self._queue.store.run("leases", pool.prefix, *args))
        jobs = tuple(_held(pool.name, replies.texts(row)) for row in rows)
        return Held(jobs, replies.number(looked), replies.number(leases))

    async def drain(self, name: str) -> None:
        """Tells a dispatcher to take no more jobs, to end or hand back those that it has, and to end: it hears of it
        within a second, with its next beat. Repeatable. Raises NotFound if it was not heard lately.
        """
        check_dispatcher(name)
        told = False
        for pool in await self._queue.pools.all():  # in all that it serves: one of them may just be leaving it
            args = (name, str(SILENT_MS))
            told |= replies.number(await self._queue.store.run("drain_dispatcher", pool.prefix, *args)) == 1
        if not told:
            raise _unknown(name)

    async def _views(self, pools: Sequence[Pool]) -> list[list[DispatcherView]]:
        gate = asyncio.Semaphore(POOLS_AT_ONCE)

        async def read(pool: Pool) -> list[DispatcherView]:
            async with gate:
                return await self._queue.inspect.dispatchers(pool)

        return await asyncio.gather(*map(read, pools))


def _dispatcher(name: str, rows: Sequence[tuple[str, DispatcherView]]) -> Dispatcher:
    said = [(pool, view, _said(view.info)) for pool, view in rows]
    latest = min(said, key=lambda row: row[1].silent_ms)[2]
    return Dispatcher(
        name=name,
        host=str(latest.get("host", "")),
        pid=latest.get("pid"),
        draining=any(view.draining for _, view in rows),
        posts=tuple(
            Post(pool, view.silent_ms, int(info.get("inflight", 0)), tuple(info.get("roles", ())))
            for pool, view, info in said
        ),
    )


def _said(info: str) -> dict[str, Any]:
    """What dispatcher/service.py says; of another program there may be nothing that we know."""
    said: object = json.loads(info)
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}


def _held(pool: str, row: list[str]) -> HeldJob:
    id_, until, tenant, tier, backend, since, dispatcher = row
    return HeldJob(id_, pool, tenant, tier, backend, int(since), int(float(until)), dispatcher)


def _unknown(name: str) -> NotFound:
    return NotFound(f"There is no dispatcher {name[:100]!r}; it has ended, or was not heard for {SILENT_MS // 1000} s.")
