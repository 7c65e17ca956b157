"""Outcomes of the jobs that this process submitted, told on one channel for all of them in a pool: letters.

Who submits a job and waits for it needs no subscription of its own then, and no reading. A letter may be lost, and may
be too small to tell all; dispatchers of an earlier version send none. So whoever waits for one reads too, now and then
(waiting.py), and where a letter did not come nobody relies on them for a while.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from fairlane.errors import StoreUnavailable
from fairlane.ids import RandomIds
from fairlane.model import Job, JobSpec, Submitted
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from fairlane.queue.telling import Letter, submitted_job

KEPT: Final = 1000  # jobs whose letter is expected
HELD: Final = 1 << 20  # characters of letters that nobody has asked for yet
EARLY: Final = 64  # letters that came before the answer to their submit, or twice as many as there are submits
UNREAD_MOST: Final = 64  # jobs submitted since the last wait: whoever only submits has no use for letters
DISTRUST_S: Final = 60.0
NAME_LENGTH: Final = 16


@dataclass(slots=True, eq=False)
class Expected:
    """A job as it was submitted, and what tells of its outcome: None if that has to be read."""

    pool: Pool
    job: Job
    told: asyncio.Future[Letter | None]
    held: int = 0  # characters of a letter that came before it was asked for


class Mailbox:
    """`close` it."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._name = RandomIds().token(NAME_LENGTH)
        self._listeners: dict[str, asyncio.Task[None]] = {}  # by a pool's code, as the next three
        self._open: set[str] = set()  # the subscription stands
        self._proven: set[str] = set()  # letters come
        self._distrusted: dict[str, float] = {}  # they did not: until when
        self._unread = UNREAD_MOST
        self._gaps = 0  # how often letters may have been missed
        self._sending = 0
        self._held = 0
        self._expected: OrderedDict[str, Expected] = OrderedDict()
        self._early: OrderedDict[str, Letter] = OrderedDict()  # both by a job's id

    async def close(self) -> None:
        """Ends the subscriptions."""
        listeners = list(self._listeners.values())
        for listener in listeners:
            listener.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)

    async def submit(self, pool: Pool, spec: JobSpec, send: Callable[[JobSpec], Awaitable[Submitted]]) -> Submitted:
        """Has it sent with an inbox, if somebody listens there and those who submit also wait.

        It begins to listen after the first wait, and keeps nobody waiting for that.
        """
        if not self._is_of_use(pool):
            return await send(spec)
        gaps = self._gaps
        self._sending += 1
        try:
            submitted = await send(replace(spec, inbox=self._inbox(pool)))
            if submitted.created and gaps == self._gaps:
                self._expect(pool, spec, submitted.id)
        finally:
            self._sending -= 1
            if not self._sending:
                self._early.clear()
        return submitted

    def expected(self, job_id: str) -> Expected | None:
        """What to wait for, if a letter is likely to come, or has come. Whoever asks calls `forget` at the end."""
        self._unread = 0
        found = self._expected.get(job_id)
        if found and not found.told.done() and found.pool.code not in self._proven:
            self.forget(job_id)
            return None
        return found

    def forget(self, job_id: str) -> None:
        """Nobody waits for its letter any more; whoever does has to read."""
        if found := self._expected.pop(job_id, None):
            self._held -= found.held
            if not found.told.done():
                found.told.set_result(None)

    def distrust(self, pool: Pool) -> None:
        """A job has its outcome, and no letter told: a dispatcher of an earlier version settled it."""
        self._proven.discard(pool.code)
        self._distrusted[pool.code] = asyncio.get_running_loop().time() + DISTRUST_S
        self._forget_all(pool)

    def _is_of_use(self, pool: Pool) -> bool:
        if self._unread >= UNREAD_MOST or asyncio.get_running_loop().time() < self._distrusted.get(pool.code, 0.0):
            return False
        self._unread += 1
        if pool.code not in self._listeners:
            self._listeners[pool.code] = asyncio.create_task(self._listen(pool))
        return pool.code in self._open

    def _inbox(self, pool: Pool) -> str:
        """Each pool has its own: a job keeps it when it moves, and where it goes nobody listens to that."""
        return self._name + pool.code

    async def _listen(self, pool: Pool) -> None:
        try:
            async with self._signals.listen(pool.key("settled", self._inbox(pool)), partial(self._hear, pool)):
                self._open.add(pool.code)
                await asyncio.Event().wait()
        except StoreUnavailable:
            pass  # the next job has it tried again
        finally:
            self._open.discard(pool.code)
            del self._listeners[pool.code]

    def _hear(self, pool: Pool, message: str) -> None:
        letter = Letter.parse(message)
        if letter is None:  # some may have been missed
            self._gaps += 1
            self._forget_all(pool)
            return
        self._proven.add(pool.code)
        if letter.job_id in self._expected:
            self._deliver(letter)
        elif self._sending:
            self._early[letter.job_id] = letter
            if len(self._early) > max(EARLY, 2 * self._sending):
                self._early.popitem(last=False)

    def _expect(self, pool: Pool, spec: JobSpec, job_id: str) -> None:
        told: asyncio.Future[Letter | None] = asyncio.get_running_loop().create_future()
        self._expected[job_id] = Expected(pool, submitted_job(pool, spec, job_id), told)
        if letter := self._early.pop(job_id, None):
            self._deliver(letter)
        if len(self._expected) > KEPT:
            self.forget(next(iter(self._expected)))

    def _deliver(self, letter: Letter) -> None:
        found = self._expected[letter.job_id]
        if found.told.done():
            return
        found.held = len(letter.word)
        self._held += found.held
        found.told.set_result(letter)
        while self._held > HELD:
            self.forget(next(id_ for id_, one in self._expected.items() if one.held))

    def _forget_all(self, pool: Pool) -> None:
        for job_id in [id_ for id_, one in self._expected.items() if one.pool.code == pool.code]:
            self.forget(job_id)
