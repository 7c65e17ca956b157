"""Looks for jobs in a pool, a part at a time: bounded reads, whatever is looked for.

Each function goes on after a place, and returns the place that it came to. A place is in an order that does not change
while jobs come and go: queued jobs in the order in which their pool took them in (seq), running ones in that of their
ids, those of an index in that of their times.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

from fairlane.errors import NotFound
from fairlane.queue import replies
from fairlane.queue.pools import Pool
from fairlane.queue.replies import MovedAway
from fairlane.queue.store import Store

FIRST_LINES: Final = 64  # are opened by one script; then more and more, up to …
MORE_LINES: Final = 256
LINES_MOST: Final = 2500  # of one tier in one call
LOOKS: Final = 300  # entries of an index that one script looks at: 3 ms
LEASES_MOST: Final = 10_000
Index = Literal["due", "done", "dead"]


@dataclass(frozen=True, slots=True)
class Sought:
    """Which jobs are looked for; None: whichever. `tenants` are any of these; the times are those of arrival, in ms.

    `dead`: only dead ones, or none of them.
    """

    states: frozenset[str]
    tenants: frozenset[str] | None = None
    tier: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    dead: bool | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Jobs' ids, the place that was come to (None: nothing follows), and how many entries were looked at for them.

    `partial`: some are left out, since there are too many lines to look into.
    """

    ids: tuple[str, ...]
    place: str | None
    looked: int
    partial: bool = False


@dataclass(frozen=True, slots=True)
class _Row:
    """A queued job. `streamed`: no job that came before it can have a greater seq."""

    seq: int
    id: str
    at_ms: int
    streamed: bool


async def indexed(store: Store, pool: Pool, index: Index, sought: Sought, place: str, most: int) -> Found:
    """Up to `most` jobs of an index after a place ('': from the start), by LOOKS entries: those due first come first,
    and of what has ended the latest."""
    score, _, name = place.partition(" ")
    args = (index, "up" if index == "due" else "down", score, name, str(LOOKS), str(most), *_match_args(sought))
    reply = replies.items(await store.run("next_indexed", pool.prefix, *args))
    score, name, *ids = map(replies.text, reply[1:])
    return Found(tuple(ids), f"{score} {name}" if name else None, replies.number(reply[0]))


async def leased(store: Store, pool: Pool, sought: Sought, place: str, most: int) -> Found:
    """Up to `most` running jobs after a place ('': from the start), those that came first before others.

    Of more than LEASES_MOST leases only those are looked at that end first.
    """
    args = (str(LEASES_MOST), place, str(LOOKS), str(most), *_match_args(sought))
    reply = replies.items(await store.run("next_leased", pool.prefix, *args))
    last, *ids = map(replies.text, reply[1:])
    return Found(tuple(ids), last or None, replies.number(reply[0]))


async def queued(store: Store, pool: Pool, tier: str, sought: Sought, place: str, most: int) -> Found:
    """Up to `most` queued jobs of one tier after a place ('': from the start), those that came first before others.

    Lines are opened, the one whose head has waited longest first, until none that is left can have an earlier job; of
    all tenants' not more than LINES_MOST.
    """
    after = int(place or 0)
    rows: dict[int, _Row] = {}
    upto, floor, looked, opened = math.inf, after, 0, 0
    async for names, rest_ms in _lines(store, pool, tier, sought):
        bounds = ("" if ms is None else str(ms) for ms in (sought.from_ms, sought.to_ms))
        args = (tier, str(after), str(most), *bounds, str(floor), *names)
        bound, low, looks, flat = replies.items(await store.run("next_queued", pool.prefix, *args))
        upto = min(upto, int(replies.text(bound) or 0) or math.inf)
        floor, looked = int(replies.text(low)), looked + replies.number(looks)
        rows |= {row.seq: row for row in _rows(cast("list[bytes | int]", flat))}
        opened += len(names)
        if upto <= max((row.seq for row in rows.values() if row.streamed and row.at_ms < rest_ms), default=-1):
            opened = 0  # what is in the lines that are left came later
            break
    seqs = sorted(seq for seq in rows if seq <= upto)
    if len(seqs) >= most:
        seqs = seqs[:most]
        upto = seqs[-1]
    ids = tuple(rows[seq].id for seq in seqs)
    partial = sought.tenants is None and opened >= LINES_MOST
    return Found(ids, None if math.isinf(upto) else str(int(upto)), looked, partial)


async def payload_sizes(store: Store, pool: Pool, job_id: str) -> tuple[int, int]:
    """The bytes of a job's request and of its result, without reading them. Raises NotFound, MovedAway."""
    pipe = store.client.pipeline(transaction=False)
    pipe.hmget(pool.key("job", job_id), ["state", "moved_to"])
    pipe.hstrlen(pool.key("job", job_id), "body")
    pipe.hstrlen(pool.key("job", job_id), "result")
    known, body, result = await store.bounded(pipe.execute())
    state, moved_to = cast("list[bytes | None]", known)
    if state is None:
        raise NotFound()
    if state in (b"moving", b"moved"):
        raise MovedAway(state.decode(), (moved_to or b"").decode())
    return cast(int, body), cast(int, result)


async def lines_of(store: Store, pool: Pool, tier: str, tenants: Sequence[str]) -> dict[str, int]:
    """How many jobs each of these tenants has in its line, of those that have any."""
    pipe = store.client.pipeline(transaction=False)
    for tenant in tenants:
        pipe.xlen(pool.key("line", tier, tenant))
        pipe.zcard(pool.key("rejoin", tier, tenant))
    answers = iter(cast("list[int]", await store.bounded(pipe.execute())) if tenants else [])
    counted = {tenant: streamed + back for tenant, streamed, back in zip(tenants, answers, answers, strict=True)}
    return {tenant: jobs for tenant, jobs in counted.items() if jobs}


async def _lines(store: Store, pool: Pool, tier: str, sought: Sought) -> AsyncIterator[tuple[Sequence[str], float]]:
    """Tenants whose lines may hold what is sought, and when the head of the first that is left arrived at the earliest
    (ms)."""
    if sought.tenants is not None:
        names = sorted(sought.tenants)
        for start in range(0, len(names), MORE_LINES):
            yield names[start : start + MORE_LINES], -math.inf
        return
    last = "+inf" if sought.to_ms is None else str(sought.to_ms)
    first, skip, size, seen = "-inf", 0, FIRST_LINES, 0
    while seen < LINES_MOST:
        pipe = store.client.pipeline(transaction=False)
        pipe.zrangebyscore(pool.key("oldest", tier), first, last, skip, size, True)
        (found,) = cast("list[list[tuple[bytes, float]]]", await store.bounded(pipe.execute()))
        if not found:
            return
        rest_ms = found[-1][1]
        yield [name.decode() for name, _ in found], rest_ms if len(found) == size else math.inf
        if len(found) < size:
            return
        # heads only come to wait less long: who moves in this order meanwhile is met again, and is not left out
        skip = (skip if str(rest_ms) == first else 0) + sum(ms == rest_ms for _, ms in found)
        first, size, seen = str(rest_ms), min(2 * size, MORE_LINES), seen + len(found)


def _rows(flat: Sequence[bytes | int]) -> list[_Row]:
    quads = zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True)
    return [_Row(int(seq), cast(bytes, id_).decode(), int(at), at_streamed == 1) for seq, id_, at, at_streamed in quads]


def _match_args(sought: Sought) -> list[str]:
    """As lib/match.lua has it."""
    bounds = ("" if ms is None else str(ms) for ms in (sought.from_ms, sought.to_ms))
    dead = "" if sought.dead is None else str(int(sought.dead))
    return [" ".join(sorted(sought.states)), dead, sought.tier or "", *bounds, *sorted(sought.tenants or ())]
