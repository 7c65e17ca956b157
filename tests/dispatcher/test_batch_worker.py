"""`fairlane worker` as a process: what it logs is seen, and its second thread collects when no message comes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from kombu.exceptions import OperationalError

from dispatcher import celery_worker, tasks
from dispatcher.celery_app import create
from dispatcher.celery_worker import tending
from fairlane.batches.work import Due
from fairlane.clock import ManualClock
from fairlane.model import Policy
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.settings import Settings
from tests.contract.acts import open_backend
from tests.contract.shop import Shop
from tests.servers import ValkeyServer

LINES = 3
DEADLINE_S = 20.0
WORKER = (sys.executable, "-m", "fairlane.cli", "worker", "--only", "batches", "--parent", str(os.getpid()))


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as started:
        yield started


@contextmanager
def worker(settings: Settings) -> Iterator[IO[str]]:
    """What a worker says while it runs."""
    command = [*WORKER, "--redis", settings.redis_url]
    environment = {**os.environ, "FAIRLANE_FILES_URL": settings.files_url or ""}
    with subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE) as process:
        deadline = threading.Timer(DEADLINE_S, process.kill)
        deadline.start()
        try:
            assert process.stderr is not None
            yield process.stderr
        finally:
            deadline.cancel()
            process.kill()


def test_what_a_worker_logs_is_seen(server: ValkeyServer, tmp_path: Path) -> None:
    """Celery would take our lines for its own, of a level that it does not show."""
    settings = Settings(redis_url=server.url, files_url=str(tmp_path))
    with worker(settings) as said:
        tasks.send(create(settings), Due([], ["none"]))  # there is no such pool
        line = json.loads(next((line for line in said if "batch_step" in line), "{}"))
    assert line, "it said nothing"
    assert (line["event"], line["what"], line["error"]) == ("batch_step_failed", "none", "not_found")


async def test_a_redis_that_takes_no_messages_still_has_outcomes_collected(
    server: ValkeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is full of answers: without that it would stay so."""
    monkeypatch.setattr(celery_worker, "TEND_S", 0.1)
    settings = Settings(redis_url=server.url, files_url=str(tmp_path))
    clock = ManualClock()
    queue = Queue(connect(server.url), clock=clock)
    await queue.check()
    pool = await queue.pools.open("llama", Policy())
    await open_backend(queue, pool, "b1", 1000)
    shop = Shop(queue, pool, clock, tmp_path)
    batch = await shop.create(LINES)
    await shop.steps(1)
    assert await shop.answer() == LINES
    with server.client() as client:
        client.config_set("maxmemory", 1)
    with pytest.raises(OperationalError):
        tasks.send(create(settings), Due([], [pool.code]))
    with tending(settings):
        async with asyncio.timeout(20):
            while (await shop.view(batch)).completed < LINES:
                await asyncio.sleep(0.05)
    await queue.close()
