"""A Valkey, a queue and a pool with one scripted backend, and workers that serve it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from fairlane.model import BackendSpec, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from tests.contract.acts import set_gate
from tests.dispatcher.scripted import Script
from tests.servers import ValkeyServer

_numbers = count()


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture
async def queue(valkey: ValkeyServer) -> AsyncIterator[Queue]:
    made = await Queue.open(valkey.url, namespace=f"d{os.getpid()}x{next(_numbers)}", timeout_s=2.0)
    yield made
    await made.close()


@pytest.fixture
async def signals(queue: Queue) -> AsyncIterator[Signals]:
    async with queue.signals() as made:
        yield made


@pytest.fixture
def policy(request: pytest.FixtureRequest) -> Policy:
    """The policy of `pool`; parametrize it indirectly for another. Metrics never grow stale."""
    return getattr(request, "param", Policy(stale_ms=3_600_000))


@pytest.fixture
async def pool(queue: Queue, policy: Policy) -> Pool:
    """A pool with the backend `b1`, whose gate is open for 100 jobs."""
    made = await queue.pools.open("llama", policy)
    await queue.set_backend(made, "b1", "add", spec=BackendSpec("http://scripted"))
    await set_gate(queue, made, "b1", 100)
    return made


@pytest.fixture
def script() -> Script:
    return Script()
