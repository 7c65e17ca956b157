"""One chunk of a run that moves jobs to other pools, and the way back.

Each job is moved by `fairlane.queue.moves`, three steps that anyone may finish; so a chunk may be begun again after a
crash, by another process too. Jobs of one line go one after the other, which keeps their order.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fairlane.accounts import Accounts
from fairlane.errors import IllegalTransition, NotFound, UnknownTier
from fairlane.queue import moves
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.replies import MovedAway
from fairlane.rebalance.values import REASONS

AT_ONCE: Final = 8
Rest = Coroutine[Any, Any, None]
Step = Callable[[], Awaitable["Rest | None"]]  # moves a job; what remains to be done need not be waited for


@dataclass(frozen=True, slots=True)
class Chosen:
    """A job of the chunk as its pool has it now: a state ('' if it is gone), and the code of the pool that it went to.
    `target` is None if that pool was removed."""

    id: str
    state: str
    tenant: str
    tier: str
    went: str
    in_batch: bool
    target: Pool | None


@dataclass(slots=True)
class Outcome:
    """What became of a chunk: the run's numbers by name, and the code of the pool that each job went to."""

    counts: Counter[str] = field(default_factory=Counter[str])
    went: dict[str, str] = field(default_factory=dict[str, str])


class Mover:
    """Moves chunks of one pool's jobs. `holds` says, before each job, whether this process may go on."""

    def __init__(self, queue: Queue, pool: Pool, holds: Callable[[], bool]) -> None:
        self._queue = queue
        self._accounts = Accounts(queue)
        self._pool = pool
        self._holds = holds
        self._limits_copied: set[tuple[str, str]] = set()

    async def forth(self, jobs: Sequence[Chosen], *, again: bool, only_look: bool) -> Outcome | None:
        """Moves each job to its target. None if this process had to leave off.

        `again`: the chunk was begun before, so that who is there already was moved by this run. `only_look`: finds out
        who was, and moves no more.
        """
        outcome, room = Outcome(), Room()
        lines: dict[tuple[str, str, str], list[Step]] = defaultdict(list)

        async def go(job: Chosen, target: Pool) -> Rest | None:
            went = await self._go(job.id, self._pool, target)
            if isinstance(went, str):
                outcome.counts[f"skipped:{went}"] += 1
                return None
            outcome.counts["moved"] += 1
            outcome.went[job.id] = target.code
            return went

        for job in jobs:
            if why_not := _why_not(job, self._pool, again=again, only_look=only_look):
                outcome.counts[f"skipped:{why_not}"] += 1
            elif job.target and (job.went or await self._has_room(room, job, job.target)):
                lines[job.tenant, job.tier, job.target.code].append(lambda job=job, target=job.target: go(job, target))
            else:
                outcome.counts["skipped:full"] += 1
        return outcome if await self._all(lines.values()) else None

    async def back(self, moved: Sequence[tuple[str, str]]) -> Counter[str] | None:
        """Brings back those that wait yet, each from the pool with this code. None if it had to leave off."""
        counts: Counter[str] = Counter()

        async def come(job_id: str, code: str) -> Rest | None:
            try:
                went = await self._go(job_id, await self._queue.pools.by_code(code), self._pool)
            except NotFound:
                went = "no_pool"
            counts[f"kept:{went}" if isinstance(went, str) else "returned"] += 1
            return None if isinstance(went, str) else went

        steps = [lambda job_id=job_id, code=code: come(job_id, code) for job_id, code in moved]
        return counts if await self._all(steps[n::AT_ONCE] for n in range(AT_ONCE)) else None

    async def _go(self, job_id: str, source: Pool, target: Pool) -> Rest | str:
        """Moves one job: what remains to be done when it is there, or why it is not."""
        store, pools = self._queue.store, self._queue.pools
        try:
            went, hop = await moves.transfer(store, pools, source, job_id, target)
            rest = moves.leave(store, source, job_id, hop)
            if went == target.code:
                return rest
            await rest
            return "elsewhere"
        except MovedAway as moved:  # by another process that carries this run out, or by somebody else
            return _nothing() if moved.code == target.code else "elsewhere"
        except UnknownTier:
            return "no_tier"
        except (NotFound, IllegalTransition):
            state = await store.bounded(store.client.hget(source.key("job", job_id), "state"))
            return "gone" if state is None else state.decode() if state.decode() in REASONS else "busy"

    async def _has_room(self, room: Room, job: Chosen, target: Pool) -> bool:
        """Whether its tenant and the target pool may have one more waiting; if so it is counted."""
        if (place := (target.code, job.tenant)) not in room.of_tenant:
            if place not in self._limits_copied:
                await self._accounts.copy_limits(target, job.tenant)
                self._limits_copied.add(place)
            standing = await self._queue.inspect.tenant(target, job.tenant)
            most = standing.limits.max_waiting
            room.of_tenant[place] = (target.policy.max_waiting_tenant if most is None else most) - standing.waiting
        if target.code not in room.of_pool:
            store = self._queue.store
            waiting = await store.bounded(store.client.hget(target.key("pool"), "waiting"))
            room.of_pool[target.code] = target.policy.max_waiting_pool - int(waiting or 0)
        return room.take(target.code, place)

    async def _all(self, lines: Iterable[Sequence[Step]]) -> bool:
        """Takes each line's steps one after the other, AT_ONCE lines at a time. False if it had to leave off."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def walk(line: Sequence[Step]) -> bool:
            beside: list[asyncio.Task[None]] = []
            async with slots:
                try:
                    for step in line:
                        if not self._holds():
                            return False
                        if rest := await step():
                            beside.append(asyncio.create_task(rest))
                finally:  # what of these fails the sweeper does: the jobs are where they belong
                    await asyncio.gather(*beside, return_exceptions=True)
            return True

        ends = await asyncio.gather(*map(walk, lines), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return all(ends)


async def _nothing() -> None:
    """What remains to be done when another process did it."""


@dataclass(slots=True)
class Room:
    """How many more may wait, in each target pool and of each tenant in it."""

    of_pool: dict[str, int] = field(default_factory=dict[str, int])
    of_tenant: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])

    def take(self, code: str, place: tuple[str, str]) -> bool:
        """Counts one more, if there is room."""
        if self.of_pool[code] <= 0 or self.of_tenant[place] <= 0:
            return False
        self.of_pool[code] -= 1
        self.of_tenant[place] -= 1
        return True


def _why_not(job: Chosen, pool: Pool, *, again: bool, only_look: bool) -> str | None:
    """Why the job is not to be moved; None: it is, or was."""
    if job.target is None:
        return "no_pool"
    if job.state in ("moving", "moved"):
        return None if again and job.went == job.target.code else "elsewhere"
    if job.state not in ("queued", "delayed"):
        return job.state or "gone"
    if job.target.code == pool.code:
        return "stays"
    if only_look:
        return "stopped"
    if job.in_batch:
        return "batch"
    return None if job.tier in job.target.policy.tiers else "no_tier"
