"""Following a job's streamed answer: any number of readers, from any position, over one subscription of the process.

Subscribe, then read, then listen: what is told comes without a round trip; a gap in its numbers is noticed and read. A
message may be lost, and a reader may be slow or come late: what it hands on is always what was appended, in order.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from fairlane import sse
from fairlane.errors import Draining, InvalidRequest, StoreUnavailable, StreamBroken
from fairlane.model import FINISHED, Job
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.replies import MovedAway
from fairlane.queue.signals import Signals
from fairlane.queue.streams import Chunk, Origin, Page, Position, heard

PAUSES_S: Final = (2.0, 5.0)  # nothing came for so long: the first time, and each further time
REREAD_S: Final = (4.0, 8.0)  # after such a silence: every message may be lost
OUTAGE_S: Final = 20.0  # how long Redis may be away before those who read are told
AGAIN_S: Final = (0.1, 0.5)
MAIL_MOST: Final = 32 << 10  # bytes that one reader has waiting; beyond, it reads them from Redis when it comes to it
AT_ONCE: Final = 500  # events that are handed on together, and without a break for others
AT_ONCE_BYTES: Final = 64 << 10
_WAITING: Final = ("queued", "delayed")


@dataclass(frozen=True, slots=True)
class Event:
    """One whole server-sent event, in the backend's own bytes. An attempt's first one may say where it runs."""

    position: Position
    data: bytes = field(repr=False)
    origin: Origin | None = None


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

        Raises NotFound; InvalidRequest if there is no such position yet; StreamBroken if the attempt that it handed on
        events of is gone and another one began, or if events that it has not handed on are gone; Draining once
        `closing` is set; StoreUnavailable if Redis is away for too long.
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
                                if isinstance(item, list) and len(item) >= AT_ONCE:
                                    await asyncio.sleep(0)
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
        self._unproved = after is not None  # nothing was read yet that shows that it is there
        self._token = 0  # of the attempt that was read last
        self._is_over = False  # all chunks were read that are still to be had; what is left is the outcome
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

    async def items(self, pool: Pool) -> Iterable[Item]:
        """What there is, as soon as there is something. Raises as `Streams.events`, and MovedAway."""
        while True:
            if self._closing and self._closing.is_set():
                raise Draining(
                    "This process ends. Go on elsewhere: GET /v1/jobs/{id}/stream, after the last event's id."
                )
            self._spoke.clear()
            items: Iterable[Item] = ()
            if self._is_over:
                items = await self._last_items()
            elif mail := list(_together(self._from_mail())):
                items = mail
            elif self._must_read:
                items = await self._read(pool)
            if items:
                self._pause_at = self._clock() + PAUSES_S[1]
                self._reread_at = self._clock() + random.uniform(*REREAD_S)
                return items
            if self._clock() >= self._pause_at:
                self._pause_at = self._clock() + PAUSES_S[1]
                return [Pause()]
            if not (self._must_read or self._is_over):
                await self._wait()

    async def _wait(self) -> None:
        """Until something is told, or it is time for a pause, or to read again."""
        try:
            async with asyncio.timeout_at(min(self._pause_at, self._reread_at)):
                await self._spoke.wait()
        except TimeoutError:
            self._must_read |= self._clock() >= self._reread_at

    def _from_mail(self) -> Iterator[Event]:
        """The events that were told of, up to a gap in their numbers: that must be read."""
        for chunk in self._empty():
            here = self._at
            if here and chunk.token < here.token:
                continue
            next_one = 1 if here is None else here.ordinal + 1
            if chunk.events is None or (here and chunk.token > here.token) or chunk.first > next_one or self._unproved:
                self._must_read = True
                return
            if chunk.last >= next_one:
                # most are one event: no need to look for its end
                events = (chunk.events,) if chunk.first == chunk.last else sse.each_of(chunk.events)
                yield from self._number(chunk.token, chunk.first, events, chunk.origin)

    async def _read(self, pool: Pool) -> Iterable[Item]:
        self._must_read = False  # what is told from now on may not be in it
        page = await self._page(pool)
        self._reread_at = self._clock() + random.uniform(*REREAD_S)
        self._token = page.token
        if self._at and not self._goes_on(page, self._at):
            self._is_over = True
            return ()
        self._must_read |= page.more
        self._is_over = page.state in FINISHED and not page.more
        return _together(self._of(page)) if page.chunks else ()

    def _goes_on(self, page: Page, at: Position) -> bool:
        """Whether there may be events after `at`; if not, the job is over, and its outcome says why."""
        if self._unproved and (at.token > page.token or (at.token == page.token and at.ordinal > page.last)):
            if at.token > page.token or page.state == "leased" or (page.last and page.state != "succeeded"):
                raise _no_such(at)
        else:
            self._unproved = False
        if at.token == page.token and page.state not in _WAITING:
            return True
        if page.state in FINISHED and page.state != "succeeded":  # that the attempt is gone says less
            self._unproved = False
            return False
        raise StreamBroken()

    def _of(self, page: Page) -> Iterator[Event]:
        """The new events of a page. Where some are missing, the outcome has them or nothing has."""
        for (token, last), text in page.chunks:
            first = last - sse.count_of(text) + 1
            if first > (self._at.ordinal if self._at else 0) + 1:
                if page.state not in FINISHED:
                    raise StreamBroken()
                self._is_over = True
                return
            yield from self._number(token, first, sse.each_of(text))

    async def _page(self, pool: Pool) -> Page:
        """The job and what comes next; while Redis is away, for OUTAGE_S at the most, it is asked again."""
        while True:
            try:
                page = await self._queue.inspect.chunks(pool, self._job_id, self._at)
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

    async def _last_items(self) -> Iterable[Item]:
        """What is left, and the outcome."""
        job = await self._queue.inspect.outcome(self._job_id)
        if job.finished_at_ms is None:  # requeued in this moment
            self._is_over, self._must_read = False, True
            return ()
        text = self._text_of(job)
        if self._at and self._unproved and (text or job.state == "succeeded") and self._at.ordinal > sse.count_of(text):
            raise _no_such(self._at)
        self.ended = True
        return chain(_together(self._number(self._token, 1, sse.each_of(text))), [Ended(job)])

    def _text_of(self, job: Job) -> bytes:
        """The stream as the result has it. Chunks may be past their time, or Redis had no room for them."""
        if self._at and self._at.token != self._token:
            return b""
        text = job.result or b""
        if job.state == "succeeded":
            return text if self._at or sse.is_stream(text) else b""
        broke_off = job.state == "failed" and job.error is not None and job.error.code != "backend_error"
        return text if broke_off and sse.is_stream(text) else b""

    def _number(self, token: int, first: int, events: Iterable[bytes], origin: Origin | None = None) -> Iterator[Event]:
        """Those of an attempt's events, from number `first`, that were not handed on before."""
        done = self._at.ordinal if self._at else 0
        for n, event in enumerate(events, first):
            if n > done:
                self._at = Position(token, n)
                yield Event(self._at, event, origin)


def _together(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Some at a time: each takes room, and the time to send it."""
    some: list[Event] = []
    size = 0
    for event in events:
        some.append(event)
        size += len(event.data)
        if len(some) == AT_ONCE or size >= AT_ONCE_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _no_such(at: Position) -> InvalidRequest:
    return InvalidRequest(f"The stream has no event {at} to go on after.", param="starting_after")
