"""Runs a pool's clocks: lost leases, due jobs, deadlines, held tenants, moves that broke off. One process a pool."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from fairlane.errors import FairlaneError
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool

BUSY_S: Final = 0.1  # while something is due sooner or later
IDLE_S: Final = 0.5
log = structlog.get_logger()


async def sweep_forever(queue: Queue, pool: Pool) -> None:
    """Sweeps until it is cancelled; errors of Redis are waited out."""
    while True:
        pause_s = IDLE_S
        try:
            swept = await queue.sweep(pool)
            if swept.lost:
                log.warning("leases_lost", pool=pool.name, jobs=swept.lost)
            if swept.next_at_ms is not None:
                pause_s = 0.0 if swept.more else BUSY_S
        except FairlaneError as error:
            log.warning("sweep_failed", pool=pool.name, error=error.code)
        await asyncio.sleep(pause_s)
