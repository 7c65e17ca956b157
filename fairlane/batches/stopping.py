"""Jobs that are not to run any more: cancelled, and taken out of the queue with whatever they came to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from fairlane.batches.collecting import Collector
from fairlane.batches.ledger import Event, Ledger, Record
from fairlane.errors import NotFound
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool

CANCELS: Final = 50  # at once


class Stopper:
    """What takes jobs of batches back."""

    def __init__(self, queue: Queue, ledger: Ledger, collector: Collector) -> None:
        self._queue = queue
        self._ledger = ledger
        self._collector = collector

    async def stop(self, record: Record) -> None:
        """All jobs of a batch: those that are open, and those that a feeder which is gone has submitted last.

        Requests that it had only meant to submit are refused from here on: it may just be slow.
        """
        if not record.pool:
            return
        jobs = await self._ledger.open_jobs(record.view.id)
        try:
            pool = await self._queue.pools.by_code(record.pool)
            jobs |= await self._ledger.find_jobs(pool, record.view, range(record.fed + 1, record.sent + 1), bar=True)
        except NotFound:  # of a pool that is gone nothing is to be had
            return
        await self.withdraw(pool, record.view.id, jobs)

    async def withdraw(self, pool: Pool, batch_id: str, jobs: Mapping[str, int]) -> None:
        """`jobs`: id -> ordinal. What was answered by now is kept if the batch still takes it."""
        gate = asyncio.Semaphore(CANCELS)

        async def cancel(job: str) -> None:
            async with gate:
                with suppress(NotFound):
                    await self._queue.cancel(job)

        await asyncio.gather(*map(cancel, jobs))
        await self._collector.take(pool, [Event("", job, batch_id) for job in jobs], jobs)
