"""What was read a moment ago need not be read again: a bounded memory of answers, each for a bounded time."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Fresh(Generic[Key, Value]):
    """Answers of `read`, for `age_s` from the moment at which they were asked for; the `most` that were asked for last.

    Those who ask for one thing at the same time share one read. A read that fails is not remembered.
    """

    def __init__(
        self,
        read: Callable[[Key], Coroutine[Any, Any, Value]],
        age_s: float,
        most: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._age_s = age_s
        self._most = most
        self._clock = clock
        self._known: OrderedDict[Key, tuple[float, Value]] = OrderedDict()
        self._asked: dict[Key, tuple[float, asyncio.Task[Value]]] = {}

    async def get(self, key: Key) -> Value:
        """The answer for `key`, asked for less than `age_s` ago. Raises what `read` does."""
        now = self._clock()
        known = self._known.get(key)
        if known is not None and now - known[0] < self._age_s:
            self._known.move_to_end(key)
            return known[1]
        asked = self._asked.get(key)
        if asked is None or now - asked[0] >= self._age_s:
            asked = self._ask(key, now)
        return await asyncio.shield(asked[1])

    def _ask(self, key: Key, now: float) -> tuple[float, asyncio.Task[Value]]:
        """Reads in a task of its own: a request that is cut off leaves it to the others."""
        asked = self._asked[key] = (now, asyncio.create_task(self._read(key)))
        asked[1].add_done_callback(lambda task: self._ended(key, now, task))
        return asked

    def _ended(self, key: Key, at: float, task: asyncio.Task[Value]) -> None:
        if self._asked.get(key, (at, None))[1] is task:
            del self._asked[key]
        if task.cancelled() or task.exception() is not None:
            return
        if key not in self._known or self._known[key][0] < at:
            self._known[key] = (at, task.result())
            self._known.move_to_end(key)
        now = self._clock()
        while self._known and (len(self._known) > self._most or now - self._oldest() >= self._age_s):
            self._known.popitem(last=False)

    def _oldest(self) -> float:
        """When that was asked for which nobody has used for longest: what is old behind it goes soon after it."""
        return next(iter(self._known.values()))[0]
