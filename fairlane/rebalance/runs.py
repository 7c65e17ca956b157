"""Runs as they stand in Redis: to make one, to say what becomes of it, and to look at it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Final, cast

from fairlane.errors import InvalidRequest, NotFound
from fairlane.ids import ALPHABET, CODE_LENGTH, RANDOM_LENGTH, Ids, RandomIds
from fairlane.queue import replies
from fairlane.queue.checks import check_tenant, check_tier
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.rebalance.values import MAY, MOST_JOBS, MOST_POOLS, Forecast, Plan, Run, RunState, Verb, run_of

OPEN_MOST: Final = 16  # runs under way in one pool
PAGE_MOST: Final = 100
TO: Final[Mapping[Verb, RunState]] = {"weigh": "ready", "apply": "applying", "abort": "aborted", "undo": "undoing"}
_PREFIX: Final = "run_"


class Runs:
    """All runs on one Redis. Every method may raise what the queue's do."""

    def __init__(self, queue: Queue, ids: Ids | None = None) -> None:
        self._queue = queue
        self._store = queue.store
        self._ids = ids or RandomIds()

    async def create(self, plan: Plan, by: str) -> Run:
        """Begins a run: what waits now is chosen from, and weighed; nothing is moved before `apply`.

        Raises InvalidRequest, UnknownTier, NotFound, IllegalTransition if OPEN_MOST are under way in its pool.
        """
        pool = await self._queue.pools.by_name(plan.filter.pool)
        await self._check(pool, plan)
        id_ = _PREFIX + pool.code + self._ids.token(RANDOM_LENGTH)
        older_ms = "" if plan.filter.older_than_s is None else str(1000 * plan.filter.older_than_s)
        args = (
            id_, by, plan.packed(), plan.target.act, plan.target.tier or "", plan.filter.tenant or "",
            " ".join(_tiers(pool, plan)), older_ms, str(plan.filter.most or MOST_JOBS), str(OPEN_MOST),
        )  # fmt: skip
        await self._store.run("open_run", pool.prefix, *args)
        return await self.get(id_)

    async def get(self, run_id: str) -> Run:
        """A run, for 7 days after its last change; an hour, if it waits to be applied. Raises NotFound."""
        pool = await self.pool_of(run_id)
        fields = await self._store.bounded(self._store.client.hgetall(pool.key("run", run_id)))
        if b"plan" not in fields:
            raise NotFound("There is no such run, or it is past its time.")
        return _run(run_id, fields)

    async def list(self, before_ms: int | None = None, limit: int = 50) -> tuple[list[Run], int | None]:
        """Runs of all pools, the newest first, and where the next page starts. Their forecasts are left out."""
        if not 1 <= limit <= PAGE_MOST:
            raise InvalidRequest(f"A page has 1 to {PAGE_MOST} runs.", param="limit")
        args = (replies.or_empty(before_ms), str(limit))
        pools = await self._queue.pools.all()
        rows = [replies.items(await self._store.run("list_runs", pool.prefix, *args)) for pool in pools]
        found = [_listed(*replies.items(row)) for row in chain(*rows)]
        page = sorted((run for run in found if run), key=lambda run: (run.created_at_ms, run.id), reverse=True)[:limit]
        return page, page[-1].created_at_ms if len(page) == limit else None

    async def open(self) -> list[tuple[str, Pool]]:
        """The runs that have a next step, with their pools; up to OPEN_MOST of each."""
        found: list[tuple[str, Pool]] = []
        for pool in await self._queue.pools.all():
            ids = await self._store.bounded(self._store.client.zrange(pool.key("runs_open"), 0, OPEN_MOST - 1))
            found += [(id_.decode(), pool) for id_ in ids]
        return found

    async def weighed(self, run_id: str, forecast: Forecast) -> Run:
        """Its dry run is there: it waits to be applied. Raises IllegalTransition."""
        return await self._turn(run_id, "weigh", "forecast", forecast.packed())

    async def apply(self, run_id: str) -> Run:
        """Does with the chosen jobs what the plan says, step by step. Raises NotFound, IllegalTransition."""
        return await self._turn(run_id, "apply")

    async def abort(self, run_id: str) -> Run:
        """Stops it before its next step. What was moved stays so, until it is undone.

        Raises NotFound, IllegalTransition.
        """
        return await self._turn(run_id, "abort")

    async def undo(self, run_id: str) -> Run:
        """Brings back what it moved and what still waits there, to its old place. An undo that was aborted goes on.

        Raises NotFound, IllegalTransition: also for a purge, and 24 hours after it has ended.
        """
        return await self._turn(run_id, "undo")

    async def pool_of(self, run_id: str) -> Pool:
        """The pool that a run chooses from. Raises NotFound."""
        code = run_id.removeprefix(_PREFIX)[:CODE_LENGTH]
        known = len(run_id) == len(_PREFIX) + CODE_LENGTH + RANDOM_LENGTH and set(run_id[len(_PREFIX) :]) <= set(
            ALPHABET
        )
        if not known or not run_id.startswith(_PREFIX):
            raise NotFound("There is no such run.")
        return await self._queue.pools.by_code(code)

    # --- within -------------------------------------------------------------------------------------------------------

    async def _turn(self, run_id: str, verb: Verb, *fields: str) -> Run:
        pool = await self.pool_of(run_id)
        allowed = f" {' '.join(sorted(MAY[verb]))} "
        if verb == "undo" and (run := await self.get(run_id)).state in MAY[verb] and not run.may(verb):
            raise InvalidRequest(
                "What was cancelled cannot be brought back." if run.plan.target.purge else "It moved nothing."
            )
        await self._store.run("turn_run", pool.prefix, run_id, allowed, TO[verb], *fields)
        return await self.get(run_id)

    async def _check(self, pool: Pool, plan: Plan) -> None:
        """Raises InvalidRequest, UnknownTier, NotFound."""
        where, to = plan.filter, plan.target
        if where.tenant is not None:
            check_tenant(where.tenant)
        if where.tier is not None:
            check_tier(pool, where.tier)
        if where.older_than_s is not None and not 0 <= where.older_than_s <= 10**9:
            raise InvalidRequest("older_than_s is 0 seconds or more.", param="older_than_s")
        if where.most is not None and not 1 <= where.most <= MOST_JOBS:
            raise InvalidRequest(f"A run moves 1 to {MOST_JOBS} jobs.", param="most")
        if (to.tier is not None) + bool(to.pools) + to.purge != 1:
            raise InvalidRequest("A run has one target: a tier, pools, or a purge.", param="target")
        if to.tier is not None:
            check_tier(pool, to.tier)
            if to.tier == where.tier:
                raise InvalidRequest(f"These jobs are in the tier {to.tier!r} already.", param="target")
        await self._check_pools(pool, plan)

    async def _check_pools(self, pool: Pool, plan: Plan) -> None:
        names = plan.target.pools
        if len(names) > MOST_POOLS or len(set(names)) < len(names) or names == (pool.name,):
            raise InvalidRequest(f"Name 1 to {MOST_POOLS} different pools, not only its own.", param="target")
        for name in names:
            other = await self._queue.pools.by_name(name)
            if plan.filter.tier is not None:
                check_tier(other, plan.filter.tier)


def _tiers(pool: Pool, plan: Plan) -> list[str]:
    """The tiers to choose from, from the highest down: those of the filter, but the one that jobs change to."""
    wanted = [plan.filter.tier] if plan.filter.tier else pool.policy.tiers
    return [tier for tier in wanted if tier != plan.target.tier]


def _listed(run_id: replies.Reply, hash_: replies.Reply) -> Run | None:
    fields = dict(replies.pairs(replies.items(hash_)))
    return (
        _run(replies.text(run_id), {name.encode(): value for name, value in fields.items()})
        if "plan" in fields
        else None
    )


def _run(run_id: str, fields: Mapping[bytes, bytes]) -> Run:
    return run_of(run_id, {name.decode(): value.decode() for name, value in fields.items()})


def state_of(reply: replies.Reply) -> RunState | None:
    """The state that a step leaves a run in; None if it is gone."""
    return cast("RunState | None", replies.text(reply) or None)
