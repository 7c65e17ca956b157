"""A tenant's jobs over all pools, page by page.

The queue keeps no list of a tenant's jobs, so a page is put together from the pool's own lists: each line of the
tenant, then the indexes, from which others' jobs are left out. One request makes at most READS reads; a page may be
short, and is the last one only if it has no cursor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast, get_args

from fairlane.errors import InvalidRequest, UnknownTier
from fairlane.jobview import job_view
from fairlane.model import Job
from fairlane.queue.engine import Queue
from fairlane.queue.inspection import Index
from fairlane.queue.pools import Pool

READS: Final = 20
STATES: Final = ("queued", "delayed", "leased", "succeeded", "failed", "cancelled", "expired")
_FINISHED: Final = ("succeeded", "failed", "cancelled", "expired")


@dataclass(frozen=True, slots=True)
class _Source:
    """One list to read from: a line (`tier`), or an index."""

    pool: Pool
    tier: str | None = None
    index: Index | None = None


async def list_jobs(
    queue: Queue, tenant: str, state: str | None, tier: str | None, cursor: str | None, limit: int
) -> dict[str, Any]:
    """`{"data", "next_cursor"}`. Raises InvalidRequest, UnknownTier."""
    if state is not None and state not in STATES:
        raise InvalidRequest(f"state is one of {', '.join(STATES)}.", param="state")
    sources = _sources(await queue.pools.all(), state, tier)
    at, inner = _parsed(cursor)
    found: dict[str, Job] = {}  # a job that moves on while we read may be met twice
    for _ in range(READS):
        if at >= len(sources) or len(found) == limit:
            break
        jobs, following = await _page(queue, sources[at], tenant, inner, limit - len(found))
        found |= {j.id: j for j in jobs if j.tenant == tenant and state in (None, j.state) and tier in (None, j.tier)}
        at, inner = (at, following) if following is not None else (at + 1, 0)
    more = f"{at}.{inner}" if at < len(sources) else None
    return {"data": [job_view(job) for job in found.values()], "next_cursor": more}


def _sources(pools: Sequence[Pool], state: str | None, tier: str | None) -> list[_Source]:
    if tier is not None and not any(tier in pool.policy.tiers for pool in pools):
        raise UnknownTier(f"No pool has a tier {tier!r}.", param="tier")
    sources: list[_Source] = []
    for pool in pools:
        if state in (None, "queued"):
            sources += [_Source(pool, tier=each) for each in pool.policy.tiers if tier in (None, each)]
        for index in cast("tuple[Index, ...]", get_args(Index)):
            states = _FINISHED if index == "done" else (index,)
            if index != "dead" and (state is None or state in states):  # the dead are among the done
                sources.append(_Source(pool, index=index))
    return sources


async def _page(queue: Queue, source: _Source, tenant: str, inner: int, count: int) -> tuple[list[Job], int | None]:
    if source.tier is not None:
        return await queue.inspect.line(source.pool, source.tier, tenant, inner, count)
    return await queue.inspect.index(source.pool, cast(Index, source.index), inner, count)


def _parsed(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    at, _, inner = cursor.partition(".")
    if not (at.isdecimal() and inner.isdecimal() and len(at) < 6 and len(inner) < 17):
        raise InvalidRequest("This cursor is not one that was given out.", param="cursor")
    return int(at), int(inner)
