"""Many items in calls of a bounded size: a run of a script holds Redis up for a few milliseconds at the most."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from fairlane.errors import FairlaneError

CALL_JOBS: Final = 100
CALL_BYTES: Final = 4 << 20
TAKE_OFF: Final = 3  # steps of the event loop until redis-py has written a command

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Packed = TypeVar("Packed")


async def send_in_chunks(
    items: Iterable[Item],
    size: Callable[[Item], int],
    pack: Callable[[Sequence[Item]], Packed],
    send: Callable[[Packed], Awaitable[Sequence[Answer]]],
) -> list[Answer | FairlaneError]:
    """The answers of `send` to all items, in order, sent chunk by chunk; `size` is of one item, in bytes.

    The next chunk is packed while one is on its way, and sent after it was answered: order is kept. A chunk that fails
    is answered with its error; what went before it stays.
    """
    answers: list[Answer | FairlaneError] = []
    todo = chunks(items, size)
    chunk, ready = next(todo, None), None
    while chunk is not None:
        after, packed, ready = next(todo, None), ready, None
        try:
            if answers and is_hopeless(answers[-1]):
                answers += [answers[-1]] * len(chunk)
            elif after is None:  # most calls: there is nothing to be packed meanwhile
                answers += await send(packed or pack(chunk))
            else:
                ready, got = await _meanwhile(send(packed or pack(chunk)), partial(pack, after))
                answers += got
        except FairlaneError as error:
            answers += [error] * len(chunk)
        chunk = after
    return answers


async def _meanwhile(act: Awaitable[Answer], do: Callable[[], Packed]) -> tuple[Packed, Answer]:
    """Does something while a command is on its way."""
    flying = asyncio.ensure_future(act)
    try:
        for _ in range(TAKE_OFF):
            await asyncio.sleep(0)
        done = do()
        return done, await flying
    finally:
        if not flying.done():
            flying.cancel()
            await asyncio.wait([flying])


def chunks(items: Iterable[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Up to CALL_JOBS items at a time, and up to CALL_BYTES unless a single item is larger."""
    chunk: list[Item] = []
    total = 0
    for item in items:
        length = size(item)
        if chunk and (len(chunk) == CALL_JOBS or total + length > CALL_BYTES):
            yield chunk
            chunk, total = [], 0
        chunk.append(item)
        total += length
    if chunk:
        yield chunk


def is_hopeless(answer: object) -> bool:
    """Redis is away or full: no use in letting the next chunk wait for its own timeout."""
    return isinstance(answer, FairlaneError) and answer.status == 503
