"""The contract suite: each test runs against fakeredis, Valkey, Redis and a Cluster, in a namespace of its own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from itertools import count

import fakeredis
import pytest

from fairlane.clock import ManualClock
from fairlane.ids import SeededIds
from fairlane.model import Policy
from fairlane.queue.connection import Client, connect
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import open_backend
from tests.contract.invariants import check_invariants
from tests.servers import Cluster, RedisServer, ValkeyServer, redis_binary, required

STORES = ("fakeredis", "valkey", "redis", "cluster")
_numbers = count()


@pytest.fixture(scope="session")
def started() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="session")
def urls(started: ExitStack) -> dict[str, str]:
    """URLs of the servers that this process has started so far."""
    return {}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, started: ExitStack, urls: dict[str, str]) -> str:
    """The name of one kind of store; its server runs for the whole session."""
    kind: str = request.param
    if kind == "redis" and redis_binary() is None and not required("redis"):
        pytest.skip("redis-server is not installed; `make check` requires it")
    if kind != "fakeredis" and kind not in urls:
        server = {"valkey": ValkeyServer, "redis": RedisServer, "cluster": Cluster}[kind]()
        urls[kind] = started.enter_context(server).url
    return kind


@pytest.fixture
async def client(store: str, urls: dict[str, str]) -> AsyncIterator[Client]:
    made: Client = fakeredis.FakeAsyncRedis(protocol=2) if store == "fakeredis" else connect(urls[store])
    yield made
    await made.flushall()
    await made.aclose()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def queue(client: Client, clock: ManualClock) -> Queue:
    made = Queue(client, namespace=f"t{os.getpid()}x{next(_numbers)}", clock=clock, ids=SeededIds())
    await made.check()
    return made


@pytest.fixture
async def invariants(queue: Queue) -> AsyncIterator[None]:
    """For `usefixtures` in a test module: what must always hold is checked in each pool after each of its tests."""
    yield
    for pool in await queue.pools.all():
        await check_invariants(queue, pool)


@pytest.fixture
def policy(request: pytest.FixtureRequest) -> Policy:
    """The policy of `pool`; parametrize it indirectly for another."""
    return getattr(request, "param", Policy())


@pytest.fixture
async def pool(queue: Queue, policy: Policy) -> Pool:
    """A pool with the backend `b1`, whose gate is open for 1,000 jobs."""
    made = await queue.pools.open("llama", policy)
    await open_backend(queue, made, "b1", 1000)
    return made


@pytest.fixture
async def target(queue: Queue) -> Pool:
    """Another pool, to move jobs to, with the backend `m1`."""
    made = await queue.pools.open("mistral", Policy())
    await open_backend(queue, made, "m1", 1000)
    return made
