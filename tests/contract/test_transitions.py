"""The table of legal transitions is what the queue does: every act is tried on a job in every state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, get_args

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import FairlaneError
from fairlane.model import TRANSITIONS, Act, JobSpec, Lease, Policy
from fairlane.queue import moves
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import REFUSED, another_process, open_backend, spec, take, take_one
from tests.contract.invariants import raw_state

pytestmark = pytest.mark.usefixtures("invariants")

HOUR_MS: Final = 3_600_000
SPEC: Final = spec(max_attempts=2, deadline_ms=2 * HOUR_MS, idempotency_key="k")
NO_LEASE: Final = Lease("", 1, "b1", "ann", "default", 1, 2, 0, 0, 0, 0, 0, b"", b"")
# The table knows one state for those that failed; only the dead among them can be requeued.
STATES: Final = (
    None, "queued", "delayed", "leased", "succeeded", "failed", "dead", "cancelled", "expired", "moving", "moved",
)  # fmt: skip


class Stopped(Exception):
    """A move stops before one of its steps."""


class Stage:
    """One job in `pool`, which came there from `origin` if there is one, and may go to `target`."""

    def __init__(self, queue: Queue, clock: ManualClock, origin: Pool | None, pool: Pool, target: Pool) -> None:
        self.queue, self.clock = queue, clock
        self.origin, self.pool, self.target = origin, pool, target
        self.id = f"job_{pool.code}1aaaaaaaaaaaa"
        self.lease = NO_LEASE
        self.arrival: tuple[Any, ...] = ()

    @property
    def held(self) -> Lease:
        """The right token for the lease that the job has or had: only its state can be a reason to refuse."""
        return replace(self.lease, id=self.id)

    async def begin(self, job: JobSpec, arrive: bool = True) -> None:
        self.id = (await self.queue.submit(self.origin or self.pool, job)).id
        if self.origin:
            await self.move(self.pool, until="" if arrive else "arrive")

    async def move(self, target: Pool, until: str = "") -> None:
        """Moves the job, or stops before the step `until`; keeps the arguments of its arrival."""
        mover = another_process(self.queue)
        run = mover._store.run

        async def step(name: str, *args: Any, **options: Any) -> Any:
            if name == "arrive":
                self.arrival = args
            if name == until:
                raise Stopped
            return await run(name, *args, **options)

        mover._store.run = step
        with suppress(Stopped):
            await mover.move(self.id, target)

    async def reach(self, state: str | None) -> None:
        """Brings the job into `state`."""
        queue, pool = self.queue, self.pool
        if state == "delayed":
            return await self.begin(replace(SPEC, delay_ms=HOUR_MS))
        if state is None:
            return await self.begin(SPEC, arrive=False) if self.origin else None
        await self.begin(SPEC)
        if state in ("leased", "succeeded", "failed", "dead"):
            self.lease = await take_one(queue, pool)
        match state:
            case "succeeded" | "failed":
                await queue.settle(pool, self.lease, state, status=200)
            case "dead":
                await queue.retry(pool, self.lease, REFUSED, delay_ms=0)
                self.lease = await take_one(queue, pool)
                await queue.retry(pool, self.lease, REFUSED, delay_ms=0)
            case "cancelled":
                await queue.cancel(self.id)
            case "expired":
                self.clock.advance(2 * HOUR_MS)
                await queue.sweep(pool)
            case "moving":
                await self.move(self.target, until="arrive")
            case "moved":
                await self.move(self.target)

    async def wait(self, ms: int) -> None:
        """Time passes while whoever holds the job renews its lease; then the sweeper comes."""
        self.clock.advance(ms)
        await self.queue.renew(self.pool, [self.held])
        await self.queue.sweep(self.pool)

    async def fall_silent(self) -> None:
        self.clock.advance(30_000)
        await self.queue.sweep(self.pool)

    async def arrive(self) -> None:
        """The same copy comes once more, or for the first time; whoever has moved on comes back."""
        state = await raw_state(self.queue, self.pool, self.id)
        if state == "moved":
            await self.queue.move(self.id, self.pool)
        elif state == "moving":  # it has arrived there, and comes back before the third step
            await self.queue._store.run("arrive", *self.arrival)
            await moves.move(self.queue._store, self.queue.pools, self.target, self.id, self.pool)
        else:
            await self.queue._store.run("arrive", *self.arrival)

    async def leave_stub(self) -> None:
        hop = self.arrival[2] if self.arrival else "1"
        await self.queue._store.run("leave_stub", self.pool.prefix, self.id, hop, "1000")


ACTS: Final[dict[Act, Callable[[Stage], Awaitable[Any]]]] = {
    "submit": lambda s: s.begin(SPEC),
    "acquire": lambda s: take(s.queue, s.pool, 5),
    "settle": lambda s: s.queue.settle(s.pool, s.held, "succeeded"),
    "retry": lambda s: s.queue.retry(s.pool, s.held, REFUSED, delay_ms=10),
    "release": lambda s: s.queue.release(s.pool, s.held),
    "lose": lambda s: s.fall_silent(),
    "wake": lambda s: s.wait(HOUR_MS),
    "expire": lambda s: s.wait(2 * HOUR_MS),
    "cancel": lambda s: s.queue.cancel(s.id),
    "requeue": lambda s: s.queue.requeue(s.id),
    "retier": lambda s: s.queue.retier(s.pool, [s.id], "flex"),
    "depart": lambda s: s.move(s.target, until="arrive"),
    "arrive": lambda s: s.arrive(),
    "leave_stub": lambda s: s.leave_stub(),
}


def allowed(act: Act, state: str | None) -> set[str | None]:
    """What a job in `state` may be after `act`."""
    known: Any = "failed" if state == "dead" else state
    after = TRANSITIONS[act].get(known)
    if after is None or (act, state) == ("requeue", "failed"):
        return {known, "moved"} if state == "moving" else {known}  # whoever comes upon a move may finish it
    return set(after)


@pytest.mark.parametrize("act", get_args(Act))
async def test_an_act_does_what_the_table_says_and_nothing_else(queue: Queue, clock: ManualClock, act: Act) -> None:
    wrong: dict[str | None, tuple[str | None, set[str | None]]] = {}
    for state in STATES:
        places = [await queue.pools.open(f"{place} of {state}", Policy()) for place in ("origin", "pool", "target")]
        await open_backend(queue, places[1], "b1", 9)
        stage = Stage(queue, clock, places[0] if act == "arrive" else None, *places[1:])
        await stage.reach(state)
        with suppress(FairlaneError):
            await ACTS[act](stage)
        after = await raw_state(queue, stage.pool, stage.id)
        if after not in allowed(act, state):
            wrong[state] = (after, allowed(act, state))
    assert wrong == {}
