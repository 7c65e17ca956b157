"""Takes jobs of one pool out of the queue and runs them, until it is told to drain."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import structlog

from dispatcher.attempt import Attempts
from dispatcher.backends.known import Backends
from dispatcher.holds import Hold, Holds
from dispatcher.meters import Meters
from fairlane.errors import FairlaneError
from fairlane.model import Lease, Leases
from fairlane.queue.chunks import CALL_JOBS
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals

POLL_S: Final = (0.5, 1.5)  # the safety net, jittered: all messages may be lost
AGAIN_S: Final = (0.05, 0.5)  # after an error of Redis
AT_ONCE: Final = 2  # dispatchers that come as soon as something is said to all of them
CROWD_S: Final = 0.01  # for each dispatcher: over this time the others come
CROWD_MOST_S: Final = 0.5
REFRESH_S: Final = 2.0
HAND_BACK_S: Final = 10.0
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """`concurrency`: jobs at once; `drain_s`: how long work may go on after the drain began."""

    concurrency: int = 256
    drain_s: float = 30.0


class Worker:
    """One pool's work in one process. `name` must be new with each start: the queue remembers its call numbers."""

    def __init__(
        self, queue: Queue, pool: Pool, name: str, backends: Backends, meters: Meters, options: WorkerOptions
    ) -> None:
        self._queue = queue
        self._pool = pool
        self._name = name
        self._backends = backends
        self._meters = meters
        self._options = options
        self._holds = Holds(queue, pool)
        self._attempts = Attempts(queue, pool, backends, meters)
        self._call_no = 0
        self._crowd = 1  # dispatchers that serve this pool
        self._told = asyncio.Event()  # since we asked last: there may be work
        self._awake = asyncio.Event()  # that, or a job of ours has ended: there may be room
        self._draining = asyncio.Event()
        self._hurry = asyncio.Event()
        self._reread = asyncio.Event()

    @property
    def inflight(self) -> int:
        return len(self._holds)

    def drain(self, *, hurry: bool = False) -> None:
        """Takes no new jobs from now on; `run` returns when what runs has ended, or was handed back after `drain_s`.

        `hurry`: it is handed back at once.
        """
        self._draining.set()
        if hurry:
            self._hurry.set()
        self._wake()
        self._holds.changed.set()

    async def run(self, signals: Signals) -> None:
        """Works until `drain` was called and nothing is held any more."""
        upkeep = [asyncio.create_task(self._holds.keep_renewed()), asyncio.create_task(self._keep_backends())]
        try:
            async with AsyncExitStack() as listening:
                subscribe = asyncio.create_task(self._listen(signals, listening))
                try:
                    await self._take_all()
                    await self._finish()
                finally:
                    subscribe.cancel()
                    await asyncio.wait([subscribe])
        finally:
            for task in upkeep:
                task.cancel()
            await asyncio.wait(upkeep)
            await self._backends.close()

    # --- taking -------------------------------------------------------------------------------------------------------

    async def _take_all(self) -> None:
        while not self._draining.is_set():
            free = self._options.concurrency - len(self._holds)
            if free <= 0:
                self._holds.changed.clear()
                await self._holds.changed.wait()
                continue
            self._told.clear()
            self._awake.clear()
            leases = await self._acquire(min(free, CALL_JOBS))
            if leases.rest == "none":  # room is no use; of whatever can run from now on we are told
                await self._wait_for(self._told)
            elif leases.rest == "shut":
                await self._wait_for(self._awake)

    async def _acquire(self, n: int) -> Leases:
        """Never cancelled: the reply may hold leases. Repeated with the same number until it is answered."""
        loop = asyncio.get_running_loop()
        self._call_no += 1
        while True:
            asked_at = loop.time()
            try:
                leases = await self._queue.acquire(self._pool, self._name, self._call_no, n)
            except FairlaneError as error:
                log.warning("acquire_failed", pool=self._pool.name, error=error.code, message=error.message)
            except Exception:
                log.exception("acquire_broke", pool=self._pool.name)
            else:
                for lease in leases:
                    self._start(lease, asked_at)
                return leases
            if self._draining.is_set():
                return Leases()
            await asyncio.sleep(random.uniform(*AGAIN_S))

    def _start(self, lease: Lease, asked_at: float) -> None:
        hold = self._holds.add(lease, asked_at)
        if self._draining.is_set():
            hold.stop("drain")
        self._meters.began(self._pool.name, lease.tier, (hold.started_at_ms - lease.arrived_at_ms) / 1000)
        hold.task = asyncio.create_task(self._serve(hold))

    async def _serve(self, hold: Hold) -> None:
        try:
            try:
                await self._attempts.run(hold)
            except Exception:
                log.exception("attempt_broke", pool=self._pool.name, job=hold.lease.id)
                await self._attempts.give_up(hold)
        finally:
            self._holds.drop(hold)
            self._awake.set()  # there is room again, and we are the first to know

    async def _wait_for(self, event: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(random.uniform(*POLL_S)):
                await event.wait()
        except TimeoutError:
            pass

    def _wake(self) -> None:
        self._told.set()
        self._awake.set()

    # --- hearing ------------------------------------------------------------------------------------------------------

    async def _listen(self, signals: Signals, listening: AsyncExitStack) -> None:
        """Subscribes as soon as Redis lets us; until then there is the poll."""
        for channel, hear in (("wake", self._hear_wake), ("control", self._hear_control)):
            while True:
                try:
                    await listening.enter_async_context(signals.listen(self._pool.key(channel), hear))
                    break
                except FairlaneError:
                    await asyncio.sleep(random.uniform(*AGAIN_S))
        self._wake()  # something may have been said before
        self._hear_control("")

    def _hear_wake(self, why: str) -> None:
        """In a large fleet about two come at once, and the others, who would mostly come in vain, one after another."""
        if why == "room" or random.random() * self._crowd > AT_ONCE:
            pause_s = random.uniform(0, min(CROWD_MOST_S, CROWD_S * self._crowd))
            asyncio.get_running_loop().call_later(pause_s, self._wake)
        else:
            self._wake()

    def _hear_control(self, what: str) -> None:
        """`what` is '' when something may have been missed."""
        act, _, job_id = what.partition(" ")
        if act == "cancel":
            self._holds.cancel(job_id)
            return
        self._reread.set()
        if not act:
            self._holds.ask()

    async def _keep_backends(self) -> None:
        while True:
            try:
                for name in await self._backends.refresh():
                    self._holds.backend_gone(name)
                self._holds.follow(self._backends.pool.policy.lease_ms)
                self._crowd = max(1, len(await self._queue.inspect.dispatchers(self._pool)))
            except FairlaneError as error:
                log.warning("backends_not_read", pool=self._pool.name, error=error.code)
            except Exception:
                log.exception("backends_broke", pool=self._pool.name)
            try:
                async with asyncio.timeout(REFRESH_S):
                    await self._reread.wait()
            except TimeoutError:
                pass
            self._reread.clear()

    # --- ending -------------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Lets what runs end within the grace time, and hands the rest back."""
        if await self._ended(self._options.drain_s, self._hurry):
            return
        log.info("handing_back", pool=self._pool.name, jobs=len(self._holds))
        for hold in self._holds:
            hold.stop("drain")
        if not await self._ended(HAND_BACK_S):
            # Redis is away: they run again when their leases have ended
            log.warning("left_to_their_leases", pool=self._pool.name, jobs=len(self._holds))

    async def _ended(self, timeout_s: float, or_when: asyncio.Event | None = None) -> bool:
        """Whether everything that was held has ended within the time."""
        hurry = asyncio.create_task((or_when or asyncio.Event()).wait())
        try:
            async with asyncio.timeout(timeout_s):
                while len(self._holds) and not hurry.done():
                    tasks = [hold.task for hold in self._holds if hold.task]
                    await asyncio.wait([*tasks, hurry], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            pass
        finally:
            hurry.cancel()
        return not len(self._holds)
