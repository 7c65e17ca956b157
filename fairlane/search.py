"""Looks for jobs over all pools: by pool, tenant, tier, state, age or batch, page by page.

A page is put together from the lists that the pools keep, one after the other: queued jobs by tier, from the highest
down; then delayed, running, finished and dead ones. One page takes at most READS reads and looks at about LOOKS_MOST
entries, so it may be short: it is the last one only if it has no cursor. Within a list nothing is shown twice or left
out while jobs come and go; one that moves on to another list may be met there again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from fairlane.batches.ledger import Ledger
from fairlane.errors import InvalidRequest, NotFound
from fairlane.model import FINISHED, Job
from fairlane.queue import searching
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.searching import Found, Index, Sought

READS: Final = 24
LOOKS_MOST: Final = 3000
LOOKS: Final = 1000  # jobs of a batch for one page
LIMIT_MOST: Final = 200
ERROR_MOST: Final = 2048  # bytes of a backend's error
READ_MOST: Final = 1 << 20  # of a larger one nothing is read
STATES: Final = ("queued", "delayed", "leased", "succeeded", "failed", "cancelled", "expired", "dead")
_CURSOR: Final = re.compile(r"(\w+)\.(\w+)((?::[\w-]+)?)\.(-?\d{0,15})\.(-?\d{0,15})\.([\w ]{0,100})", re.ASCII)
_NUMBER, _NUMBER_AND_ID = r"\d{0,16}", r"(\d{1,16} job_\w+)?"
_INNER: Final = {  # the places in a list, by its kind; '': its start
    "queued": _NUMBER, "batch": _NUMBER, "leases": r"(job_\w+)?",
    "due": _NUMBER_AND_ID, "done": _NUMBER_AND_ID, "dead": _NUMBER_AND_ID,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs; None: whichever. `pool` is a name. The ages are counted from when a job came into the queue."""

    pool: str | None = None
    tier: str | None = None
    tenant: str | None = None
    state: str | None = None
    older_than_s: float | None = None
    younger_than_s: float | None = None
    batch: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs without their requests and results, the next page's cursor (None: this is the last one), and how many
    entries were looked at to find them. `partial`: some are left out, since too many tenants' jobs wait in one tier."""

    jobs: tuple[Job, ...]
    cursor: str | None
    looked: int
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """One job without its request and result, how many bytes those have, and the pool that it is in now.

    Of a failed job `error_body` is the start of what its backend said, up to ERROR_MOST bytes; else it is empty.
    """

    job: Job
    pool: Pool
    request_bytes: int
    result_bytes: int
    error_body: bytes


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a page goes on: in the list `source` of a pool, by its code, after `inner`. The ages are what they were on
    the first page."""

    pool: str
    source: str
    from_ms: int | None
    to_ms: int | None
    inner: str

    def __str__(self) -> str:
        bounds = ("" if ms is None else str(ms) for ms in (self.from_ms, self.to_ms))
        return ".".join((self.pool, self.source, *bounds, self.inner))


async def search(
    queue: Queue,
    wanted: JobFilter,
    *,
    scope: frozenset[str] | None = None,
    cursor: str | None = None,
    limit: int = 50,
    now_ms: int | None = None,
) -> Page:
    """Up to `limit` (1 to LIMIT_MOST) jobs of the tenants in `scope` (None: all).

    Raises InvalidRequest for a state or cursor that does not exist, NotFound for such a pool or batch.
    """
    if wanted.state is not None and wanted.state not in STATES:
        raise InvalidRequest(f"state is one of {', '.join(STATES)}.", param="state")
    if not 1 <= limit <= LIMIT_MOST:
        raise InvalidRequest(f"A page has 1 to {LIMIT_MOST} entries.", param="limit")
    begun = _parsed(cursor)
    sought = _sought(wanted, scope, begun, int(time.time() * 1000) if now_ms is None else now_ms)
    if sought is None:
        return Page((), None, 0)
    if begun and (wanted.batch is not None) != (begun.source == "batch"):
        raise InvalidRequest("This cursor is another list's.", param="cursor")
    if wanted.batch is not None:
        return await _of_batch(queue, wanted.batch, scope, sought, begun.inner if begun else "", limit)
    return await _over(queue, await _pools(queue, wanted, begun), wanted, sought, begun, limit)


async def look(queue: Queue, job_id: str) -> Seen:
    """One job, wherever it was moved. Raises NotFound."""

    async def read(pool: Pool) -> Seen:
        request_bytes, result_bytes = await searching.payload_sizes(queue.store, pool, job_id)
        known = await queue.inspect.jobs(pool, [job_id])
        if not known:
            raise NotFound()
        job, said = known[0], b""
        if job.state == "failed" and 0 < result_bytes <= READ_MOST:
            said = ((await queue.inspect.outcome(job_id)).result or b"")[:ERROR_MOST]
        return Seen(job, pool, request_bytes, result_bytes, said)

    return await queue.at_job(job_id, read)


async def _over(
    queue: Queue, pools: Sequence[Pool], wanted: JobFilter, sought: Sought, begun: _Place | None, limit: int
) -> Page:
    lists = [(pool, source) for pool in pools for source in _sources(pool, wanted)]
    at, inner = 0, ""
    if begun:
        names = [(pool.code, source) for pool, source in lists]
        if (begun.pool, begun.source) not in names:
            raise InvalidRequest("What this cursor leads to is gone. Start again.", param="cursor")
        at, inner = names.index((begun.pool, begun.source)), begun.inner
    jobs: dict[str, Job] = {}
    reads = looked = 0
    partial = False
    while at < len(lists) and len(jobs) < limit and reads < READS and looked < LOOKS_MOST:
        pool, source = lists[at]
        found = await _read(queue, pool, source, sought, inner, limit - len(jobs))
        jobs |= {job.id: job for job in await queue.inspect.jobs(pool, found.ids) if _is_sought(job, sought)}
        reads, looked, partial = reads + 1, looked + found.looked, partial or found.partial
        at, inner = (at + 1, "") if found.place is None else (at, found.place)
    if at == len(lists):
        return Page(tuple(jobs.values()), None, looked, partial)
    pool, source = lists[at]
    following = _Place(pool.code, source, sought.from_ms, sought.to_ms, inner)
    return Page(tuple(jobs.values()), str(following), looked, partial)


def _sources(pool: Pool, wanted: JobFilter) -> list[str]:
    """The lists of a pool in which such jobs may be, in the order in which jobs go through them."""
    sources = [f"queued:{tier}" for tier in pool.policy.tiers if wanted.tier in (None, tier)]
    kept = {"queued": sources, "delayed": ["due"], "leased": ["leases"], "dead": ["dead"], "failed": ["done", "dead"]}
    if wanted.state is None:
        return [*sources, "due", "leases", "done", "dead"]
    return kept.get(wanted.state, ["done"])


async def _read(queue: Queue, pool: Pool, source: str, sought: Sought, inner: str, most: int) -> Found:
    kind, _, tier = source.partition(":")
    if kind == "queued":
        return await searching.queued(queue.store, pool, tier, sought, inner, most)
    if kind == "leases":
        return await searching.leased(queue.store, pool, replace(sought, states=frozenset({"leased"})), inner, most)
    if kind == "due":
        sought = replace(sought, states=frozenset({"delayed"}))
    else:
        sought = replace(sought, states=sought.states & FINISHED, dead=kind == "dead")
    return await searching.indexed(queue.store, pool, cast(Index, kind), sought, inner, most)


async def _of_batch(
    queue: Queue, batch_id: str, scope: frozenset[str] | None, sought: Sought, inner: str, limit: int
) -> Page:
    """Of a batch those jobs are known whose outcome was not collected, in the order of its file's lines."""
    ledger = Ledger(queue.store)
    record = await ledger.load(batch_id)
    if scope is not None and record.view.tenant not in scope:
        raise NotFound(f"There is no batch {batch_id[:100]!r}.", param="batch_id")
    after = int(inner or 0)
    lines = sorted((line, job) for job, line in (await ledger.open_jobs(batch_id)).items() if line > after)
    if not record.pool:
        return Page((), None, 0)
    pool = await queue.pools.by_code(record.pool)
    part = lines[:LOOKS]
    known = {job.id: job for job in await queue.inspect.jobs(pool, [job for _, job in part]) if _is_sought(job, sought)}
    jobs: list[Job] = []
    looked = 0
    for line, id_ in part:
        looked, after = looked + 1, line
        jobs += [known[id_]] if id_ in known else []
        if len(jobs) == limit:
            break
    more = looked < len(lines)
    place = _Place(pool.code, "batch", sought.from_ms, sought.to_ms, str(after))
    return Page(tuple(jobs), str(place) if more else None, looked)


def _sought(wanted: JobFilter, scope: frozenset[str] | None, begun: _Place | None, now_ms: int) -> Sought | None:
    """None: there can be no such job."""
    tenants = scope
    if wanted.tenant is not None:
        tenants = frozenset({wanted.tenant}) & (scope if scope is not None else {wanted.tenant})
    if tenants is not None and not tenants:
        return None
    from_ms = None if wanted.younger_than_s is None else now_ms - int(1000 * wanted.younger_than_s)
    to_ms = None if wanted.older_than_s is None else now_ms - int(1000 * wanted.older_than_s)
    if begun:
        from_ms, to_ms = begun.from_ms, begun.to_ms
    dead = wanted.state == "dead" or None
    state = "failed" if dead else wanted.state
    states = frozenset(STATES) if state is None else frozenset({state})
    return Sought(states, tenants, wanted.tier, from_ms, to_ms, dead)


def _is_sought(job: Job, sought: Sought) -> bool:
    """Whether a job still is what was looked for, when it is read."""
    return (
        job.state in sought.states
        and sought.dead in (None, job.dead)
        and (sought.tenants is None or job.tenant in sought.tenants)
        and sought.tier in (None, job.tier)
    )


async def _pools(queue: Queue, wanted: JobFilter, begun: _Place | None) -> list[Pool]:
    if wanted.pool is not None:
        return [await queue.pools.by_name(wanted.pool)]
    pools = await queue.pools.all()
    if begun:  # the order is that of names; those before are done
        codes = [pool.code for pool in pools]
        return pools[codes.index(begun.pool) :] if begun.pool in codes else pools
    return pools


def _parsed(cursor: str | None) -> _Place | None:
    if cursor is None:
        return None
    match = _CURSOR.fullmatch(cursor)
    if match is None or not re.fullmatch(_INNER.get(match[2], "(?!)"), match[6], re.ASCII):
        raise InvalidRequest("This cursor is not one that was given out.", param="cursor")
    pool, kind, tier, *bounds, inner = match.groups()
    from_ms, to_ms = (int(bound) if bound not in ("", "-") else None for bound in bounds)
    return _Place(pool, kind + tier, from_ms, to_ms, inner)
