"""Runs the scripts, and turns what can go wrong into the errors of fairlane.errors."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Awaitable
from contextlib import suppress
from inspect import iscoroutine
from typing import Final, TypeVar, cast

from redis.exceptions import ConnectionError, RedisClusterException, RedisError, ResponseError

from fairlane.clock import Clock
from fairlane.errors import StoreUnavailable
from fairlane.queue import replies
from fairlane.queue.commands import Commands
from fairlane.queue.connection import Client, cancellable, close, no_answer, place, store_error
from fairlane.queue.scripts import Reply, script

TRIES: Final = 3
GRACE_S: Final = 1.0  # how long what is on its way holds up a close
T = TypeVar("T")


class Store:
    """One client, the namespace of our keys in it, and the clock that the scripts get.

    `timeout_s` bounds every call as a whole: the wait for a connection, the answer, and what is tried again.
    """

    def __init__(self, client: Client, namespace: str, clock: Clock, timeout_s: float) -> None:
        self.client = cast(Commands, client)
        self.raw = client
        self.namespace = namespace
        self._clock = clock
        self._place = place(client)
        self._timeout_s = timeout_s
        self._closed = False
        self._flying = 0
        self._landed = asyncio.Event()

    async def close(self) -> None:
        """Ends all connections, after a moment for what is on its way. Later calls raise StoreUnavailable.

        Whatever were sent, or sent again, after the connections are gone would open new ones that nobody ends.
        """
        self._closed = True
        if self._flying:
            with suppress(builtins.TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    await self._landed.wait()
        await close(self.raw)

    async def run(self, name: str, prefix: str, *args: str | bytes, repeat: bool = True) -> Reply:
        """Runs the script `name` on the slot of `prefix`.

        After a lost connection nobody knows whether it ran. An act that changes nothing when it is repeated is tried
        again at once, TRIES times in all; one that must not be repeated has `repeat=False`. A timeout is final.
        """
        now = self._clock.now_ms()
        now_arg = "" if now is None else str(now)
        return await self.bounded(self._try(name, prefix, (now_arg, *args), TRIES if repeat else 1))

    async def _try(self, name: str, prefix: str, args: tuple[str | bytes, ...], tries: int) -> Reply:
        while True:
            tries -= 1
            try:
                return await script(name).run(self.client, prefix, *args)
            except ConnectionError:
                if tries == 0 or self._closed:
                    raise
            except (OSError, RuntimeError) as error:
                if not is_closed(error):
                    raise
                if tries == 0 or self._closed:
                    raise no_answer(self._place, "broke off") from error
            except ResponseError as error:
                if refusal := replies.refusal(str(error)):
                    raise refusal from error
                raise

    async def bounded(self, command: Awaitable[T]) -> T:
        """The answer of a command, within `timeout_s` and with our errors."""
        if self._closed:
            if iscoroutine(command):
                command.close()
            raise StoreUnavailable("This connection to Redis was closed.")
        self._flying += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                return await cancellable(command)
        except builtins.TimeoutError as error:
            raise no_answer(self._place) from error
        except (RedisError, RedisClusterException) as error:
            raise store_error(error, self._place) from error
        except (OSError, RuntimeError) as error:
            if not is_closed(error):
                raise
            raise no_answer(self._place, "broke off") from error
        finally:
            self._flying -= 1
            if self._closed and not self._flying:
                self._landed.set()


def is_closed(error: Exception) -> bool:
    """Whether it says that a connection was closed under our hands: uvloop raises RuntimeError for that."""
    return isinstance(error, OSError) or "closed" in str(error)
