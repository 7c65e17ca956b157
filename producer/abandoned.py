"""Jobs whose callers have gone: each is cancelled, if need be as soon as Redis is there again."""

from __future__ import annotations

import asyncio
import random
from typing import Final

import structlog

from fairlane.errors import FairlaneError
from fairlane.queue.engine import Queue

MOST: Final = 10_000  # that wait for Redis; the oldest beyond it run unread
AGAIN_S: Final = (0.2, 1.0)
log = structlog.get_logger()


class Abandoned:
    """One per process: however many callers hang up while Redis is away, one task tries again."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._waiting: dict[str, None] = {}  # ids, the oldest first
        self._trying: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def cancel(self, job_id: str) -> None:
        """Cancels the job, now or later. Raises nothing: nobody is there to be told."""
        if self._waiting or not await self._is_done(job_id):
            self._put_off(job_id)

    async def close(self) -> None:
        """Tries no more."""
        if self._trying:
            self._trying.cancel()
            await asyncio.wait([self._trying])
        if self._waiting:
            log.warning("left_uncancelled", jobs=len(self._waiting))

    def _put_off(self, job_id: str) -> None:
        self._waiting[job_id] = None
        if len(self._waiting) > MOST:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            log.warning("not_cancelled", job=oldest, error="too_many")
        if self._trying is None or self._trying.done():
            self._trying = asyncio.create_task(self._try_again())

    async def _try_again(self) -> None:
        while self._waiting:
            job_id = next(iter(self._waiting))
            if await self._is_done(job_id):
                self._waiting.pop(job_id, None)
            else:
                await asyncio.sleep(random.uniform(*AGAIN_S))

    async def _is_done(self, job_id: str) -> bool:
        """Whether nothing is left to be done about it."""
        try:
            await self._queue.cancel(job_id)
        except FairlaneError as error:
            if error.retryable:
                return False
            log.warning("not_cancelled", job=job_id, error=error.code)
        except Exception:  # the others must not wait for it for ever
            log.exception("cancel_broke", job=job_id)
        return True
