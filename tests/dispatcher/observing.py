"""An observer at work beside a test, and what it wrote."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx

from dispatcher.observer import Observer
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.standing import BackendView
from tests.dispatcher.pages import Page
from tests.dispatcher.scripted import until

SCRAPE_S = 0.02


@asynccontextmanager
async def observed(queue: Queue, pool: Pool, *pages: Page, **by_host: Page) -> AsyncIterator[None]:
    """Within the block an observer scrapes `pages[0]`, or the page that each host has."""

    def answer(request: httpx.Request) -> httpx.Response:
        return (by_host.get(request.url.host) or pages[0]).answer(request)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        task = asyncio.create_task(Observer(queue, pool, client, SCRAPE_S).run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def view(queue: Queue, pool: Pool, name: str = "b1") -> BackendView:
    return await queue.inspect.backend(pool, name)


async def seen(queue: Queue, pool: Pool, name: str = "b1") -> Mapping[str, Any]:
    return json.loads((await view(queue, pool, name)).seen)


async def reached(queue: Queue, pool: Pool, name: str = "b1", **expected: object) -> None:
    """Waits until the last scrape saw this."""

    async def is_so() -> bool:
        return expected.items() <= (await seen(queue, pool, name)).items()

    await until(is_so)
