"""A real Valkey for the scripts, and a clock that the tests turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from fairlane.clock import ManualClock
from fairlane.ids import SeededIds
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from tests.servers import ValkeyServer

_numbers = count()


@pytest.fixture(scope="session")
def valkey() -> Iterator[str]:
    with ValkeyServer() as server:
        yield server.url


@pytest.fixture
def manual() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def queue(valkey: str, manual: ManualClock) -> AsyncIterator[Queue]:
    client = connect(valkey)
    made = Queue(client, namespace=f"v{next(_numbers)}", clock=manual, ids=SeededIds())
    await made.check()
    yield made
    await client.flushall()
    await made.close()
