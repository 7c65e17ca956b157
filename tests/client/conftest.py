"""A Valkey, a pool whose scripted backend is served by a worker, a front door, and clients over both transports."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from typing import Literal

import pytest

from fairlane import AsyncClient
from fairlane.model import BackendSpec, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.settings import Settings
from tests.client.doors import serving
from tests.contract.acts import set_gate
from tests.dispatcher.scripted import Script, make_worker, working
from tests.servers import ValkeyServer

Via = Literal["http", "redis"]
_numbers = count()


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def namespace() -> str:
    return f"c{os.getpid()}x{next(_numbers)}"


@pytest.fixture
async def queue(valkey: ValkeyServer, namespace: str) -> AsyncIterator[Queue]:
    made = await Queue.open(valkey.url, namespace=namespace)
    yield made
    await made.close()


@pytest.fixture
def policy(request: pytest.FixtureRequest) -> Policy:
    """The policy of `pool`; parametrize it indirectly for another. Metrics never grow stale."""
    return getattr(request, "param", Policy(stale_ms=3_600_000))


@pytest.fixture
async def pool(queue: Queue, policy: Policy) -> Pool:
    """The pool `llama`, whose one backend's gate is open for 100 jobs."""
    made = await queue.pools.open("llama", policy)
    await queue.set_backend(made, "b1", "add", spec=BackendSpec("http://scripted"))
    await set_gate(queue, made, "b1", 100)
    return made


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def worker(queue: Queue, pool: Pool, script: Script) -> AsyncIterator[None]:
    """The pool's jobs are done as `script` says."""
    async with queue.signals() as signals, working(make_worker(queue, pool, script, concurrency=50), signals):
        yield


@dataclass(frozen=True)
class Reach:
    """How a client reaches the pool."""

    via: Via
    url: str
    namespace: str

    def client(self, tenant: str = "ann", retry_for_s: float = 60.0) -> AsyncClient:
        """Over HTTP the tenant is the key (`--auth open`)."""
        if self.via == "http":
            return AsyncClient(self.url, tenant, retry_for_s=retry_for_s)
        return AsyncClient(self.url, tenant=tenant, namespace=self.namespace, retry_for_s=retry_for_s)


@pytest.fixture(params=["http", "redis"])
def via(request: pytest.FixtureRequest) -> Via:
    """Tests that use `reach` or `client` run over both."""
    return request.param


@pytest.fixture
async def reach(via: Via, valkey: ValkeyServer, queue: Queue, pool: Pool, namespace: str) -> AsyncIterator[Reach]:
    async with AsyncExitStack() as stack:
        url = valkey.url
        if via == "http":
            from producer.api.app import create_app

            app = create_app(Settings(auth="open"), queue=queue)
            url = await stack.enter_async_context(serving(app))
        yield Reach(via, url, namespace)


@pytest.fixture
async def client(reach: Reach) -> AsyncIterator[AsyncClient]:
    async with reach.client() as made:
        yield made
