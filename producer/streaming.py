"""Following a job's streamed answer: any number of readers, from any position, over one subscription of the process.

Subscribe, then read, then listen: what is told comes without a round trip; a gap in its numbers is noticed and read. A
message may be lost, and a reader may be slow or come late: what it hands on is always what was appended, in order.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from typing import Final

from fairlane import sse
from fairlane.errors import Draining, StoreUnavailable, StreamBroken
from fairlane.model import FINISHED, Job
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.replies import MovedAway
from fairlane.queue.signals import Signals
from fairlane.queue.streams import Chunk, Page, Position, heard

PAUSES_S: Final = (2.0, 5.0)  # nothing came for so long: the first time, and each further time
REREAD_S: Final = (4.0, 8.0)  # after such a silence: every message may be lost
OUTAGE_S: Final = 20.0  # how long Redis may be away before those who read are told
AGAIN_S: Final = (0.1, 0.5)
MAIL_MOST: Final = 256 << 10  # bytes that one reader has waiting; beyond, it reads them from Redis when it comes to it
_WAITING: Final = ("queued", "delayed")


@dataclass(frozen=True, slots=True)
class Event:
    """One whole server-sent event, in the backend's own bytes."""

    position: Position
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing came for a while; the reader goes on."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The last item. `job` has its outcome; all of its events were handed on, unless its answer was no stream."""

    job: Job


Item = list[Event] | Pause | Ended


class Streams:
    """Reads streams for the front door's callers."""

    def __init__(self, queue: Queue, signals: Signals) -> None:
        self._queue = queue
        self._signals = signals

    async def events(
        self, job_id: str, after: Position | None = None, closing: asyncio.Event | None = None
    ) -> AsyncGenerator[Item]:
        """The job's events after a position, as they come, with pauses between; an `Ended` comes last.

        Raises NotFound; StreamBroken if the attempt that it handed on events of is gone and another one began;
        Draining once `closing` is set; StoreUnavailable if Redis is away for too long.
        """
        pool, reader = await self._queue.home(job_id), _Reader(self._queue, job_id, after, closing)
        close = asyncio.create_task(closing.wait()) if closing else None
        if close:
            close.add_done_callback(lambda _: reader.told_to_look())
        try:
            while True:
                async with (
                    self._signals.listen(pool.key("chunks", job_id), reader.told),
                    self._signals.listen(pool.key("settled", job_id), lambda _: reader.told_to_look()),
                ):
                    try:
                        while True:
                            for item in await reader.items(pool):
                                yield item
                            if reader.ended:
                                return
                    except MovedAway as moved:
                        reader.told_to_look()
                        pool = await self._follow(job_id, moved)
        finally:
            if close:
                close.cancel()

    async def _follow(self, job_id: str, moved: MovedAway) -> Pool:
        if moved.stage == "moving":
            await self._queue.inspect.outcome(job_id)  # finishes the move
        return await self._queue.pools.by_code(moved.code)


class _Reader:
    """One caller's place in one job's stream."""

    def __init__(self, queue: Queue, job_id: str, after: Position | None, closing: asyncio.Event | None) -> None:
        self.ended = False
        self._queue = queue
        self._job_id = job_id
        self._at = after  # the last event that was handed on, now or before
        self._from = after  # where to read on
        self._closing = closing
        self._clock = asyncio.get_running_loop().time
        self._mail: deque[Chunk] = deque()
        self._mail_bytes = 0
        self._spoke = asyncio.Event()
        self._must_read = True
        self._answered_at = self._clock()
        self._pause_at = self._clock() + PAUSES_S[0]
        self._reread_at = 0.0

    # --- hearing ------------------------------------------------------------------------------------------------------

    def told(self, message: str) -> None:
        """Of a chunk that was appended; '' if something may have been missed."""
        if not message or self._mail_bytes > MAIL_MOST:
            self._empty()
            self._must_read = True
        else:
            chunk = heard(message)
            self._mail.append(chunk)
            self._mail_bytes += len(chunk.events or b"")
        self._spoke.set()

    def told_to_look(self) -> None:
        """The job has its outcome, or has moved, or this process is about to end."""
        self._must_read = True
        self._spoke.set()

    def _empty(self) -> list[Chunk]:
        mail = list(self._mail)
        self._mail.clear()
        self._mail_bytes = 0
        return mail

    # --- handing on ---------------------------------------------------------------------------------------------------

    async def items(self, pool: Pool) -> list[Item]:
        """What there is, as soon as there is something; never nothing. Raises as `Streams.events`, and MovedAway."""
        while True:
            if self._closing and self._closing.is_set():
                raise Draining(
                    "This process ends. Go on elsewhere: GET /v1/jobs/{id}/stream, after the last event's id."
                )
            self._spoke.clear()
            items: list[Item] = []
            if events := self._from_mail():
                items.append(events)
            elif self._must_read:
                items = await self._read(pool)
            if items:
                self._pause_at = self._clock() + PAUSES_S[1]
                self._reread_at = self._clock() + random.uniform(*REREAD_S)
                return items
            if self._clock() >= self._pause_at:
                self._pause_at = self._clock() + PAUSES_S[1]
                return [Pause()]
            if not self._must_read:
                await self._wait()

    async def _wait(self) -> None:
        """Until something is told, or it is time for a pause, or to read again."""
        try:
            async with asyncio.timeout_at(min(self._pause_at, self._reread_at)):
                await self._spoke.wait()
        except TimeoutError:
            self._must_read |= self._clock() >= self._reread_at

    def _from_mail(self) -> list[Event]:
        """The events that were told of, up to a gap in their numbers: that must be read."""
        events: list[Event] = []
        for chunk in self._empty():
            here = self._at
            if here and chunk.token < here.token:
                continue
            next_one = 1 if here is None else here.ordinal + 1
            if chunk.events is None or (here and chunk.token > here.token) or chunk.first > next_one:
                self._must_read = True
                break
            one = [chunk.events] if chunk.first == chunk.last else None  # most are: no need to look for its end
            events += self._cut(chunk.token, chunk.last, chunk.events, one)
        return events

    async def _read(self, pool: Pool) -> list[Item]:
        self._must_read = False  # what is told from now on may not be in it
        page = await self._page(pool)
        self._reread_at = self._clock() + random.uniform(*REREAD_S)
        if self._at and _is_broken(page, self._at):
            raise StreamBroken()
        events: list[Event] = []
        if page.state not in _WAITING:
            for position, text in page.chunks:
                events += self._cut(position.token, position.ordinal, text)
        self._from = self._at or Position(page.token, 0)
        self._must_read |= page.more
        if page.state not in FINISHED or page.more:
            return [events] if events else []
        job = await self._queue.inspect.outcome(self._job_id)
        if job.finished_at_ms is None:  # requeued in this moment
            self._must_read = True
            return [events] if events else []
        self.ended = True
        events += self._unread(job, page.token)
        return [events, Ended(job)] if events else [Ended(job)]

    async def _page(self, pool: Pool) -> Page:
        """The job and what comes next; while Redis is away, for OUTAGE_S at the most, it is asked again."""
        while True:
            try:
                page = await self._queue.inspect.chunks(pool, self._job_id, self._from)
            except StoreUnavailable:
                if self._clock() - self._answered_at > OUTAGE_S:
                    raise
                await asyncio.sleep(random.uniform(*AGAIN_S))
            except MovedAway:  # only what waits can move
                if self._at:
                    raise StreamBroken() from None
                raise
            else:
                self._answered_at = self._clock()
                return page

    def _unread(self, job: Job, token: int) -> list[Event]:
        """What the result has beyond the chunks: they are past their time, or Redis had no room for them."""
        if job.state != "succeeded" or not job.result or not (self._at or sse.is_stream(job.result)):
            return []
        return self._number(token, 1, sse.events_of(job.result))

    def _cut(self, token: int, last: int, text: bytes, known: list[bytes] | None = None) -> list[Event]:
        """The new events of a chunk; `known`: all that are in it."""
        if self._at and last <= self._at.ordinal:
            return []
        events = known or sse.events_of(text)
        return self._number(token, last - len(events) + 1, events)

    def _number(self, token: int, first: int, events: Iterable[bytes]) -> list[Event]:
        """Those of an attempt's events, from number `first`, that were not handed on before."""
        done = self._at.ordinal if self._at else 0
        new = [Event(Position(token, n), event) for n, event in enumerate(events, first) if n > done]
        if new:
            self._at = self._from = new[-1].position
        return new


def _is_broken(page: Page, at: Position) -> bool:
    """Whether the attempt is gone. One that was the last has an outcome, which says more."""
    if page.state in FINISHED and page.state != "succeeded":
        return False
    return page.state in _WAITING or page.token != at.token
