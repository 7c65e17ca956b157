"""Group commit: calls that are made while an earlier one is on its way to Redis go together in the next one.

One caller alone waits no longer than before. Thirty-two at once share a round trip, a script call and, with
`appendfsync always`, a write to disk, instead of taking thirty-two of each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Gather(Generic[Item, Answer]):
    """Turns single calls into calls of `send`, at most `most` items each, one at a time.

    `send` answers its items in order. After an answer that is `hopeless`, all who wait get that one too: each would
    only wait for another timeout. A caller that is cancelled leaves its item to its fate: it may be on its way already.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        most: int,
        hopeless: Callable[[Answer], bool],
    ) -> None:
        self._send = send
        self._most = most
        self._hopeless = hopeless
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._sender: asyncio.Task[None] | None = None

    async def call(self, item: Item) -> Answer:
        """The answer to one item."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._sender is None:
            self._sender = asyncio.create_task(self._drain())
        return await answer

    async def _drain(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
                await self._answer(batch)
        finally:
            self._sender = None

    async def _answer(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._send([item for item, _ in batch])
        except BaseException as error:
            for _, future in [*batch, *self._waiting]:
                if not future.done():
                    future.set_exception(error)
            self._waiting.clear()
            if not isinstance(error, Exception):  # the loop is closing
                raise
            return
        if self._hopeless(answers[-1]):
            answers = [*answers, *[answers[-1]] * len(self._waiting)]
            batch += self._waiting
            self._waiting.clear()
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)
