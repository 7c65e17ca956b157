"""A server for the tests that kill something else, or cut the wire to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import ValkeyServer


@pytest.fixture
def valkey_port() -> Iterator[int]:
    """The loopback port of an empty Valkey."""
    with ValkeyServer() as server:
        yield server.port


@pytest.fixture
def valkey_url(valkey_port: int) -> str:
    return f"redis://127.0.0.1:{valkey_port}/0"
