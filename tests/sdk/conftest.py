"""The official `openai` client, as it is, against Fairlane on sockets."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
from openai import AsyncOpenAI, OpenAI

from tests.sdk.both import Client, opened
from tests.sdk.stage import REAL, Recorder, Stage, batch_worker, stage
from tests.servers import ValkeyServer
from tests.simulated.server import simulated

FACES = {"sync": OpenAI, "async": AsyncOpenAI}


@contextmanager
def backend() -> Iterator[str]:
    """The URL of the simulated one, or of a real server that serves a model as `sim`, if one is named."""
    if named := os.environ.get(REAL):
        yield named
        return
    quick = ("--step-ms", "2", "--prompt-token-ms", "0.001", "--model", "sim", "--max-model-len", "5000")
    with simulated(*quick, "--mean-answer", "25") as sim:
        yield sim.url


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("sdk")
    with (
        ValkeyServer() as valkey,
        backend() as url,
        batch_worker(valkey.url, folder),
        stage(valkey.url, url, folder) as made,
    ):
        yield made


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> type[Client]:
    """Tests that use `client` run with both faces."""
    return FACES[request.param]


@pytest.fixture
async def client(played: Stage, face: type[Client]) -> AsyncIterator[Client]:
    """Ann's; it tries once."""
    async with opened(face(base_url=played.url, api_key="ann", max_retries=0)) as made:
        yield made


@pytest.fixture
def recorder(played: Stage) -> Recorder:
    """The backend of the model `recorded`."""
    played.recorder.then()
    return played.recorder
