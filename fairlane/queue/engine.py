"""The queue: one method per act. All of a job's state is written by the scripts behind these methods, and only there.

Every method may raise StoreUnavailable (Redis did not answer in time), StoreFull (it has no memory left) and
StoreUnsuitable (it refuses what the queue needs). Acts that are safe to repeat are repeated after a lost connection; a
submit only if every job in it has an idempotency key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Literal, Self, TypeVar, cast

from fairlane.clock import Clock, RedisClock
from fairlane.errors import (
    FairlaneError,
    IllegalTransition,
    InvalidRequest,
    NotFound,
    StoreFull,
    StoreUnavailable,
)
from fairlane.ids import RANDOM_LENGTH, Ids, RandomIds, parse_job_id
from fairlane.model import (
    BackendCounts,
    BackendSpec,
    JobError,
    JobSpec,
    Lease,
    Leases,
    Limits,
    Renewal,
    Role,
    Settlement,
    State,
    Submitted,
    Swept,
    TierGate,
    Usage,
)
from fairlane.queue import moves, policies, replies, streams
from fairlane.queue.checks import (
    check_backend,
    check_call,
    check_dispatcher,
    check_gate,
    check_info,
    check_job,
    check_limits,
    check_ms,
    check_settlement,
    check_spec,
    check_steer,
    check_tenant,
    check_tier,
    check_ttl,
    check_usage,
)
from fairlane.queue.chunks import CALL_JOBS, is_hopeless, send_in_chunks
from fairlane.queue.connection import Client, connect
from fairlane.queue.gather import Gather
from fairlane.queue.hooks import Hooks
from fairlane.queue.inspection import SILENT_MS, Inspection
from fairlane.queue.pools import Pool, Pools
from fairlane.queue.replies import MovedAway
from fairlane.queue.schema import ensure_schema, mark
from fairlane.queue.signals import Signals
from fairlane.queue.store import Store
from fairlane.queue.streams import Appended, Chunk
from fairlane.trend import STEPS, Point, Served, packed, served_json

HOPS: Final = 8  # pools that a job may have been moved through
SERVED_MS: Final = 120_000  # so long it is said who was served, after the last observer said so
RACES: Final = 20  # changes by others between our reading and writing

_NO_WORD: Final = re.compile(r"[^A-Za-z0-9_.-]")  # a line of the history is words
T = TypeVar("T")


class Queue:
    """All pools on one Redis. Make it with `open`; `pools` finds and opens them, `inspect` reads them,
    `hooks` has the outcomes that webhooks tell of."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str = "fl",
        clock: Clock | None = None,
        ids: Ids | None = None,
        timeout_s: float = 5.0,
        max_body_bytes: int = 8 << 20,
    ) -> None:
        self._ids = ids or RandomIds()
        self._max_body_bytes = max_body_bytes
        self._store = Store(client, namespace, clock or RedisClock(), timeout_s)
        self._submits: dict[tuple[str, bool], Gather[JobSpec, Submitted | FairlaneError]] = {}
        self._settles: dict[str, Gather[Settlement, State | FairlaneError]] = {}
        self.pools = Pools(self._store, self._ids)
        self.inspect = Inspection(self._store, self.at_job)
        self.hooks = Hooks(self._store)

    @classmethod
    async def open(
        cls, url: str, *, namespace: str = "fl", timeout_s: float = 5.0, max_body_bytes: int = 8 << 20
    ) -> Self:
        """Connects, and makes sure that the data there is of a schema that this version knows.

        Raises SchemaMismatch, InvalidRequest for a malformed URL, StoreUnavailable.
        """
        client = connect(url, timeout_s=timeout_s)
        queue = cls(client, namespace=namespace, timeout_s=timeout_s, max_body_bytes=max_body_bytes)
        try:
            await queue.check()
        except BaseException:
            await queue.close()
            raise
        return queue

    @property
    def store(self) -> Store:
        """For the state that is no job's: accounts, files, batches."""
        return self._store

    async def check(self, *, writable: bool = False) -> None:
        """Marks an empty Redis with our schema; raises SchemaMismatch if it holds another.

        `writable`: raises StoreFull if it takes no writes.
        """
        await self._store.bounded(ensure_schema(self._store.raw, self._store.namespace))
        if writable:
            await self._store.bounded(mark(self._store.raw, self._store.namespace))

    def signals(self) -> Signals:
        """A subscription for this process, on the same client."""
        return Signals(self._store.raw)

    async def close(self) -> None:
        """Ends its connections, after a moment for what is on its way. Later calls raise StoreUnavailable."""
        await self._store.close()

    # --- jobs, from outside -------------------------------------------------------------------------------------------

    async def submit(self, pool: Pool, spec: JobSpec) -> Submitted:
        """Takes in one job. Raises InvalidRequest, UnknownTier, PayloadTooLarge, QueueFull, IdempotencyMismatch."""
        check_job(pool, spec, self._max_body_bytes)
        answer = await self._submit_gather(pool, keyed=spec.idempotency_key is not None).call(spec)
        if isinstance(answer, FairlaneError):
            raise answer
        return answer

    async def submit_many(self, pool: Pool, specs: Iterable[JobSpec]) -> list[Submitted | FairlaneError]:
        """Takes in many jobs, each on its own: the answers, in the same order, are `submit`'s or its errors."""
        checked = [(spec, _fault(partial(check_job, pool, spec, self._max_body_bytes))) for spec in specs]
        answers = iter(await self._submit_all(pool, [spec for spec, fault in checked if fault is None]))
        return [fault or next(answers) for _, fault in checked]

    async def cancel(self, job_id: str) -> State:
        """Cancels a job in whatever state, wherever it was moved; returns its state. Raises NotFound."""
        return (await self.end(job_id))[1]

    async def end(self, job_id: str) -> tuple[State, State]:
        """As `cancel`: the state that the job had, and the one that it has."""

        async def run(pool: Pool) -> tuple[State, State]:
            was, now = replies.texts(await self._store.run("cancel", pool.prefix, job_id))
            return cast(State, was), cast(State, now)

        return await self.at_job(job_id, run)

    async def requeue(self, job_id: str) -> State:
        """Puts a dead job at the end of its line, with fresh attempts. Raises NotFound, IllegalTransition."""

        async def run(pool: Pool) -> State:
            # repeated after a lost reply it would be refused: the job is queued already
            return cast(State, replies.text(await self._store.run("requeue", pool.prefix, job_id, repeat=False)))

        return await self.at_job(job_id, run)

    # --- jobs, for a dispatcher ---------------------------------------------------------------------------------------

    async def acquire(self, pool: Pool, dispatcher: str, call_no: int, n: int) -> Leases:
        """Leases up to `n` jobs (1 to 100), as many as fair order and the gates allow; large ones fewer at a time.

        `call_no` rises with each call of one dispatcher, and its calls are serial. After an error the same `call_no`
        must be used again: it returns what the lost call leased. A dispatcher that starts again takes a new name.
        Raises StaleCall, InvalidRequest.
        """
        check_call(dispatcher, call_no, n, CALL_JOBS)
        return replies.leases(await self._store.run("acquire", pool.prefix, dispatcher, str(call_no), str(n)))

    async def renew(self, pool: Pool, leases: Sequence[Lease]) -> list[Renewal]:
        """Prolongs leases: `ok`, `cancelled` (stop the work and release it) or `lost` (drop it), in the same order."""
        words: list[str] = []
        for start in range(0, len(leases), 10 * CALL_JOBS):
            part = leases[start : start + 10 * CALL_JOBS]
            args = [arg for lease in part for arg in (lease.id, str(lease.token))]
            words += replies.texts(await self._store.run("renew", pool.prefix, str(streams.KEPT_MS), *args))
        return cast("list[Renewal]", words)

    async def append(self, pool: Pool, chunks: Sequence[tuple[str, Chunk]]) -> list[Appended]:
        """Appends to streamed answers, each a job's id and its next events, while the leases with these tokens hold.

        For each, in the same order: `ok`, `cancelled`, `lost`, or why it could not be written. Safe to repeat.
        """
        return await streams.append(self._store, pool, chunks)

    async def settle(
        self,
        pool: Pool,
        lease: Lease,
        state: Literal["succeeded", "failed"],
        *,
        status: int | None = None,
        result: bytes = b"",
        error: JobError | None = None,
        usage: Usage | None = None,
    ) -> State:
        """Writes the outcome, once, and ends the lease. Returns the job's state: `cancelled` if that came first.

        Safe to repeat. Raises LeaseLost if the lease had ended, NotFound.
        """
        settlement = Settlement(lease, state, status, result, error, usage)
        check_settlement(settlement)
        answer = await self._settle_gather(pool).call(settlement)
        if isinstance(answer, FairlaneError):
            raise answer
        return answer

    async def settle_many(self, pool: Pool, settlements: Iterable[Settlement]) -> list[State | FairlaneError]:
        """Writes many outcomes, each on its own: the answers, in the same order, are `settle`'s or its errors."""
        checked = [(one, _fault(partial(check_settlement, one))) for one in settlements]
        answers = iter(await self._settle_all(pool, [one for one, fault in checked if fault is None]))
        return [fault or next(answers) for _, fault in checked]

    async def retry(
        self,
        pool: Pool,
        lease: Lease,
        error: JobError,
        *,
        delay_ms: int,
        result: bytes = b"",
        usage: Usage | None = None,
        fault: bool = False,
    ) -> State:
        """Ends a failed attempt: the job runs again after `delay_ms`, or is dead (`failed`) if that was its last.

        `result` is the backend's own error body: a dead job keeps it. `fault`: it is the backend that failed, rather
        than that it had no room. Raises LeaseLost, NotFound.
        """
        check_usage(usage)
        check_ms("delay_ms", delay_ms)
        args = (
            lease.id, str(lease.token), str(delay_ms), _NO_WORD.sub("_", error.code)[:64],
            replies.or_empty(error.status), result, replies.error_json(error), *replies.usage_args(usage),
            "1" if fault else "",
        )  # fmt: skip
        return cast(State, replies.text(await self._store.run("retry", pool.prefix, *args)))

    async def release(self, pool: Pool, lease: Lease) -> State:
        """Hands a job back unrun: old place, no attempt used. Ends the lease of a cancelled one.

        Safe to repeat, as `retry` is. Raises LeaseLost, NotFound.
        """
        return cast(State, replies.text(await self._store.run("release", pool.prefix, lease.id, str(lease.token))))

    # --- upkeep -------------------------------------------------------------------------------------------------------

    async def sweep(self, pool: Pool, most: int = CALL_JOBS) -> Swept:
        """Runs the three clocks once, bounded by `most` of each kind, and finishes moves that broke off."""
        reply = replies.items(await self._store.run("sweep", pool.prefix, str(most)))
        lost, due, expired, more = (replies.number(item) for item in reply[:4])
        waiting_moves = replies.texts(reply[4])
        for job_id in waiting_moves:
            # a target that is away keeps its own moves waiting, not the sweep
            with suppress(StoreUnavailable, StoreFull):
                await moves.look_after(self._store, self.pools, pool, job_id)
        next_at = replies.text(reply[5])
        return Swept(lost, due, expired, len(waiting_moves), bool(more), int(next_at) if next_at else None)

    async def observe(
        self,
        pool: Pool,
        backend: str,
        gates: Mapping[str, TierGate],
        *,
        counted: BackendCounts,
        seen: str = "{}",
        epoch: int = 0,
    ) -> BackendCounts:
        """Writes what a scrape led to: each tier's gate, the numbers behind it as JSON, and the counts it used up.

        `epoch` is another one after the backend has restarted. A backend that was down is up again. Returns the counts
        that are left. Raises NotFound, UnknownTier.
        """
        for tier, gate in gates.items():
            check_tier(pool, tier)
            check_gate(tier, gate)
        parts = [part for t, g in gates.items() for part in (t, f"{g.limit} {g.fallback} {g.why}")]
        args = (backend, str(counted.done), str(counted.denied), seen, str(epoch), *parts)
        reply = await self._store.run("observe", pool.prefix, *args, repeat=False)  # repeated, it would count twice
        return BackendCounts(*map(replies.number, replies.items(reply)))

    async def set_backend(
        self,
        pool: Pool,
        backend: str,
        act: Literal["add", "drain", "undrain", "down", "reopen", "no_priority", "remove"],
        *,
        spec: BackendSpec | None = None,
    ) -> None:
        """Changes the pool's backends; adding one that is there replaces its spec, unless that is None.

        `down` lasts until the next observation, or `reopen`; `no_priority` (it refuses that field) until it restarts.
        Each change is told on the channel `control`. Raises NotFound, InvalidRequest, IllegalTransition (remove one
        that works).
        """
        check_backend(backend)
        if spec is not None:
            check_spec(spec, act)
        packed = replies.backend_spec_json(spec) if spec else ""
        await self._store.run("backend", pool.prefix, backend, act, packed, repeat=act != "remove")

    async def elect(self, pool: Pool, role: Role, who: str, ttl_ms: int) -> bool:
        """Takes a role for `ttl_ms`, or prolongs it: True if `who` holds it now, False if another does."""
        check_dispatcher(who)
        check_ttl(ttl_ms)
        return replies.number(await self._store.run("elect", pool.prefix, role, who, str(ttl_ms))) == 1

    async def resign(self, pool: Pool, role: Role, who: str) -> None:
        """Gives a role up at once, if `who` holds it."""
        await self._store.run("resign", pool.prefix, role, who)

    async def beat(self, pool: Pool, dispatcher: str, info: str) -> bool:
        """Says that a dispatcher lives; `info` is JSON of up to 1 KiB about it. It counts for SILENT_MS.

        Returns whether somebody has told it to drain (fleet.py).
        """
        check_dispatcher(dispatcher)
        check_info(info)
        return replies.number(await self._store.run("beat", pool.prefix, dispatcher, info, str(SILENT_MS))) == 1

    async def steer(self, pool: Pool, gamma: float | None, seen: str) -> None:
        """Writes what the observer found about the pool: the boost's γ per second (None: the policy pins it), and what
        it saw, as JSON of up to 8 KiB. Raises InvalidRequest.
        """
        check_steer(gamma, seen)
        await self._store.run("steer", pool.prefix, "" if gamma is None else repr(float(gamma)), seen)

    async def record(self, pool: Pool, point: Point, served: Served) -> None:
        """Adds what was seen since the last call to the pool's history, and says who was served."""
        steps = [str(n) for step in STEPS.values() for n in (step.s, step.kept)]
        args = (packed(point), served_json(served), str(SERVED_MS), *steps)
        await self._store.run("record", pool.prefix, *args, repeat=False)  # repeated, it would add up twice

    async def set_policy(
        self, pool: Pool, changes: Mapping[str, object], *, by: str, version: int | None = None
    ) -> Pool:
        """Changes settings of the pool's policy, by name; each is a value or its text. Returns the pool as it is then.

        The whole is checked. Raises InvalidRequest, which names the setting; IllegalTransition if a tier is taken away
        that a job still needs, if others change the policy all the time, or if it is not at `version` any more.
        """
        policies.check_by(by)
        for _ in range(RACES):
            known = await self.pools.read(pool.code)
            if version not in (None, known.version):
                break
            new = policies.changed(known.policy, changes)
            difference = policies.difference(known.policy, new)
            if not difference:
                return known
            gone = ",".join(tier for tier in known.policy.tiers if tier not in new.tiers)
            settings = [part for setting in policies.texts(new).items() for part in setting]
            entry = json.dumps({"by": by, "changes": difference})
            args = (str(known.version), entry, gone, *settings)
            # repeated after a lost reply it would be refused: the version is another one already
            if replies.number(await self._store.run("set_policy", pool.prefix, *args, repeat=version is None)):
                return await self.pools.read(pool.code)
        raise IllegalTransition("Others change this policy at the same time. Look at it, and try again.")

    async def set_limits(
        self, pool: Pool, tenant: str, limits: Limits, *, version: int | None = None, expected: Limits | None = None
    ) -> None:
        """Replaces a tenant's limits in this pool; with `version`, only if those it has are of an earlier one.

        Raises InvalidRequest; IllegalTransition if it has others than `expected`.
        """
        check_tenant(tenant)
        check_limits(limits)
        known = replies.limits_field(expected) if expected is not None else ""
        args = (tenant, replies.limits_field(limits), replies.or_empty(version), known)
        # repeated after a lost reply it would be refused: they are others already
        done = replies.number(await self._store.run("limits", pool.prefix, *args, repeat=expected is None))
        if expected is not None and not done:
            raise IllegalTransition("Somebody else changed these limits a moment ago. Look at them, and try again.")

    async def pause(self, pool: Pool, *, tier: str | None = None, tenant: str | None = None) -> bool:
        """Pauses the pool, or one tier or tenant of it; work that runs goes on. False if it was paused already."""
        return await self._pause(pool, tier, tenant, "1")

    async def resume(self, pool: Pool, *, tier: str | None = None, tenant: str | None = None) -> bool:
        """Undoes `pause` of the same scope. False if it was not paused."""
        return await self._pause(pool, tier, tenant, "0")

    async def retier(self, pool: Pool, job_ids: Sequence[str], tier: str) -> list[FairlaneError | None]:
        """Moves waiting jobs to another tier, age and order kept. For each: None if it moved, else why it did not."""
        check_tier(pool, tier)
        words: list[str] = []
        for start in range(0, len(job_ids), CALL_JOBS):
            part = job_ids[start : start + CALL_JOBS]
            words += replies.texts(await self._store.run("retier", pool.prefix, tier, *part))
        return [None if word == "ok" else _why_not(word) for word in words]

    async def move(self, job_id: str, target: Pool) -> None:
        """Moves a waiting job to another pool, age kept; its id stays. Safe to repeat, also after a crash.

        Raises NotFound, UnknownTier if the target has no such tier, IllegalTransition if it runs, is finished, or
        belongs to a batch.
        """

        async def from_here(source: Pool) -> None:
            await moves.move(self._store, self.pools, source, job_id, target)

        await self.at_job(job_id, from_here)

    async def home(self, job_id: str) -> Pool:
        """The pool that a job was submitted to; it may have been moved since. Raises NotFound."""
        parts = parse_job_id(job_id)
        if parts is None:
            raise NotFound()
        return await self.pools.by_code(parts.code)

    # --- within -------------------------------------------------------------------------------------------------------

    async def at_job(self, job_id: str, act: Callable[[Pool], Awaitable[T]]) -> T:
        """Does `act` in the pool that the job is in now; finishes a move that is under way. Raises NotFound."""
        pool = await self.home(job_id)
        for _ in range(HOPS):
            try:
                return await act(pool)
            except MovedAway as moved:
                if moved.stage == "moving":
                    await moves.finish(self._store, self.pools, pool, job_id)
                pool = await self.pools.by_code(moved.code)
        raise NotFound()

    def _submit_gather(self, pool: Pool, *, keyed: bool) -> Gather[JobSpec, Submitted | FairlaneError]:
        """Where single submits meet; those that may be repeated keep to themselves."""
        key = (pool.prefix, keyed)
        if key not in self._submits:
            self._submits[key] = Gather(lambda specs: self._submit_all(pool, specs), CALL_JOBS, is_hopeless)
        return self._submits[key]

    def _settle_gather(self, pool: Pool) -> Gather[Settlement, State | FairlaneError]:
        """Where single settles meet."""
        if pool.prefix not in self._settles:
            gather = Gather[Settlement, State | FairlaneError](
                lambda settlements: self._settle_all(pool, settlements), CALL_JOBS, is_hopeless
            )
            self._settles[pool.prefix] = gather
        return self._settles[pool.prefix]

    async def _settle_all(self, pool: Pool, settlements: Sequence[Settlement]) -> list[State | FairlaneError]:
        def pack(chunk: Sequence[Settlement]) -> list[str | bytes]:
            return [arg for settlement in chunk for arg in replies.settle_args(settlement)]

        async def send(args: list[str | bytes]) -> list[State | FairlaneError]:
            words = replies.texts(await self._store.run("settle", pool.prefix, *args))
            return [_why_not(word) if " " in word else cast(State, word) for word in words]

        return await send_in_chunks(settlements, lambda settlement: len(settlement.result), pack, send)

    async def _submit_all(self, pool: Pool, specs: Sequence[JobSpec]) -> list[Submitted | FairlaneError]:
        def size(spec: JobSpec) -> int:
            return len(spec.body) + len(spec.head)

        def pack(chunk: Sequence[JobSpec]) -> tuple[list[str | bytes], bool]:
            args = [arg for spec in chunk for arg in replies.submit_args(spec, self._ids.token(RANDOM_LENGTH))]
            return args, all(spec.idempotency_key is not None for spec in chunk)

        async def send(packed: tuple[list[str | bytes], bool]) -> list[Submitted | FairlaneError]:
            args, repeat = packed
            reply = cast("list[bytes]", await self._store.run("submit", pool.prefix, pool.code, *args, repeat=repeat))
            return [replies.submitted(reply[i], reply[i + 1]) for i in range(0, len(reply), 2)]

        return await send_in_chunks(specs, size, pack, send)

    async def _pause(self, pool: Pool, tier: str | None, tenant: str | None, flag: str) -> bool:
        if tier is not None and tenant is not None:
            raise InvalidRequest("Pause a tier or a tenant, not both at once.")
        if tier is not None:
            check_tier(pool, tier)
        if tenant is not None:
            check_tenant(tenant)
        scope = "tier" if tier else "tenant" if tenant else "pool"
        args = (scope, tier or tenant or "", flag)
        # repeated after a lost reply it would say that nothing changed
        return replies.number(await self._store.run("pause", pool.prefix, *args, repeat=False)) == 1


def _fault(check: Callable[[], None]) -> FairlaneError | None:
    try:
        check()
    except FairlaneError as error:
        return error
    return None


def _why_not(word: str) -> FairlaneError:
    error = replies.refusal(word)
    return error if isinstance(error, FairlaneError) else NotFound("The job is in another pool now.")
