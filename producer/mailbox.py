"""Outcomes of the jobs that this process submitted, on one channel for all of them in a pool.

Who submits a job and waits for it needs no subscription of its own then, and no reading: the outcome is told. A letter
may be lost, may be too large to tell all, and comes only from where the job was submitted to: what none came for in
LETTER_S is waited for in the other way (waiting.py). So nothing is owed to this but time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, TypeVar

from fairlane.errors import StoreUnavailable
from fairlane.ids import RandomIds
from fairlane.model import Job, JobSpec
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from fairlane.queue.telling import Letter, submitted_job

LETTER_S: Final = 1.0
KEPT: Final = 1000  # jobs that nobody waits for yet, and letters that came before the answer to their submit
UNREAD_MOST: Final = 64  # jobs submitted since the last wait: whoever only submits has no use for letters
NAME_LENGTH: Final = 16
Value = TypeVar("Value")


class Mailbox:
    """`close` it."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._name = RandomIds().token(NAME_LENGTH)
        self._listeners: dict[str, asyncio.Task[None]] = {}  # by a pool's code
        self._open: set[str] = set()  # those whose subscription stands
        self._unread = UNREAD_MOST
        self._expected: OrderedDict[str, tuple[Job, asyncio.Future[Job | None]]] = OrderedDict()
        self._early: OrderedDict[str, Letter] = OrderedDict()

    async def close(self) -> None:
        """Ends the subscriptions."""
        listeners = list(self._listeners.values())
        for listener in listeners:
            listener.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)

    def inbox(self, pool: Pool) -> str | None:
        """What a job's `inbox` should be; None while nobody listens there, or if those who submit do not wait.

        It begins to listen when it is asked again after a wait, and keeps nobody waiting for that.
        """
        if self._unread >= UNREAD_MOST:
            return None
        self._unread += 1
        if pool.code not in self._listeners:
            self._listeners[pool.code] = asyncio.create_task(self._listen(pool))
        return self._name if pool.code in self._open else None

    def expect(self, pool: Pool, spec: JobSpec, job_id: str) -> None:
        """A job was made, of a spec with the name as its inbox."""
        told: asyncio.Future[Job | None] = asyncio.get_running_loop().create_future()
        _keep(self._expected, job_id, (submitted_job(pool, spec, job_id), told))
        if letter := self._early.pop(job_id, None):
            self._deliver(letter)

    async def outcome(self, job_id: str) -> Job | None:
        """The finished job, if a letter tells it soon, or has told it."""
        self._unread = 0
        if job_id not in self._expected:
            return None
        _, told = self._expected[job_id]
        given_up = asyncio.get_running_loop().call_later(LETTER_S, _answer, told, None)
        try:
            return await told
        finally:
            given_up.cancel()
            self._expected.pop(job_id, None)

    async def _listen(self, pool: Pool) -> None:
        try:
            async with self._signals.listen(pool.key("settled", self._name), self._hear):
                self._open.add(pool.code)
                await asyncio.Event().wait()
        except StoreUnavailable:
            pass  # the next job has it tried again
        finally:
            self._open.discard(pool.code)
            del self._listeners[pool.code]

    def _hear(self, message: str) -> None:
        if letter := Letter.parse(message):
            self._deliver(letter)
            return
        for _, told in self._expected.values():  # some may have been missed
            _answer(told, None)
        self._expected.clear()

    def _deliver(self, letter: Letter) -> None:
        if letter.job_id in self._expected:
            job, told = self._expected[letter.job_id]
            _answer(told, letter.outcome(job))
        else:
            _keep(self._early, letter.job_id, letter)


def _keep(kept: OrderedDict[str, Value], job_id: str, value: Value) -> None:
    kept[job_id] = value
    if len(kept) > KEPT:
        kept.popitem(last=False)


def _answer(told: asyncio.Future[Job | None], job: Job | None) -> None:
    if not told.done():
        told.set_result(job)
