"""Runs the scripts, and turns what can go wrong into the errors of fairlane.errors."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Awaitable
from typing import Final, TypeVar, cast

from redis.exceptions import ConnectionError, RedisClusterException, RedisError, ResponseError

from fairlane.clock import Clock
from fairlane.errors import StoreUnavailable
from fairlane.queue import replies
from fairlane.queue.commands import Commands
from fairlane.queue.connection import Client, store_error
from fairlane.queue.scripts import Reply, script

TRIES: Final = 3
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
        self._timeout_s = timeout_s

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
                if tries == 0:
                    raise
            except (OSError, RuntimeError) as error:
                if not is_closed(error):
                    raise
                if tries == 0:
                    raise StoreUnavailable(retry_after=1) from error
            except ResponseError as error:
                if refusal := replies.refusal(str(error)):
                    raise refusal from error
                raise

    async def bounded(self, command: Awaitable[T]) -> T:
        """The answer of a command, within `timeout_s` and with our errors."""
        task = asyncio.current_task()
        cancels = task.cancelling() if task else 0
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await command
                if task and task.cancelling() > cancels:
                    # redis-py writes within `wait_for`, which on Python 3.11 may swallow a cancel
                    raise asyncio.CancelledError
                return answer
        except builtins.TimeoutError as error:
            raise StoreUnavailable(retry_after=1) from error
        except (RedisError, RedisClusterException) as error:
            raise store_error(error) from error
        except (OSError, RuntimeError) as error:
            if not is_closed(error):
                raise
            raise StoreUnavailable(retry_after=1) from error


def is_closed(error: Exception) -> bool:
    """Whether it says that a connection was closed under our hands: uvloop raises RuntimeError for that."""
    return isinstance(error, OSError) or "closed" in str(error)
