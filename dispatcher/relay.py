"""Hands streamed answers on while they come: whole events, numbered, those of a pool's streams together in one call.

The first event after a silence goes at once; then there is one call every GATHER_S at the most, for all streams.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

import structlog

from dispatcher.holds import Hold
from fairlane import sse
from fairlane.errors import FairlaneError, StoreFull
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.streams import Appended, Chunk

GATHER_S: Final = 0.01
AGAIN_S: Final = (0.05, 0.5)  # while Redis is away
CHUNK_MOST: Final = 64 << 10  # bytes after which a chunk takes no further event: a reader reads whole chunks
log = structlog.get_logger()


class Relay:
    """One pool's streams in one process."""

    def __init__(self, queue: Queue, pool: Pool) -> None:
        self._queue = queue
        self._pool = pool
        self._waiting: dict[Flow, None] = {}  # those that have something to append, the first to come first
        self._sender: asyncio.Task[None] | None = None
        self._sent_at = 0.0

    def open(self, hold: Hold) -> Flow:
        """A new stream, for one attempt."""
        return Flow(self, hold)

    def offer(self, flow: Flow) -> None:
        """It has something to append."""
        self._waiting[flow] = None
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all())

    def forget(self, flow: Flow) -> None:
        self._waiting.pop(flow, None)

    async def _send_all(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                if (pause_s := self._sent_at + GATHER_S - loop.time()) > 0:
                    await asyncio.sleep(pause_s)
                self._sent_at = loop.time()
                if not await self._send():
                    await asyncio.sleep(random.uniform(*AGAIN_S))
        finally:
            self._sender = None

    async def _send(self) -> bool:
        """Appends what there is by now; False if some of it has to be sent again."""
        flows, self._waiting = list(self._waiting), {}
        try:
            answers = await self._queue.append(self._pool, [(flow.job_id, flow.next_chunk()) for flow in flows])
        except Exception:  # no stream may wait for ever
            log.exception("append_broke", pool=self._pool.name)
            answers = [FairlaneError()] * len(flows)
        all_well = True
        for flow, answer in zip(flows, answers, strict=True):
            if not flow.appended(answer):
                all_well = False
            if flow.has_more:
                self._waiting[flow] = None
        return all_well


class Flow:
    """One attempt's stream on its way to Redis. `began`: there was a whole event, so the attempt is the last one.

    `input_tokens` is what its submit estimated; `tokens` counts the events with data, of which most are a token each.
    """

    def __init__(self, relay: Relay, hold: Hold) -> None:
        self.job_id = hold.lease.id
        self.input_tokens = hold.lease.input_tokens
        self.tokens = 0
        self._relay = relay
        self._hold = hold
        self._cutter = sse.Cutter()
        self._events: list[bytes] = []
        self._heard: list[bytes] = []  # the same bytes that the call keeps
        self.first_at: float | None = None  # loop time of the first event
        self._last = 0  # number of the last event that was cut
        self._sent: Chunk | None = None  # on its way
        self._is_open = True
        self._settled = asyncio.Event()  # nothing is on its way or has to be sent
        self._settled.set()

    @property
    def began(self) -> bool:
        return self._last > 0

    @property
    def has_more(self) -> bool:
        return self._is_open and (self._sent is not None or bool(self._events))

    @property
    def text(self) -> bytes:
        """All whole events, as they came."""
        text = b"".join(self._heard)
        return text[: len(text) - self._cutter.pending]

    def hear(self, part: bytes) -> None:
        """The next bytes of the answer."""
        self._heard.append(part)
        self._take(self._cutter.cut(part))

    async def finish(self, *, whole: bool) -> None:
        """Returns once everything is appended, or never will be. `whole`: the answer has come to its end."""
        if whole:
            self._take(self._cutter.rest())
        await self._settled.wait()

    def close(self) -> None:
        """Nothing more is appended."""
        self._is_open = False
        self._relay.forget(self)
        self._settled.set()

    def next_chunk(self) -> Chunk:
        """What is to be appended now: what was sent before, if nobody knows whether it was."""
        if self._sent is None:
            first, events, size = self._last - len(self._events) + 1, 0, 0
            while events < len(self._events) and size < CHUNK_MOST:
                size += len(self._events[events])
                events += 1
            text = b"".join(self._events[:events])
            self._sent = Chunk(self._hold.lease.token, first, first + events - 1, text)
            del self._events[:events]
        return self._sent

    def appended(self, answer: Appended) -> bool:
        """What became of the chunk that was sent; False if it has to be sent again."""
        if isinstance(answer, FairlaneError):
            return self._failed(answer)
        self._sent = None
        if answer in ("cancelled", "lost"):
            self.close()
            self._hold.stop("cancelled" if answer == "cancelled" else "lost")
        elif not self._events:
            self._settled.set()
        return True

    def _failed(self, error: FairlaneError) -> bool:
        if error.retryable and not isinstance(error, StoreFull) and self._hold.stopped != "lost":
            return not self._is_open
        # whoever reads gets the rest from the result, once that is written
        log.warning("stream_not_written", job=self.job_id, error=error.code)
        self.close()
        return True

    def _take(self, events: list[bytes]) -> None:
        if not events or not self._is_open:
            return
        self.first_at = self.first_at or asyncio.get_running_loop().time()
        self.tokens += sum(sse.data_of(event) not in (None, sse.DONE) for event in events)
        self._events += events
        self._last += len(events)
        self._settled.clear()
        self._relay.offer(self)
