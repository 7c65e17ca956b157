"""A dispatcher that an operator drains: it hears of it by its heartbeat, which no lost message can prevent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from dispatcher.service import Dispatcher
from fairlane.model import BackendSpec
from fairlane.queue.engine import Queue
from fairlane.queue.fleet import Fleet
from fairlane.queue.pools import Pool
from fairlane.settings import Settings
from tests.contract.acts import set_gate
from tests.dispatcher.scripted import submit, until
from tests.servers import ValkeyServer


@asynccontextmanager
async def backend() -> AsyncIterator[str]:
    """The address of one that never answers."""
    gone = asyncio.Event()

    async def never(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        writer.close()

    server = await asyncio.start_server(never, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        gone.set()
        server.close()


@pytest.fixture
async def serving(queue: Queue, valkey: ValkeyServer) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Two dispatchers at work."""
    settings = Settings(redis_url=valkey.url, namespace=queue.store.namespace, drain_s=0.1)
    dispatchers = [Dispatcher(queue, settings, concurrency=2) for _ in range(2)]
    tasks = [asyncio.create_task(one.run()) for one in dispatchers]
    yield tasks
    for one in dispatchers:
        one.drain(hurry=True)
    await asyncio.wait(tasks)


async def test_it_takes_no_more_hands_back_what_it_holds_and_ends(
    queue: Queue, pool: Pool, serving: list[asyncio.Task[None]]
) -> None:
    fleet = Fleet(queue)
    async with backend() as address:
        await queue.set_backend(pool, "b2", "add", spec=BackendSpec(address))
        await queue.set_backend(pool, "b1", "drain")
        await set_gate(queue, pool, "b2", 100)
        ids = await submit(queue, pool, 4, max_attempts=1)

        async def all_held() -> bool:
            jobs = (await fleet.held(pool)).jobs
            return len({job.dispatcher for job in jobs}) == 2 and len(jobs) == 4

        await until(all_held)
        name = (await fleet.held(pool)).jobs[0].dispatcher
        await fleet.drain(name)
        with anyio.fail_after(10):
            done, others = await asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED)
        assert [task.exception() for task in done] == [None], "as after SIGTERM: the process ends with 0"
        assert len(others) == 1
        left = await fleet.held(pool)
        assert len(left.jobs) == 2
        assert name not in {job.dispatcher for job in left.jobs}
        states = [(await queue.inspect.job(id_)).state for id_ in ids]
        assert sorted(states) == ["leased", "leased", "queued", "queued"], "handed back, and not one attempt used up"
