"""The work on batches, within the test's own process: what the sweeper and the Celery worker do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairlane.batches.work import BatchWork, due
from fairlane.files import Files
from fairlane.queue.engine import Queue

BETWEEN_S = 0.02


@asynccontextmanager
async def batches_worked_off(queue: Queue, files_url: str) -> AsyncIterator[None]:
    """Within the block every batch goes on."""
    work = BatchWork(queue, Files(queue, files_url))

    async def go() -> None:
        while True:
            found = await due(queue)
            for pool in found.pools:
                await work.collect(pool)
            for batch in found.batches:
                await work.advance(batch)
            await asyncio.sleep(BETWEEN_S)

    task = asyncio.create_task(go())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
