"""Many items in calls of a bounded size: a run of a script holds Redis up for a few milliseconds at the most."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from fairlane.errors import FairlaneError

CALL_JOBS: Final = 100
CALL_BYTES: Final = 4 << 20

Item = TypeVar("Item")
Answer = TypeVar("Answer")


async def send_in_chunks(
    items: Iterable[Item], size: Callable[[Item], int], send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]]
) -> list[Answer | FairlaneError]:
    """The answers of `send` to all items, in order, sent chunk by chunk; `size` is of one item, in bytes.

    A chunk that fails is answered with its error; what went before it stays.
    """
    answers: list[Answer | FairlaneError] = []
    for chunk in chunks(items, size):
        if answers and is_hopeless(answers[-1]):
            answers += [answers[-1]] * len(chunk)
            continue
        try:
            answers += await send(chunk)
        except FairlaneError as error:
            answers += [error] * len(chunk)
    return answers


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
