"""A queue behind Sentinels: their master is found, a silent one costs little, and after a failover it goes on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from fairlane.errors import StoreUnavailable
from fairlane.model import Lease, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import finish, open_backend, submit, take, take_one
from tests.servers import SentinelServer, Server, ValkeyServer

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def master() -> Iterator[Server]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture(scope="module")
def sentinel(master: Server) -> Iterator[Server]:
    with SentinelServer(master) as server:
        yield server


@contextmanager
def mute() -> Iterator[int]:
    """The port of somebody who takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def url(*ports: int) -> str:
    return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in ports)}/queue"


async def one_job(queue: Queue, pool: Pool) -> str:
    """Through the queue, and heard of."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    (id_,) = await submit(queue, pool)
    async with queue.signals() as signals, signals.listen(pool.key("settled", id_), heard.put_nowait):
        await finish(queue, pool, [await take_one(queue, pool)])
        async with asyncio.timeout(PATIENCE_S):
            return await heard.get()


async def opened(queue: Queue) -> Pool:
    pool = await queue.pools.open("llama", Policy(stale_ms=3_600_000))
    await open_backend(queue, pool, "b1", 9)
    return pool


async def test_a_sentinel_s_master_holds_the_queue(sentinel: Server) -> None:
    queue = await Queue.open(url(sentinel.port))
    assert "succeeded" in await one_job(queue, await opened(queue))
    await queue.close()


async def test_a_sentinel_that_says_nothing_does_not_use_up_the_time_of_a_call(sentinel: Server) -> None:
    with mute() as silent:
        queue = await Queue.open(url(silent, sentinel.port), timeout_s=2.0)
        assert "succeeded" in await one_job(queue, await opened(queue))
        await queue.close()


async def test_after_a_failover_the_queue_goes_on_where_it_was() -> None:
    with (
        ValkeyServer() as first,
        ValkeyServer("--replicaof", "127.0.0.1", str(first.port)) as second,
        SentinelServer(first) as sentinel,
    ):
        await until(lambda: sentinel.client().sentinel_slaves("queue") != [])
        queue = await Queue.open(url(sentinel.port), timeout_s=1.0)
        pool = await opened(queue)
        ids = await submit(queue, pool, n=3)
        await until(lambda: second.client().xlen(pool.key("line", "default", "ann")) == 3)
        first.kill()
        leases: list[Lease] = []
        async with asyncio.timeout(PATIENCE_S):
            while not leases:
                with suppress(StoreUnavailable):
                    leases = await take(queue, pool, 9)
        assert [lease.id for lease in leases] == ids
        assert "succeeded" in await one_job(queue, pool)
        await queue.close()


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not done():
            await asyncio.sleep(0.05)
