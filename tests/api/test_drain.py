"""SIGTERM: nothing new, long polls answer at once, what is under way may end, and the process ends with 0."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest

from dispatcher.backends.answer import Answer
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from tests.api.door import ANN, CHAT, JOB, Raw, Served, read_answer, request_bytes
from tests.api.reading import STREAM, Read, follow
from tests.dispatcher.scripted import PATIENCE_S, Script, answer, hang, make_worker, speak, until, working
from tests.servers import ValkeyServer

DRAIN_S = 2


@dataclass
class Process:
    """`fairlane api` for real."""

    process: subprocess.Popen[bytes]
    port: int

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, method: str, path: str, body: object = None) -> Raw:
        reader, writer = await self.connect()
        writer.write(request_bytes(path, b"" if body is None else json.dumps(body).encode(), method=method))
        try:
            return await read_answer(reader)
        finally:
            writer.close()

    def told_to_end(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def ended(self, within_s: float) -> int:
        """Its exit code."""
        async with asyncio.timeout(within_s):
            while self.process.poll() is None:
                await asyncio.sleep(0.01)
        return self.process.returncode


@asynccontextmanager
async def front_door(valkey: ValkeyServer, namespace: str) -> AsyncIterator[Process]:
    port = _free_port()
    command = [sys.executable, "-m", "fairlane.cli", "api", "--auth", "open", "--port", str(port)]
    environment = os.environ | {
        "FAIRLANE_REDIS_URL": valkey.url,
        "FAIRLANE_NAMESPACE": namespace,
        "FAIRLANE_DRAIN_S": str(DRAIN_S),
    }
    made = Process(subprocess.Popen([*command, "--parent", str(os.getpid())], env=environment), port)  # noqa: ASYNC220

    async def is_ready() -> bool:
        try:
            return (await made.ask("GET", "/health/ready")).status == 200
        except OSError:
            assert made.process.poll() is None
            return False

    try:
        await until(is_ready)
        yield made
    finally:
        made.process.kill()
        made.process.wait()


@pytest.fixture
async def process(valkey: ValkeyServer, namespace: str, pool: Pool) -> AsyncIterator[Process]:
    async with front_door(valkey, namespace) as made:
        yield made


async def test_it_ends_in_order(process: Process, queue: Queue, pool: Pool, signals: Signals, script: Script) -> None:
    job = (await process.ask("POST", "/v1/jobs", JOB | {"delay_s": 100})).json()
    poll = asyncio.create_task(process.ask("GET", f"/v1/jobs/{job['id']}?wait=60"))
    script.then(answer(Answer(200, b'{"in": "time"}'), after_s=1.0))
    async with working(make_worker(queue, pool, script), signals):
        chat = asyncio.create_task(process.ask("POST", "/v1/chat/completions", CHAT))
        await script.began.wait()
        process.told_to_end()
        async with asyncio.timeout(1):
            answered = await poll  # at once, with the job as it is
        assert (answered.status, answered.json()["state"]) == (200, "delayed")
        ready = await process.ask("GET", "/health/ready")
        assert (ready.status, ready.json()) == (503, {"status": "not_ready", "reasons": ["draining"]})
        assert (await process.ask("GET", "/health/live")).status == 200
        for path, body in (("/v1/jobs", JOB), ("/v1/jobs", {"jobs": [JOB]}), ("/v1/chat/completions", CHAT)):
            refused = await process.ask("POST", path, body)
            assert (refused.status, refused.json()["error"]["code"]) == (503, "draining")
            assert int(refused.headers["retry-after"]) >= 1
        assert (await process.ask("GET", f"/v1/jobs/{job['id']}?wait=60")).status == 200
        assert (await chat).json() == {"in": "time"}
    assert await process.ended(PATIENCE_S) == 0


async def test_what_takes_longer_than_the_grace_time_is_told_and_cancelled(
    process: Process, queue: Queue, pool: Pool, signals: Signals, script: Script
) -> None:
    script.then(hang)
    async with working(make_worker(queue, pool, script), signals):
        chat = asyncio.create_task(process.ask("POST", "/v1/chat/completions", CHAT))
        await script.began.wait()
        began = time.monotonic()
        process.told_to_end()
        answered = await chat
        assert (answered.status, answered.json()["error"]["code"]) == (503, "draining")
        assert int(answered.headers["retry-after"]) >= 1
        assert DRAIN_S - 0.5 <= time.monotonic() - began < DRAIN_S + 2
        await until(lambda: _is(script.aborted == script.calls))
        assert await process.ended(PATIENCE_S) == 0


async def test_a_stream_may_end_within_the_grace_time_and_is_told_and_followed_elsewhere_after_it(
    process: Process, door: Served, queue: Queue, pool: Pool, signals: Signals, script: Script
) -> None:
    events = [b"data: %d\n\n" % n for n in range(1, 40)]
    script.then(speak(script, *events[:5], every_s=0.2), speak(script, *events, every_s=0.1))
    async with working(make_worker(queue, pool, script), signals), open_stream(process) as short:
        await short.until(lambda: bool(short.events))
        async with open_stream(process) as long:
            await long.until(lambda: bool(long.events))
            process.told_to_end()
            assert (await short.all()).events == events[:5]
            await long.all()
        assert long.error["code"] == "draining"
        rest = await follow(door, long.job_id, after=long.ids[-1])
        assert long.events[:-1] + rest.events == events
    assert await process.ended(PATIENCE_S) == 0


@asynccontextmanager
async def open_stream(process: Process) -> AsyncIterator[Read]:
    client = httpx.AsyncClient(verify=False, trust_env=False, timeout=30)
    url = f"http://127.0.0.1:{process.port}/v1/chat/completions"
    async with client, client.stream("POST", url, json=STREAM, headers=ANN) as response:
        yield Read(response)


async def test_an_idle_one_ends_at_once(process: Process) -> None:
    reader, writer = await process.connect()  # a connection that is kept alive does not hold it up
    writer.write(request_bytes("/health/live", b"", method="GET"))
    await read_answer(reader)
    process.told_to_end()
    assert await process.ended(1.5) == 0
    writer.close()


async def test_told_twice_it_does_not_wait(process: Process, queue: Queue, pool: Pool) -> None:
    chat = asyncio.create_task(process.ask("POST", "/v1/chat/completions", CHAT))

    async def waits() -> bool:
        return (await queue.inspect.load(pool)).tiers[1].waiting == 1

    await until(waits)
    process.told_to_end()
    await until(lambda: _draining(process))
    process.told_to_end()
    await process.ended(1.5)
    chat.cancel()


async def _draining(process: Process) -> bool:
    return b"draining" in (await process.ask("GET", "/health/ready")).body


async def _is(what: bool) -> bool:
    return what


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
