"""A Valkey, a pool with one scripted backend, and the front door: within the process, or on a socket."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from fairlane.model import BackendSpec, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from fairlane.settings import Settings
from producer.api.app import create_app
from producer.api.state import State
from tests.api.door import Served, serving
from tests.contract.acts import set_gate
from tests.dispatcher.scripted import Script
from tests.servers import ValkeyServer

_numbers = count()


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def namespace() -> str:
    return f"a{os.getpid()}x{next(_numbers)}"


@pytest.fixture
async def queue(valkey: ValkeyServer, namespace: str) -> AsyncIterator[Queue]:
    made = await Queue.open(valkey.url, namespace=namespace, timeout_s=2.0)
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
    """A pool with the backend `b1`, whose gate is open for 1,000 jobs."""
    made = await queue.pools.open("llama", policy)
    await queue.set_backend(made, "b1", "add", spec=BackendSpec("http://scripted"))
    await set_gate(queue, made, "b1", 1000)
    return made


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def settings(valkey: ValkeyServer, namespace: str, request: pytest.FixtureRequest) -> Settings:
    """The front door's settings; parametrize it indirectly with changes."""
    changes: dict[str, Any] = getattr(request, "param", {})
    kept: dict[str, Any] = {"files_url": f"memory://{namespace}"}
    return Settings(redis_url=valkey.url, namespace=namespace, auth="open", **(kept | changes))


@pytest.fixture
async def app(settings: Settings, pool: Pool) -> AsyncIterator[FastAPI]:
    made = create_app(settings)
    async with made.router.lifespan_context(made):
        yield made


@pytest.fixture
def state(app: FastAPI) -> State:
    return app.state.fairlane


@pytest.fixture
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Ann's client; no socket between it and the front door."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://door", headers=as_tenant("ann")) as client:
        yield client


@pytest.fixture
async def door(settings: Settings, pool: Pool) -> AsyncIterator[Served]:
    """The front door on a port of its own."""
    async with serving(create_app(settings), settings.drain_s) as served:
        yield served


def as_tenant(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}
