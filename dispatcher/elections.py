"""Some work is done by one process of a fleet: it holds a role in Redis for a moment, again and again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog

from fairlane.errors import FairlaneError
from fairlane.model import Role
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool

HOLD_S: Final = 1.0
ASK_S: Final = (0.2, 0.3)  # taken over within HOLD_S + ASK_S: 1.3 s
log = structlog.get_logger()


class Office:
    """Does `work` of a role whenever this process holds it; stops it as soon as another may hold it."""

    def __init__(self, queue: Queue, pool: Pool, role: Role, who: str, work: Callable[[], Awaitable[None]]) -> None:
        self._queue = queue
        self._pool = pool
        self.role: Role = role
        self._who = who
        self._work = work
        self._task: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        return self._task is not None

    async def run(self) -> None:
        """Runs until it is cancelled, and then gives the role up, so that another need not wait."""
        loop = asyncio.get_running_loop()
        until = 0.0
        try:
            while True:
                asked_at = loop.time()
                try:
                    won = await self._queue.elect(self._pool, self.role, self._who, round(1000 * HOLD_S))
                    until = asked_at + HOLD_S if won else 0.0
                except FairlaneError:
                    pass  # what is held runs out by itself
                except Exception:  # else this process would never stand for the office again
                    log.exception("election_broke", pool=self._pool.name, role=self.role)
                if loop.time() < until:
                    self._start()
                else:
                    await self._stop()
                await asyncio.sleep(random.uniform(*ASK_S))
        finally:
            held = self.held
            await self._stop()
            if held:
                with suppress(FairlaneError):
                    await self._queue.resign(self._pool, self.role, self._who)

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watched())

    async def _watched(self) -> None:
        try:
            await self._work()
        except Exception:  # it is started anew at the next election
            log.exception("office_broke", pool=self._pool.name, role=self.role)

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task:
            task.cancel()
            await asyncio.wait([task])
