"""One simulated backend for all tests that need nothing special; each test finds it without faults."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.simulated.running import SOON_S
from tests.simulated.server import Server, simulated


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    quick = ("--step-ms", "2", "--prompt-token-ms", "0.001", "--model", "sim", "--model", "alias")
    with simulated("--max-model-len", "1000", "--mean-answer", "25", *quick) as started:
        yield started


@pytest.fixture
async def client(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, timeout=SOON_S, verify=False) as client:
        (await client.post("/faults", json={})).raise_for_status()
        yield client
