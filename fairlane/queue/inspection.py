"""Reads the queue, for people and for metrics: every read is bounded, and long lists come in pages.

A page is (its entries, the cursor of the next page or None). Lists of one line are paged by seq, so that nothing is
shown twice or left out while the line moves; indexes are paged by rank, newest or soonest first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, Protocol, TypeVar, cast

from fairlane.errors import InvalidRequest, NotFound
from fairlane.model import Job, Limits
from fairlane.queue import replies, streams, views
from fairlane.queue.pools import Pool
from fairlane.queue.replies import MovedAway
from fairlane.queue.store import Store
from fairlane.queue.streams import Page, Position
from fairlane.queue.trends import TrendReads
from fairlane.queue.views import Fields
from fairlane.standing import (
    Allowance,
    BackendView,
    DispatcherView,
    Explanation,
    Finish,
    LineView,
    Overview,
    PolicyChange,
    PoolLoad,
    TenantStanding,
    TenantView,
)

PAGE_MOST: Final = 1000
SILENT_MS: Final = 30_000  # a dispatcher that was not heard for so long is forgotten
COUNTED_MOST: Final = 1000  # entries of its own line that `explain` counts before a job
Index = Literal["leased", "delayed", "done", "dead"]
T = TypeVar("T")

_INDEX: Final[dict[Index, str]] = {"leased": "leases", "delayed": "due", "done": "done", "dead": "dead"}
_BRIEF: Final = (
    "state", "was", "spec", "created", "due", "deadline", "batch", "head", "tries", "lease", "attempts", "dead",
    "ended", "status", "error", "usage",
)  # fmt: skip
_OUTCOME: Final = (*_BRIEF, "result", "moved_to")


class AtJob(Protocol):
    """Does something in the pool that a job is in now (engine.Queue.at_job)."""

    def __call__(self, job_id: str, act: Callable[[Pool], Awaitable[T]]) -> Awaitable[T]: ...


class Inspection(TrendReads):
    """What the queue holds, without changing anything."""

    def __init__(self, store: Store, at_job: AtJob) -> None:
        super().__init__(store)
        self._at_job = at_job

    async def job(self, job_id: str) -> Job:
        """Everything about one job, wherever it was moved. Raises NotFound."""

        async def read(pool: Pool) -> Job:
            fields = await self._store.bounded(self._store.client.hgetall(pool.key("job", job_id)))
            return _job(job_id, pool, {name.decode(): value for name, value in fields.items()})

        return await self._at_job(job_id, read)

    async def outcome(self, job_id: str) -> Job:
        """One job without its request's body: for whoever waits for it. Raises NotFound."""

        async def read(pool: Pool) -> Job:
            values = await self._store.bounded(self._store.client.hmget(pool.key("job", job_id), _OUTCOME))
            known = zip(_OUTCOME, values, strict=True)
            return _job(job_id, pool, {name: value for name, value in known if value is not None})

        return await self._at_job(job_id, read)

    async def jobs(self, pool: Pool, ids: Sequence[str]) -> list[Job]:
        """Those of up to PAGE_MOST jobs that are in `pool`, without bodies and results."""
        if len(ids) > PAGE_MOST:
            raise InvalidRequest(f"At most {PAGE_MOST} jobs are read at once.", param="ids")
        return await self._brief(pool, [id_.encode() for id_ in ids])

    async def outcomes(self, pool: Pool, ids: Sequence[str]) -> list[Job]:
        """Those of up to PAGE_MOST jobs that are in `pool`, without their requests' bodies, in one round trip."""
        if len(ids) > PAGE_MOST:
            raise InvalidRequest(f"At most {PAGE_MOST} jobs are read at once.", param="ids")
        return await self._brief(pool, [id_.encode() for id_ in ids], _OUTCOME)

    async def chunks(self, pool: Pool, job_id: str, after: Position | None = None) -> Page:
        """A streamed answer's chunks after a position, page by page. Raises NotFound, MovedAway."""
        return await streams.read(self._store, pool, job_id, after)

    async def explain(self, job_id: str) -> Explanation:
        """Why a job waits, at this moment. Raises NotFound."""

        async def read(pool: Pool) -> Explanation:
            return views.explanation(await self._store.run("explain", pool.prefix, job_id, str(COUNTED_MOST)))

        return await self._at_job(job_id, read)

    async def overview(self, pool: Pool) -> Overview:
        """A pool at a glance: a fixed number of reads for each tier and backend."""
        pipe = self._store.client.pipeline(transaction=False)
        for tier in pool.policy.tiers:
            pipe.hmget(pool.key("pool"), [f"waiting:{tier}", f"inflight:{tier}"])
            pipe.zcard(pool.key("oldest", tier))
            pipe.zcard(pool.key("ring", tier))
            pipe.zrange(pool.key("oldest", tier), 0, 0, withscores=True)
            pipe.hexists(pool.key("pool"), f"paused:{tier}")
        for index in ("due", "leases", "held", "dead"):
            pipe.zcard(pool.key(index))
        pipe.hexists(pool.key("pool"), "paused")
        *by_tier, delayed, leased, held, dead, paused = await self._store.bounded(pipe.execute())
        tiers = tuple(views.tier_view(tier, by_tier[5 * n : 5 * n + 5]) for n, tier in enumerate(pool.policy.tiers))
        load = await self.load(pool)
        delayed, leased, held, dead = (cast(int, count) for count in (delayed, leased, held, dead))
        return Overview(tiers, delayed, leased, held, dead, bool(paused), load.backends, load.steer, load.now_ms)

    async def load(self, pool: Pool) -> PoolLoad:
        """The work in each tier and every backend, all of one moment."""
        return views.pool_load(await self._store.run("load", pool.prefix))

    async def finishes(self, pool: Pool, after: str, most: int = PAGE_MOST) -> tuple[list[Finish], str]:
        """Up to `most` jobs that got their outcome, in that order, and the cursor of the next call.

        `after` is a cursor; '' gives the newest and where to go on from them. What was trimmed meanwhile is left out.
        """
        if not 1 <= most <= PAGE_MOST:
            raise InvalidRequest(f"A page has 1 to {PAGE_MOST} entries.", param="most")
        pipe = self._store.client.pipeline(transaction=False)
        if after:
            pipe.xrange(pool.key("events"), f"({after}", "+", most)
        else:
            pipe.xrevrange(pool.key("events"), "+", "-", most)
        (found,) = await self._store.bounded(pipe.execute())
        entries = cast("list[tuple[bytes, dict[bytes, bytes]]]", found)[:: 1 if after else -1]
        finishes = [views.finish(fields) for _, fields in entries if b"times" in fields]
        return finishes, entries[-1][0].decode() if entries else after

    async def dispatchers(self, pool: Pool) -> list[DispatcherView]:
        """Up to PAGE_MOST dispatchers that were heard in the last SILENT_MS, the one heard longest ago first."""
        args = (str(SILENT_MS), str(PAGE_MOST))
        now, *row = replies.texts(await self._store.run("dispatchers", pool.prefix, *args))
        rows = zip(row[::4], map(int, row[1::4]), row[2::4], row[3::4], strict=True)
        return [DispatcherView(name, at, info, int(now) - at, told == "1") for name, at, info, told in rows]

    async def backend(self, pool: Pool, name: str) -> BackendView:
        """One backend. Raises NotFound."""
        fields = await self._store.bounded(self._store.client.hgetall(pool.key("backend", name)))
        if not fields:
            raise NotFound(f"There is no backend {name!r} in this pool.")
        return views.backend_view(name, fields)

    async def limits(self, pool: Pool, tenant: str) -> Limits:
        """A tenant's limits in this pool; the defaults if none were set."""
        return replies.limits(await self._store.bounded(self._store.client.hget(pool.key("tenant", tenant), "limits")))

    async def tenant(self, pool: Pool, tenant: str) -> TenantStanding:
        """A tenant's limits and what it has in this pool; nothing and the defaults if it is not known."""
        pipe = self._store.client.pipeline(transaction=False)
        pipe.hmget(pool.key("tenant", tenant), ["limits", "waiting", "inflight", "paused"])
        pipe.zscore(pool.key("held"), tenant)
        values, held = await self._store.bounded(pipe.execute())
        limits, waiting, inflight, paused = cast("list[bytes | None]", values)
        return TenantStanding(
            replies.limits(limits),
            int(waiting or 0),
            int(inflight or 0),
            paused is not None,
            cast("float | None", held),
        )

    async def allowance(self, pool: Pool, tenant: str) -> Allowance:
        """What a tenant's rates still allow in this pool."""
        reply = replies.items(await self._store.run("allowance", pool.prefix, tenant))
        limits, *numbers = replies.text(reply[0]), *map(replies.number, reply[1:])
        return Allowance(replies.limits(limits.encode() or None), *numbers)

    async def policy_history(self, pool: Pool, limit: int = 100) -> list[PolicyChange]:
        """The last changes of the pool's policy, the latest first; 100 are kept."""
        rows = await self._store.bounded(
            self._store.client.zrange(pool.key("history"), 0, _bounded(limit) - 1, desc=True)
        )
        return [views.policy_change(row.decode()) for row in rows]

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
        seen: list[TenantView] = []
        for (name, at), counts, held in zip(rows, answers, answers, strict=True):
            waiting, inflight = (int(n or 0) for n in cast("list[bytes | None]", counts))
            seen.append(TenantView(name.decode(), int(at), waiting, inflight, cast("float | None", held)))
        return seen, (stop + 1 if len(rows) == limit else None)

    async def lines(self, pool: Pool, tier: str, most: int = 100) -> list[LineView]:
        """Up to `most` lines with queued work in one tier, the one whose head has waited longest first."""
        rows = await self._store.bounded(
            self._store.client.zrange(pool.key("oldest", tier), 0, _bounded(most) - 1, withscores=True)
        )
        if not rows:
            return []
        names = [name.decode() for name, _ in rows]
        pipe = self._store.client.pipeline(transaction=False)
        for name in names:
            pipe.xlen(pool.key("line", tier, name))
            pipe.zcard(pool.key("rejoin", tier, name))
            pipe.zscore(pool.key("held"), name)
            pipe.hget(pool.key("tenant", name), "limits")
        answers = iter(await self._store.bounded(pipe.execute()))
        return [
            views.line_view(name, int(at), *row)
            for name, (_, at), row in zip(
                names, rows, zip(answers, answers, answers, answers, strict=True), strict=True
            )
        ]

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

    async def _brief(self, pool: Pool, ids: Sequence[bytes], names: Sequence[str] = _BRIEF) -> list[Job]:
        if not ids:
            return []
        pipe = self._store.client.pipeline(transaction=False)
        for job_id in ids:
            pipe.hmget(pool.key("job", job_id.decode()), names)
        jobs: list[Job] = []
        for job_id, values in zip(ids, await self._store.bounded(pipe.execute()), strict=True):
            known = zip(names, cast("list[bytes | None]", values), strict=True)
            fields = {name: value for name, value in known if value is not None}
            if "spec" in fields and "moved_to" not in fields:  # else it is past its retention, or in another pool
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
