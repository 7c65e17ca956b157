"""Reads a pool's history, who was served of late, and how tenants stand: for the admin page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from fairlane.errors import InvalidRequest
from fairlane.queue import replies
from fairlane.queue.pools import Pool
from fairlane.queue.scripts import Reply
from fairlane.queue.store import Store
from fairlane.standing import Standing
from fairlane.trend import STEPS, Point, Served, Span, served_of, unpacked

STANDINGS_MOST: Final = 200  # tenants that are looked at in one call
MINUTE_POINTS: Final = 12  # of the finest step


class TrendReads:
    """What Inspection reads of a pool's past, and of its tenants side by side."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def trend(self, pool: Pool, span: Span) -> list[Point]:
        """The pool's history over one span, the oldest point first. Where no observer was at work there is none."""
        return await self._points(pool, span, 0)

    async def last_minute(self, pool: Pool) -> list[Point]:
        """The newest points of the finest step."""
        return await self._points(pool, "15m", -MINUTE_POINTS)

    async def served(self, pool: Pool) -> Served | None:
        """Who was served in the last minute; None if no observer has been at work of late."""
        text = await self._store.bounded(self._store.client.get(pool.key("served")))
        return served_of(text.decode()) if text else None

    async def standings(self, pool: Pool, tenants: Iterable[str]) -> list[Standing]:
        """How up to STANDINGS_MOST tenants stand in the pool, in the order given; also those that it does not know."""
        names = list(tenants)
        if len(names) > STANDINGS_MOST:
            raise InvalidRequest(f"At most {STANDINGS_MOST} tenants are looked at at once.", param="tenant")
        if not names:
            return []
        tiers, *rows = replies.items(await self._store.run("standings", pool.prefix, *names))
        return [_standing(replies.texts(tiers), replies.items(row)) for row in rows]

    async def notable(self, pool: Pool, most: int) -> list[str]:
        """Up to `most` tenants to look at: of each tier in turn those that wait longest, then those that are held."""
        pipe = self._store.client.pipeline(transaction=False)
        for tier in pool.policy.tiers:
            pipe.zrange(pool.key("oldest", tier), 0, most - 1)
        pipe.zrange(pool.key("held"), 0, most - 1)
        *lines, held = cast("list[list[bytes]]", await self._store.bounded(pipe.execute()))
        longest = max(map(len, lines), default=0)
        in_turn = [line[n] for n in range(longest) for line in lines if n < len(line)]
        return [name.decode() for name in dict.fromkeys([*in_turn, *held])][:most]

    async def _points(self, pool: Pool, span: Span, first: int) -> list[Point]:
        key = pool.key("trend", str(STEPS[span].s))
        entries = await self._store.bounded(self._store.client.zrange(key, first, -1))
        parts = (entry.decode().partition(" ") for entry in entries)
        return [unpacked(int(at), words) for at, _, words in parts]


def _standing(tiers: Sequence[str], row: Sequence[Reply]) -> Standing:
    """A row of standings.lua."""
    tenant, limits, waiting, inflight, held_by, until, *oldest = row
    arrived = {tier: replies.text(at) for tier, at in zip(tiers, oldest, strict=True)}
    return Standing(
        tenant=replies.text(tenant),
        limits=replies.limits(cast(bytes, limits) or None),
        waiting=replies.number(waiting),
        inflight=replies.number(inflight),
        held_by=replies.text(held_by) or None,
        held_until_ms=int(replies.text(until)) if until else None,
        oldest_ms={tier: int(float(at)) for tier, at in arrived.items() if at},
    )
