"""The leases that a worker holds: renewed in one call, and stopped when their job was cancelled or they were lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, Literal

import structlog

from fairlane.errors import FairlaneError
from fairlane.model import Lease
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool

RENEWALS: Final = 3  # in the time of a lease: two may fail
AHEAD: Final = 1000  # cancels that are remembered because their lease may still be on its way here
Stop = Literal["cancelled", "lost", "drain", "gone"]
log = structlog.get_logger()


class Hold:
    """One lease and the task that works for it.

    `began` and `until` are times of this process's monotonic clock: before the lease was asked for, and when it surely
    ends. `started_at_ms` is when it began by Redis's clock. `spoke`: somebody may have read what came of its answer.
    """

    def __init__(self, lease: Lease, began: float, lease_ms: int) -> None:
        self.lease = lease
        self.began = began
        self.until = began + lease_ms / 1000
        self.started_at_ms = lease.until_ms - lease_ms
        self.stopped: Stop | None = None
        self.calling = False
        self.spoke = False
        self.task: asyncio.Task[None] | None = None

    def stop(self, why: Stop) -> None:
        """Ends the work at the backend. Once the answer is there this changes nothing: it is being written."""
        if self.stopped is None and self.calling and self.task:
            self.task.cancel()  # once: a second one could reach the write that follows
        if self.stopped is None or why == "lost":
            self.stopped = why


class Holds:
    """All holds of one worker, by job id."""

    def __init__(self, queue: Queue, pool: Pool) -> None:
        self._queue = queue
        self._pool = pool
        self._holds: dict[str, Hold] = {}
        self._lease_ms = pool.policy.lease_ms
        self._renew_now = asyncio.Event()
        self._ahead: dict[str, None] = {}  # cancelled jobs that are not held, oldest first
        self.changed = asyncio.Event()  # a hold has ended

    def __len__(self) -> int:
        return len(self._holds)

    def __iter__(self) -> Iterator[Hold]:
        return iter(tuple(self._holds.values()))

    def add(self, lease: Lease, asked_at: float) -> Hold:
        """`asked_at`: loop time before the acquire was sent, so that we never believe in a lease for too long."""
        if old := self._holds.get(lease.id):
            old.stop("lost")  # its lease has ended, or this one would not have been given
        hold = self._holds[lease.id] = Hold(lease, asked_at, self._lease_ms)
        if lease.id in self._ahead:
            hold.stop("cancelled")
        return hold

    def follow(self, lease_ms: int) -> None:
        """Leases last so long from now on. Those that are held are renewed to that at once."""
        if lease_ms != self._lease_ms:
            self._lease_ms = lease_ms
            self._renew_now.set()

    def ask(self) -> None:
        """Renews at once, which tells what was cancelled: a message that said so may have been missed."""
        self._renew_now.set()

    def drop(self, hold: Hold) -> None:
        # a lost job may be held again already, under a new lease
        if self._holds.get(hold.lease.id) is hold:
            del self._holds[hold.lease.id]
        self.changed.set()

    def cancel(self, job_id: str) -> None:
        """The job was cancelled. This may be heard before the answer that brings its lease."""
        if hold := self._holds.get(job_id):
            hold.stop("cancelled")
            return
        self._ahead[job_id] = None
        if len(self._ahead) > AHEAD:
            del self._ahead[next(iter(self._ahead))]

    def backend_gone(self, backend: str) -> None:
        """Nobody will answer there any more; some servers leave open requests hanging when they end."""
        for hold in self:
            if hold.lease.backend == backend:
                hold.stop("gone")

    async def keep_renewed(self) -> None:
        """Runs for ever. While Redis is away, work goes on until its lease has surely ended."""
        while True:
            await self._pause()
            holds = tuple(self)
            try:
                await self._renew(holds)
            except FairlaneError as error:
                log.warning("renew_failed", pool=self._pool.name, error=error.code, leases=len(holds))
            except Exception:  # without renewals all work would be lost
                log.exception("renew_broke", pool=self._pool.name)
            self._stop_ended()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._lease_ms / 1000 / RENEWALS):
                await self._renew_now.wait()
        self._renew_now.clear()

    async def _renew(self, holds: tuple[Hold, ...]) -> None:
        if not holds:
            return
        asked_at = asyncio.get_running_loop().time()
        lease_s = self._lease_ms / 1000
        words = await self._queue.renew(self._pool, [hold.lease for hold in holds])
        for hold, word in zip(holds, words, strict=True):
            if word == "ok":
                hold.until = asked_at + lease_s
            elif word == "cancelled" or self._holds.get(hold.lease.id) is hold:
                hold.stop(word)

    def _stop_ended(self) -> None:
        now = asyncio.get_running_loop().time()
        for hold in self:
            if hold.until <= now:
                hold.stop("lost")
