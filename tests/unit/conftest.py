"""A Redis that the commands talk to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.model import Policy
from tests.servers import ValkeyServer
from tests.unit.commands import on


@pytest.fixture(scope="module")
def shared() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def server(shared: ValkeyServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ValkeyServer]:
    """A Redis with the pool `llama`, which is the one that commands talk to."""
    monkeypatch.setenv("FAIRLANE_REDIS_URL", shared.url)
    monkeypatch.setenv("FAIRLANE_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("FAIRLANE_CONFIG", raising=False)
    on(shared, lambda queue: queue.pools.open("llama", Policy()))
    yield shared
    with shared.client() as client:
        client.flushall()
