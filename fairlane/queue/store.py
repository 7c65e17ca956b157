"""Runs the scripts, and turns what can go wrong into the errors of fairlane.errors."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, TypeVar, cast

from redis.exceptions import ConnectionError, RedisError, ResponseError, TimeoutError

from fairlane.clock import Clock
from fairlane.queue import replies
from fairlane.queue.commands import Commands
from fairlane.queue.connection import Client, store_error
from fairlane.queue.scripts import Reply, script

TRIES: Final = 3
T = TypeVar("T")


class Store:
    """One client, the namespace of our keys in it, and the clock that the scripts get."""

    def __init__(self, client: Client, namespace: str, clock: Clock) -> None:
        self.client = cast(Commands, client)
        self.raw = client
        self.namespace = namespace
        self._clock = clock

    async def run(self, name: str, prefix: str, *args: str | bytes, repeat: bool = True) -> Reply:
        """Runs the script `name` on the slot of `prefix`.

        After a lost connection nobody knows whether it ran. An act that changes nothing when it is repeated is tried
        again at once, TRIES times in all; one that must not be repeated has `repeat=False`. A timeout is final.
        """
        now = self._clock.now_ms()
        now_arg = "" if now is None else str(now)
        tries = TRIES if repeat else 1
        while True:
            tries -= 1
            try:
                return await script(name).run(self.client, prefix, now_arg, *args)
            except TimeoutError as error:
                raise store_error(error) from error
            except ConnectionError as error:
                if tries == 0:
                    raise store_error(error) from error
            except ResponseError as error:
                raise replies.refusal(str(error)) or store_error(error) from error
            except RedisError as error:
                raise store_error(error) from error

    async def read(self, command: Awaitable[T]) -> T:
        """Awaits a command that only reads."""
        try:
            return await command
        except RedisError as error:
            raise store_error(error) from error
