"""Reads the queue, for people and for metrics: every read is bounded, and long lists come in pages.

A page is (its entries, the cursor of the next page or None). Lists of one line are paged by seq, so that nothing is
shown twice or left out while the line moves; indexes are paged by rank, newest or soonest first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Literal, Protocol, TypeVar, cast

from fairlane.errors import InvalidRequest, NotFound
from fairlane.model import (
    BackendCounts,
    BackendView,
    Explanation,
    GateReason,
    GateView,
    Job,
    Limits,
    Overview,
    State,
    TenantView,
    TierGate,
    TierView,
)
from fairlane.queue import replies
from fairlane.queue.pools import Pool
from fairlane.queue.replies import MovedAway
from fairlane.queue.store import Store

PAGE_MOST: Final = 1000
COUNTED_MOST: Final = 1000  # entries of its own line that `explain` counts before a job
Index = Literal["leased", "delayed", "done", "dead"]
T = TypeVar("T")
Fields = dict[bytes, bytes]

_INDEX: Final[dict[Index, str]] = {"leased": "leases", "delayed": "due", "done": "done", "dead": "dead"}
_BRIEF: Final = (
    "state", "was", "tenant", "tier", "seq", "at", "created", "due", "deadline", "batch", "max", "head", "tries",
    "lease", "attempts", "dead", "ended", "status", "error", "usage",
)  # fmt: skip


class AtJob(Protocol):
    """Does something in the pool that a job is in now (engine.Queue.at_job)."""

    def __call__(self, job_id: str, act: Callable[[Pool], Awaitable[T]]) -> Awaitable[T]: ...


class Inspection:
    """What the queue holds, without changing anything."""

    def __init__(self, store: Store, at_job: AtJob) -> None:
        self._store = store
        self._at_job = at_job

    async def job(self, job_id: str) -> Job:
        """Everything about one job, wherever it was moved. Raises NotFound."""

        async def read(pool: Pool) -> Job:
            fields = await self._store.bounded(self._store.client.hgetall(pool.key("job", job_id)))
            return _job(job_id, pool, {name.decode(): value for name, value in fields.items()})

        return await self._at_job(job_id, read)

    async def explain(self, job_id: str) -> Explanation:
        """Why a job waits, at this moment. Raises NotFound."""

        async def read(pool: Pool) -> Explanation:
            return _explanation(await self._store.run("explain", pool.prefix, job_id, str(COUNTED_MOST)))

        return await self._at_job(job_id, read)

    async def overview(self, pool: Pool) -> Overview:
        """A pool at a glance: a fixed number of reads for each tier and backend."""
        pipe = self._store.client.pipeline(transaction=False)
        for tier in pool.policy.tiers:
            pipe.hget(pool.key("pool"), f"waiting:{tier}")
            pipe.zcard(pool.key("oldest", tier))
            pipe.zcard(pool.key("ring", tier))
            pipe.zrange(pool.key("oldest", tier), 0, 0, withscores=True)
            pipe.hexists(pool.key("pool"), f"paused:{tier}")
        for index in ("due", "leases", "held", "dead"):
            pipe.zcard(pool.key(index))
        pipe.hexists(pool.key("pool"), "paused")
        pipe.hget(pool.key("pool"), "backends")
        *by_tier, delayed, leased, held, dead, paused, names = await self._store.bounded(pipe.execute())
        tiers = tuple(_tier_view(tier, by_tier[5 * n : 5 * n + 5]) for n, tier in enumerate(pool.policy.tiers))
        known = cast("bytes | None", names) or b""
        backends: list[BackendView] = []
        for name in known.split():
            with suppress(NotFound):  # removed in the meantime
                backends.append(await self.backend(pool, name.decode()))
        delayed, leased, held, dead = (cast(int, count) for count in (delayed, leased, held, dead))
        return Overview(tiers, delayed, leased, held, dead, bool(paused), tuple(backends))

    async def backend(self, pool: Pool, name: str) -> BackendView:
        """One backend. Raises NotFound."""
        fields = await self._store.bounded(self._store.client.hgetall(pool.key("backend", name)))
        if not fields:
            raise NotFound(f"There is no backend {name!r} in this pool.")
        return _backend_view(name, fields)

    async def limits(self, pool: Pool, tenant: str) -> Limits:
        """A tenant's limits in this pool; the defaults if none were set."""
        return replies.limits(await self._store.bounded(self._store.client.hget(pool.key("tenant", tenant), "limits")))

    async def tenants(
        self, pool: Pool, tier: str, cursor: int = 0, limit: int = 100
    ) -> tuple[list[TenantView], int | None]:
        """The tenants with queued work in one tier, the one that waits longest first."""
        stop = cursor + _bounded(limit) - 1
        rows = await self._store.bounded(
            self._store.client.zrange(pool.key("oldest", tier), cursor, stop, withscores=True)
        )
        if not rows:
            return [], None
        names = [name for name, _ in rows]
        pipe = self._store.client.pipeline(transaction=False)
        for name in names:
            pipe.hmget(pool.key("tenant", name.decode()), ["waiting", "inflight"])
            pipe.zscore(pool.key("held"), name.decode())
        answers = iter(await self._store.bounded(pipe.execute()))
        views: list[TenantView] = []
        for (name, at), counts, held in zip(rows, answers, answers, strict=True):
            waiting, inflight = (int(n or 0) for n in cast("list[bytes | None]", counts))
            views.append(TenantView(name.decode(), int(at), waiting, inflight, cast("float | None", held)))
        return views, (stop + 1 if len(rows) == limit else None)

    async def line(
        self, pool: Pool, tier: str, tenant: str, cursor: int = 0, limit: int = 100
    ) -> tuple[list[Job], int | None]:
        """The queued jobs of one line, in the order in which they will run; payloads are left out."""
        count = _bounded(limit)
        pipe = self._store.client.pipeline(transaction=False)
        pipe.xrange(pool.key("line", tier, tenant), f"{cursor + 1}-0", "+", count)
        pipe.zrangebyscore(pool.key("rejoin", tier, tenant), f"({cursor}", "+inf", 0, count, True)
        streamed, back = await self._store.bounded(pipe.execute())
        entries = cast("list[tuple[bytes, Fields]]", streamed)
        ids = [(int(entry.split(b"-")[0]), fields[b"j"].split()[0]) for entry, fields in entries]
        ids += [(int(score), job_id) for job_id, score in cast("list[tuple[bytes, float]]", back)]
        ids = sorted(ids)[:count]
        jobs = await self._brief(pool, [job_id for _, job_id in ids])
        return jobs, (ids[-1][0] if len(ids) == count else None)

    async def index(self, pool: Pool, index: Index, cursor: int = 0, limit: int = 100) -> tuple[list[Job], int | None]:
        """Jobs by when their lease ends, when they are due, or when they finished (latest first); no payloads."""
        stop = cursor + _bounded(limit) - 1
        latest_first = index in ("done", "dead")
        key = pool.key(_INDEX[index])
        ids = await self._store.bounded(self._store.client.zrange(key, cursor, stop, desc=latest_first))
        return await self._brief(pool, ids), (stop + 1 if len(ids) == limit else None)

    async def _brief(self, pool: Pool, ids: Sequence[bytes]) -> list[Job]:
        if not ids:
            return []
        pipe = self._store.client.pipeline(transaction=False)
        for job_id in ids:
            pipe.hmget(pool.key("job", job_id.decode()), _BRIEF)
        jobs: list[Job] = []
        for job_id, values in zip(ids, await self._store.bounded(pipe.execute()), strict=True):
            known = zip(_BRIEF, cast("list[bytes | None]", values), strict=True)
            fields = {name: value for name, value in known if value is not None}
            if "tier" in fields and fields["state"] != b"moved":  # else it is past its retention
                jobs.append(replies.job(job_id.decode(), pool.name, fields))
        return jobs


def _bounded(limit: int) -> int:
    if not 1 <= limit <= PAGE_MOST:
        raise InvalidRequest(f"A page has 1 to {PAGE_MOST} entries.", param="limit")
    return limit


def _job(job_id: str, pool: Pool, fields: dict[str, bytes]) -> Job:
    state = fields.get("state")
    if state is None:
        raise NotFound()
    if state in (b"moving", b"moved"):
        raise MovedAway(state.decode(), fields["moved_to"].decode())
    return replies.job(job_id, pool.name, fields)


def _tier_view(tier: str, answers: Sequence[object]) -> TierView:
    depth, tenants, runnable, first, paused = answers
    oldest = cast("list[tuple[bytes, float]]", first)
    return TierView(
        tier=tier,
        depth=int(cast("bytes | None", depth) or 0),
        tenants=cast(int, tenants),
        runnable=cast(int, runnable),
        oldest_ms=int(oldest[0][1]) if oldest else None,
        paused=bool(paused),
    )


def _backend_view(name: str, fields: Fields) -> BackendView:
    by_kind: dict[str, dict[str, str]] = {"gate": {}, "said": {}, "n": {}}
    for field, value in fields.items():
        kind, _, rest = field.decode().partition(":")
        if rest:
            by_kind[kind][rest] = value.decode()
    gates = {tier: _gate(packed) for tier, packed in by_kind["gate"].items()}

    def whole(name: bytes) -> int:
        return int(fields.get(name, 0))

    return BackendView(
        name=name,
        status=fields[b"status"].decode(),
        counts=BackendCounts(
            live=whole(b"taken") - whole(b"ended"),
            done=whole(b"ended") - whole(b"unfinished") - whole(b"noted"),
            denied=whole(b"denied"),
        ),
        fresh_at_ms=whole(b"fresh_at") or None,
        gates=gates,
        said=by_kind["said"],
        refusals={name: int(n) for name, n in by_kind["n"].items()},
        seen=fields.get(b"seen", b"{}").decode(),
    )


def _gate(packed: str) -> TierGate:
    limit, fallback, why = packed.split(" ")
    return TierGate(int(limit), int(fallback), cast(GateReason, why))


def _explanation(reply: replies.Reply) -> Explanation:
    state, tenant, tier, ahead, rank, tenants, held_by, held_until, paused, depths, gates = replies.items(reply)
    flat, row = replies.items(depths), replies.items(gates)
    views = (
        GateView(
            replies.text(row[i]),
            replies.number(row[i + 1]),
            replies.number(row[i + 2]),
            cast(GateReason, replies.text(row[i + 3])),
            replies.text(row[i + 4]),
        )
        for i in range(0, len(row), 5)
    )
    return Explanation(
        state=cast(State, replies.text(state)),
        tenant=replies.text(tenant),
        tier=replies.text(tier),
        ahead_in_line=replies.number(ahead),
        rank=replies.number(rank) if replies.number(rank) >= 0 else None,
        tenants=replies.number(tenants),
        held_by=replies.text(held_by) or None,
        held_until_ms=int(replies.text(held_until)) if held_until else None,
        paused=replies.number(paused) == 1,
        depths={replies.text(flat[i]): replies.number(flat[i + 1]) for i in range(0, len(flat), 2)},
        gates=tuple(views),
    )
