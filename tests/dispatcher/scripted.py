"""A backend that does what a test tells it, and workers that call it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from prometheus_client import CollectorRegistry

from dispatcher.backends.answer import Answer
from dispatcher.backends.call import Hear
from dispatcher.backends.known import Backends
from dispatcher.meters import Meters
from dispatcher.worker import Worker, WorkerOptions
from fairlane.head import Head
from fairlane.model import Job, JobSpec
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals

HEAD = Head("/v1/chat/completions", "llama").encode()
OK = Answer(200, b'{"usage":{"prompt_tokens":3,"completion_tokens":4}}')
PATIENCE_S = 10.0
Act = Callable[[], Awaitable[Answer]]
_names = count()


class Script:
    """Answers each call by the next act; the last one again and again. Counts what goes on."""

    def __init__(self) -> None:
        self.acts: list[Act] = [answer(OK)]
        self.calls: list[str] = []
        self.bodies: list[bytes] = []
        self.running = 0
        self.most = 0
        self.aborted: list[str] = []
        self.hear: Hear | None = None  # of the call that began last
        self.began = asyncio.Event()

    def then(self, *acts: Act) -> None:
        self.acts = list(acts)

    async def call(self, job_id: str, head: Head, body: bytes, hear: Hear | None = None) -> Answer:
        act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
        self.calls.append(job_id)
        self.bodies.append(body)
        self.running += 1
        self.most = max(self.most, self.running)
        self.began.set()
        self.hear = hear
        try:
            return await act()
        except asyncio.CancelledError:
            self.aborted.append(job_id)
            raise
        finally:
            self.running -= 1

    async def close(self) -> None:
        pass


def answer(given: Answer, after_s: float = 0.0) -> Act:
    async def act() -> Answer:
        await asyncio.sleep(after_s)
        return given

    return act


def speak(script: Script, *parts: bytes, every_s: float = 0.0, fault: Exception | None = None) -> Act:
    """Streams these parts, one after the other, and then ends as it should, or with a fault."""

    async def act() -> Answer:
        hear = script.hear
        assert hear is not None
        for part in parts:
            await asyncio.sleep(every_s)
            hear(part)
        if fault:
            raise fault
        return Answer(200, b"".join(parts), streamed=True)

    return act


def fail(error: Exception) -> Act:
    async def act() -> Answer:
        raise error

    return act


async def hang() -> Answer:
    await asyncio.Event().wait()
    raise AssertionError("nobody ends this but a cancel")


def make_worker(queue: Queue, pool: Pool, script: Script, concurrency: int = 10, drain_s: float = 5.0) -> Worker:
    backends = Backends(queue, pool, lambda spec: script)
    options = WorkerOptions(concurrency, drain_s)
    return Worker(queue, pool, f"w{next(_names)}", backends, Meters(CollectorRegistry()), options)


@asynccontextmanager
async def working(worker: Worker, signals: Signals) -> AsyncIterator[Worker]:
    """Runs the worker within the block, and drains it at the end."""
    task = asyncio.create_task(worker.run(signals))
    try:
        yield worker
    finally:
        worker.drain()
        await asyncio.wait_for(task, PATIENCE_S)


async def submit(
    queue: Queue, pool: Pool, n: int = 1, tenant: str = "ann", tier: str = "default", **more: Any
) -> list[str]:
    spec = JobSpec(tenant, tier, b"{}", head=HEAD, **more)
    ids: list[str] = []
    for answered in await queue.submit_many(pool, [spec] * n):
        assert not isinstance(answered, Exception), answered
        ids.append(answered.id)
    return ids


async def until(found: Callable[[], Awaitable[bool]]) -> None:
    """Polls until it is so; fails after PATIENCE_S."""
    async with asyncio.timeout(PATIENCE_S):
        while not await found():
            await asyncio.sleep(0.005)


async def finished(queue: Queue, job_id: str) -> Job:
    """The job, once it has an outcome."""

    async def has_ended() -> bool:
        return (await queue.inspect.job(job_id)).finished_at_ms is not None

    await until(has_ended)
    return await queue.inspect.job(job_id)


async def in_state(queue: Queue, job_id: str, *states: str) -> Job:
    async def reached() -> bool:
        return (await queue.inspect.job(job_id)).state in states

    await until(reached)
    return await queue.inspect.job(job_id)


async def inflight(queue: Queue, pool: Pool) -> int:
    return (await queue.inspect.overview(pool)).leased
