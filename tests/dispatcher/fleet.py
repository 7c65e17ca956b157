"""A pool at work: scripted backends with their metrics, a worker, an observer and a sweeper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count

import httpx
from prometheus_client import CollectorRegistry

from dispatcher.backends.answer import Answer
from dispatcher.backends.known import Backends
from dispatcher.meters import Meters
from dispatcher.worker import Worker, WorkerOptions
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from tests.dispatcher.observing import observed
from tests.dispatcher.pages import Page
from tests.dispatcher.scripted import Act, Script, finished, submit, working

SLOTS = 4
_names = count()


class TruePage(Page):
    """The metrics of a backend with SLOTS slots that works as its script does."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.running = min(SLOTS, self._script.running)
        self.waiting = self._script.running - self.running
        return super().answer(request)


@asynccontextmanager
async def served(
    queue: Queue, pool: Pool, signals: Signals, scripts: Mapping[str, Script], *, status: int = 200
) -> AsyncIterator[dict[str, Page]]:
    """A worker, an observer and a sweeper at work. The metrics pages have this status."""
    pages: dict[str, Page] = {name: TruePage(script) for name, script in scripts.items()}
    for page in pages.values():
        page.status = status
    backends = Backends(queue, pool, lambda spec: scripts[spec.url.removeprefix("http://")])
    worker = Worker(queue, pool, f"f{next(_names)}", backends, Meters(CollectorRegistry()), WorkerOptions())

    async def sweep() -> None:
        while True:
            await queue.sweep(pool)
            await asyncio.sleep(0.01)

    sweeping = asyncio.create_task(sweep())
    try:
        async with observed(queue, pool, **pages), working(worker, signals):
            yield pages
    finally:
        sweeping.cancel()
        await asyncio.wait([sweeping])


def in_slots(given: Answer, after_s: float) -> Act:
    """Answers SLOTS calls at a time, each after so long; the others wait."""
    slots = asyncio.Semaphore(SLOTS)

    async def act() -> Answer:
        async with slots:
            await asyncio.sleep(after_s)
        return given

    return act


async def work(queue: Queue, pool: Pool, n: int = 60) -> None:
    """Jobs that all succeed in the end."""
    for id_ in await submit(queue, pool, n, max_attempts=20):
        assert (await finished(queue, id_)).state == "succeeded"
