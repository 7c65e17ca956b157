"""The work on batches: what is due, and for each of it one short step that may be done again after any crash.

The sweeper's process asks `due` and hands that to Celery, whose tasks call `advance` and `collect`. A task that is lost
is due again in AGAIN_S.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from fairlane.batches.collecting import Collector
from fairlane.batches.feeding import Feeder, window
from fairlane.batches.finishing import Finisher
from fairlane.batches.ledger import EVENTS, Ledger, Record
from fairlane.batches.lock import held
from fairlane.batches.stopping import Stopper
from fairlane.batches.turns import Turns
from fairlane.errors import FairlaneError, NotFound
from fairlane.files import Files
from fairlane.ids import RANDOM_LENGTH, RandomIds
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool

AGAIN_S: Final = 10.0  # until what was handed over is due again, unless its step has said when
MOST_DUE: Final = 100  # batches, and pools, at once
COLLECT_S: Final = 1.0  # a step of collecting
IDLE_S: Final = 5.0  # a batch in progress, though nothing was marked: that looks at it at once
FULL_S: Final = 1.0  # pause when the queue is full: twice as long each time, up to
MOST_FULL_S: Final = 30.0
RECHECK_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be looked at: batches by id, pools by code."""

    batches: list[str]
    pools: list[str]


async def due(queue: Queue) -> Due:
    """What is due now; of each tenant's batches a few, in turn. It is due again in AGAIN_S, or when its step says."""
    pools, batches = await Turns(queue.store).due(MOST_DUE, round(1000 * AGAIN_S))
    return Due(batches, pools)


class BatchWork:
    """The steps. Every method may raise StoreUnavailable, StoreFull and FilesUnavailable: the step is done again."""

    def __init__(self, queue: Queue, files: Files, *, max_attempts: int = 3, max_body_bytes: int = 8 << 20) -> None:
        self._queue = queue
        self._files = files
        self._ledger = Ledger(queue.store)
        self._turns = Turns(queue.store)
        self._collector = Collector(self._ledger, files)
        self._feeder = Feeder(queue, files, self._ledger, self._collector, max_attempts, max_body_bytes)
        self._stopper = Stopper(queue, self._ledger, self._collector)
        self._finisher = Finisher(queue, files, self._ledger)

    async def advance(self, batch_id: str) -> None:
        """The next step of one batch, unless another does it now."""
        who = RandomIds().token(RANDOM_LENGTH)
        async with held(self._queue.store, self._ledger.prefix, f"batch:{batch_id}", who) as ours:
            if not ours:
                return
            try:
                record = await self._ledger.load(batch_id)
            except NotFound:  # past its retention
                return
            try:
                pause_s = await self._step(record, who)
            except FairlaneError:  # meanwhile others of the tenant's have their turn
                await self._turns.look_at(batch_id, AGAIN_S)
                raise
            await self._turns.look_at(batch_id, pause_s)

    async def collect(self, code: str) -> None:
        """Takes outcomes of a pool's jobs to their batches, for COLLECT_S at the most, unless another does it now."""
        pool = await self._queue.pools.by_code(code)
        who = RandomIds().token(RANDOM_LENGTH)
        async with held(self._queue.store, pool.prefix, "collector", who) as ours:
            if not ours:
                return
            loop = asyncio.get_running_loop()
            until, looked, parts = loop.time() + COLLECT_S, EVENTS, 0
            while looked == EVENTS and loop.time() < until:
                looked, new = await self._collector.collect(pool)
                parts = max(parts, new)
        await self._turns.look_at_pool(code, None if looked < 0 else _pause_s(looked, parts))

    async def tend(self) -> None:
        """Collects wherever batches run, and takes away what no file is any more, without a message that says so: a
        Redis that is full of answers takes no messages."""
        for pool in await self._queue.pools.all():
            await self.collect(pool.code)
        await self._files.sweep()

    async def _step(self, record: Record, who: str) -> float | None:
        """Returns in how many seconds to look again; None: never."""
        batch = record.view
        match batch.status:
            case "validating":
                await self._feeder.validate(record, who)
                return 0.0
            case "in_progress":
                return await self._run(record, who)
            case "finalizing" | "cancelling":
                if record.ending:
                    await self._finisher.finish(record, who, record.ending)
                else:
                    await self._stop(record, who)
                return 0.0
            case _:
                return None if await self._finisher.clean(record) else 0.0

    async def _run(self, record: Record, who: str) -> float:
        batch = record.view
        if record.marked >= batch.total:
            await self._finisher.freeze(record, who, "expired" if record.late else "completed")
            return 0.0
        if record.now_ms >= batch.expires_at_ms:
            await self._stop(record, who)
            return 0.0
        pool = await self._pool(record)
        await self._ledger.join(pool, batch.id)
        await self._turns.look_at_pool(pool.code, 0.0)
        if record.now_ms - record.checked_ms >= RECHECK_MS:
            await self._collector.recheck(pool, batch.id)
            await self._ledger.note(batch.id, who, "in_progress", {"checked": record.now_ms})
        if record.fed == batch.total and not record.open_jobs:
            await self._collector.close_gaps(record, who, pool)
        if record.fed < batch.total and record.open_jobs < window(record) and not record.disabled:
            return await self._feed(record, who, pool)
        return IDLE_S

    async def _feed(self, record: Record, who: str, pool: Pool) -> float:
        try:
            full = await self._feeder.feed(record, who, pool)
        except NotFound:
            await self._stopper.stop(record)
            await self._finisher.freeze(record, who, "failed")
            return 0.0
        full_ms = round(min(2 * record.full_ms or 1000 * FULL_S, 1000 * MOST_FULL_S)) if full else 0
        if full_ms != record.full_ms:
            await self._ledger.note(record.view.id, who, "in_progress", {"full": full_ms})
        return full_ms / 1000 or IDLE_S

    async def _stop(self, record: Record, who: str) -> None:
        """Nothing more is to run: cancels what is open, takes what it came to, and lets nothing more be marked."""
        await self._stopper.stop(record)
        await self._finisher.freeze(record, who, "cancelled" if record.view.status == "cancelling" else "expired")

    async def _pool(self, record: Record) -> Pool:
        return await self._queue.pools.by_code(record.pool)


def _pause_s(looked: int, parts: int) -> float:
    """Many parts make slow work at the end, so who has many already waits for more outcomes at once."""
    return 0.0 if looked == EVENTS else min(5.0, 0.2 + parts / 500)
