"""Waiting for jobs: any number of callers, any number of them for one job, over one subscription of the process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from fairlane.errors import FairlaneError, StoreUnavailable
from fairlane.model import Job, JobSpec, Submitted
from fairlane.queue.engine import Queue
from fairlane.queue.gather import Gather
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from fairlane.queue.telling import outcome_told
from producer.mailbox import Expected, Mailbox

LETTER_S: Final = 1.0  # without a letter for so long one looks for the first time
LATE_S: Final = 0.2  # behind what was read a letter is lost
REREAD_S: Final = (4.0, 8.0)  # every message may be lost; jittered, so that not all who wait read at once
OUTAGE_S: Final = 20.0  # how long Redis may be away before those who wait are told
AGAIN_S: Final = (0.1, 0.5)
READ_MOST: Final = 50  # outcomes in one round trip


class Waiting:
    """Subscribe, then read, then wait, and read again now and then: so no outcome is missed (case 20).

    Those who wait for one job share one watch of it. While Redis is away they go on waiting, for OUTAGE_S at the most:
    what they wait for is probably still being worked on. What was submitted here is told by letter: then there
    is nothing to subscribe to, and little to read. `close` it.
    """

    def __init__(self, queue: Queue, signals: Signals) -> None:
        self._queue = queue
        self._signals = signals
        self._watches: dict[str, _Watch] = {}
        self._reads = _Reads(queue)
        self._mailbox = Mailbox(signals)

    async def close(self) -> None:
        """Ends its own subscriptions. Whoever still waits gets StoreUnavailable: their jobs go on."""
        for watch in tuple(self._watches.values()):
            watch.end(StoreUnavailable("This connection to Redis was closed."))
        await self._mailbox.close()

    async def submit(self, pool: Pool, spec: JobSpec) -> Submitted:
        """As `Queue.submit`, of a job that is likely to be waited for at once, here."""
        if spec.delay_ms or spec.batch_id:
            return await self._queue.submit(pool, spec)
        return await self._mailbox.submit(pool, spec, lambda made: self._queue.submit(pool, made))

    async def job(self, job_id: str, timeout_s: float | None, closing: asyncio.Event | None = None) -> Job:
        """The job as soon as it is finished, or as it is when the time is up or `closing` is set; without its body.

        Raises NotFound, StoreUnavailable.
        """
        watch = self._watches.get(job_id) or self._begin(job_id)
        close = asyncio.create_task(closing.wait()) if closing else None
        watch.waiters += 1
        try:
            ends = [watch.outcome, close] if close else [watch.outcome]
            await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            return watch.outcome.result() if watch.outcome.done() else await self._queue.inspect.outcome(job_id)
        finally:
            if close:
                close.cancel()
            watch.waiters -= 1
            if not watch.waiters and not watch.outcome.done():
                watch.end()
                self._forget(job_id, watch)

    def _begin(self, job_id: str) -> _Watch:
        watch = self._watches[job_id] = _Watch(self._queue, self._signals, self._reads, self._mailbox, job_id)
        watch.outcome.add_done_callback(lambda _: self._forget(job_id, watch))
        return watch

    def _forget(self, job_id: str, watch: _Watch) -> None:
        """Nobody joins it any more."""
        if self._watches.get(job_id) is watch:
            del self._watches[job_id]


class _Watch:
    """Follows one job to its end, for `waiters` callers: `outcome` is the finished job, or why it cannot be had."""

    def __init__(self, queue: Queue, signals: Signals, reads: _Reads, mailbox: Mailbox, job_id: str) -> None:
        loop = asyncio.get_running_loop()
        self.waiters = 0
        self.outcome: asyncio.Future[Job] = loop.create_future()
        self._queue = queue
        self._signals = signals
        self._reads = reads
        self._mailbox = mailbox
        self._job_id = job_id
        self._clock = loop.time
        self._read_at = self._clock()
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._ran)

    def end(self, error: FairlaneError | None = None) -> None:
        """Nobody waits any more; or nobody can, and those who do are told why."""
        if error is None:
            self.outcome.cancel()
        elif not self.outcome.done():
            self.outcome.set_exception(error)
            self.outcome.exception()
        self._task.cancel()  # it may be swallowed (see Store.bounded): then the next look at `outcome` ends it

    def _ran(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error and not self.outcome.done():
            self.outcome.set_exception(error)
            self.outcome.exception()  # nobody may be left to be told

    async def _run(self) -> None:
        while not self.outcome.done():
            try:
                if expected := self._mailbox.expected(self._job_id):
                    await self._by_letter(expected)
                else:
                    await self._follow()
            except StoreUnavailable as error:
                await self._ride_out(error)

    async def _ride_out(self, error: StoreUnavailable) -> None:
        """Waits a moment before the next try; raises the error if Redis has been away too long."""
        if self._clock() - self._read_at > OUTAGE_S:
            raise error
        await asyncio.sleep(random.uniform(*AGAIN_S))

    async def _by_letter(self, expected: Expected) -> None:
        """Until the job is finished, or has to be followed in the other way."""
        pause_s = LETTER_S
        try:
            while True:
                await asyncio.wait([expected.told], timeout=pause_s)
                if expected.told.done():
                    letter = expected.told.result()
                    if (told := letter and letter.outcome(expected.job)) and not self.outcome.done():
                        self.outcome.set_result(told)
                    return
                job = await self._read(expected.pool)
                if self.outcome.done() or job.pool != expected.pool.name:
                    return
                if job.finished_at_ms is not None:
                    self.outcome.set_result(job)
                    await asyncio.wait([expected.told], timeout=LATE_S)
                    if not expected.told.done():
                        self._mailbox.distrust(expected.pool)
                    return
                pause_s = random.uniform(*REREAD_S)
        finally:
            self._mailbox.forget(self._job_id)

    async def _follow(self) -> None:
        pool = await self._queue.home(self._job_id)
        while moved_to := await self._in_pool(pool):
            pool = await self._queue.pools.by_name(moved_to)

    async def _in_pool(self, pool: Pool) -> str | None:
        """Until the job is finished, or is in another pool: that one's name."""
        spoke, heard = asyncio.Event(), list[str]()

        def hear(message: str) -> None:
            heard.append(message)
            spoke.set()

        async with self._signals.listen(pool.key("settled", self._job_id), hear):
            while True:
                heard.clear()
                job = await self._read(pool)
                if self.outcome.done():
                    return None
                if job.finished_at_ms is not None:
                    self.outcome.set_result(job)
                    return None
                if job.pool != pool.name:
                    return job.pool
                try:
                    async with asyncio.timeout(random.uniform(*REREAD_S)):
                        await spoke.wait()
                except TimeoutError:
                    pass
                spoke.clear()
                if heard and (told := outcome_told(job, heard[-1])):
                    self.outcome.set_result(told)
                    return None

    async def _read(self, pool: Pool) -> Job:
        """The job; the subscription stands meanwhile."""
        while True:
            try:
                job = await self._reads.outcome(pool, self._job_id)
            except StoreUnavailable as error:
                await self._ride_out(error)
            else:
                self._read_at = self._clock()
                return job


class _Reads:
    """Reads outcomes; those that are asked for while an earlier read is on its way go together in the next one."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._gathers: dict[str, Gather[str, Job | FairlaneError | None]] = {}

    async def outcome(self, pool: Pool, job_id: str) -> Job:
        """The job, in `pool` or wherever it was moved. Raises NotFound, StoreUnavailable."""
        if pool.code not in self._gathers:
            self._gathers[pool.code] = Gather(lambda ids: self._read(pool, ids), READ_MOST, _is_hopeless)
        found = await self._gathers[pool.code].call(job_id)
        if isinstance(found, FairlaneError):
            raise found
        return found or await self._queue.inspect.outcome(job_id)

    async def _read(self, pool: Pool, ids: Sequence[str]) -> list[Job | FairlaneError | None]:
        try:
            found = {job.id: job for job in await self._queue.inspect.outcomes(pool, ids)}
        except FairlaneError as error:
            return [error] * len(ids)
        return [found.get(id_) for id_ in ids]


def _is_hopeless(answer: Job | FairlaneError | None) -> bool:
    return isinstance(answer, FairlaneError)
