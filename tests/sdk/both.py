"""The official client's two faces in one test: what is awaited or iterated with one is simply there with the other."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any, TypeVar, cast

from openai import AsyncOpenAI, OpenAI

Client = OpenAI | AsyncOpenAI
T = TypeVar("T")


@asynccontextmanager
async def opened(client: Client) -> AsyncIterator[Client]:
    """Closes either client after the block."""
    try:
        yield client
    finally:
        await done(client.close())


async def done(value: Awaitable[T] | T) -> T:
    """What a call of either client returned."""
    return await value if isawaitable(value) else cast(T, value)


async def each(items: AsyncIterable[T] | Iterable[T]) -> AsyncIterator[T]:
    """The items of a stream, or of all pages, of either client."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def listed(items: Any) -> list[Any]:
    return [item async for item in each(items)]
