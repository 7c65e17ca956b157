"""One subscription a process, fanned out to any number of listeners.

A message is only a hint that reading again is worth while: it may be lost without harm. So whoever waits subscribes
first, then reads, then waits, and reads again now and then. After a broken connection every listener is called once,
as if its channel had spoken, because something may have been missed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from redis.exceptions import RedisClusterException, RedisError

from fairlane.errors import StoreUnavailable
from fairlane.queue.connection import Client, cancellable

RECONNECT_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
POLL_S: Final = 1.0
LINGER_S: Final = 0.2  # a channel without listeners is given up later, together with others: answers go out first
# The last two are what uvloop and redis-py raise if a connection is closed under their hands.
_LOST: Final = (RedisError, RedisClusterException, OSError, RuntimeError, AttributeError)
Hear = Callable[[str], None]


@dataclass(slots=True, eq=False)
class _Channel:
    listeners: set[Hear] = field(default_factory=lambda: set[Hear]())
    confirmed: asyncio.Event = field(default_factory=asyncio.Event)


class Signals:
    """Use it as an async context manager: the reader runs within.

    `hear` is called in the event loop with the message's text ('' when something may have been missed), in which bytes
    that are no UTF-8 are escaped as surrogates; it must not block or raise.
    """

    def __init__(self, client: Client, *, timeout_s: float = 5.0) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._channels: dict[str, _Channel] = {}
        self._left: set[str] = set()  # channels that nobody listens to any more
        self._give_up_at = 0.0
        self._asked: Counter[str] = Counter()  # subscriptions that are not confirmed yet
        self._sending = asyncio.Lock()
        self._pubsub: Any = None
        self._wanted = asyncio.Event()  # there is a channel to listen to
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Signals:
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reader:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader
        await self._drop()

    @asynccontextmanager
    async def listen(self, channel: str, hear: Hear) -> AsyncGenerator[None]:
        """Calls `hear` for each message of `channel`; the subscription stands once the block is entered.

        Raises StoreUnavailable if it does not within the timeout.
        """
        known = self._channels.setdefault(channel, _Channel())
        known.listeners.add(hear)
        self._left.discard(channel)
        self._wanted.set()
        try:
            if len(known.listeners) == 1 and not known.confirmed.is_set():
                await self._send("subscribe", channel)
            try:
                async with asyncio.timeout(self._timeout_s):
                    await known.confirmed.wait()
            except TimeoutError as error:
                raise StoreUnavailable(retry_after=1) from error
            yield
        finally:
            known.listeners.discard(hear)
            if not known.listeners:
                if not self._left:
                    self._give_up_at = asyncio.get_running_loop().time() + LINGER_S
                self._left.add(channel)

    def _forget_left(self) -> set[str]:
        left, self._left = self._left, set[str]()
        for channel in left:
            del self._channels[channel]
        return left

    async def _send(self, what: str, *channels: str) -> None:
        """Failures are the reader's to mend: it subscribes to all channels again."""
        async with self._sending:
            if self._pubsub is None:
                return
            if what == "subscribe":
                self._asked.update(channels)
            with suppress(*_LOST):
                async with asyncio.timeout(self._timeout_s):
                    await cancellable(getattr(self._pubsub, what)(*channels))

    async def _read(self) -> None:
        failures = 0
        while True:
            await self._wanted.wait()
            try:
                await self._connect()
                while self._channels:
                    async with asyncio.timeout(POLL_S + self._timeout_s):  # redis-py may connect anew within
                        message = await cancellable(self._pubsub.get_message(timeout=POLL_S))
                    failures = 0
                    if message is not None:
                        self._deliver(message)
                    if self._left and asyncio.get_running_loop().time() >= self._give_up_at:
                        await self._send("unsubscribe", *self._forget_left())
                self._wanted.clear()
            except _LOST:
                await self._drop()
                await asyncio.sleep(RECONNECT_S[min(failures, len(RECONNECT_S) - 1)])
                failures += 1

    async def _connect(self) -> None:
        async with self._sending:
            if self._pubsub is not None or not self._channels:
                return
            pubsub: Any = self._client.pubsub()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            channels = list(self._channels)
            self._asked = Counter(channels)
            try:
                async with asyncio.timeout(self._timeout_s):  # what connects may hang
                    await cancellable(pubsub.subscribe(*channels))
            except BaseException:
                with suppress(*_LOST):
                    await pubsub.aclose()
                raise
            self._pubsub = pubsub

    async def _drop(self) -> None:
        self._forget_left()
        async with self._sending:  # what is sent through a closed one opens a new connection
            pubsub, self._pubsub = self._pubsub, None
            if pubsub is not None:
                with suppress(*_LOST):
                    await pubsub.aclose()

    def _deliver(self, message: dict[str, Any]) -> None:
        name = message["channel"].decode()
        channel = self._channels.get(name)
        if message["type"] == "subscribe":
            self._asked[name] -= 1
            if self._asked[name] > 0:
                return
            del self._asked[name]
            if channel and channel.confirmed.is_set():
                self._call(channel, "")  # the connection is a new one
            elif channel:
                channel.confirmed.set()
        elif message["type"] == "message" and channel:
            self._call(channel, message["data"].decode(errors="surrogateescape"))

    @staticmethod
    def _call(channel: _Channel, text: str) -> None:
        for hear in tuple(channel.listeners):
            hear(text)
