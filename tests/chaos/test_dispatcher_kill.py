"""Dispatchers that die: SIGKILL at bad moments, SIGTERM under load, a parent that is gone."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fairlane.head import Head
from fairlane.model import FINISHED, JobSpec, Policy
from fairlane.options import parse_backend, register
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.invariants import check_invariants
from tests.servers import ValkeyServer
from tests.simulated.server import simulated

LEASE_MS = 1_000
ROUNDS = int(os.environ.get("FAIRLANE_TEST_KILLS", "3"))
JOBS = 50
PATIENCE_S = 60.0
HEAD = Head("/v1/completions", "sim").encode()


class Fleet:
    """A Valkey, a simulated backend, a pool, and dispatcher processes."""

    def __init__(self, queue: Queue, pool: Pool, url: str, backend: str, stack: ExitStack) -> None:
        self.queue = queue
        self.pool = pool
        self.backend = backend
        self._url = url
        self._stack = stack

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "fairlane.cli", "dispatcher", "--log-level", "error", *options]
        environment = os.environ | {"FAIRLANE_REDIS_URL": self._url, "FAIRLANE_DRAIN_S": "10"}
        process = subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[2])
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    async def submit(self, n: int, tokens: int, **more: Any) -> list[str]:
        body = b'{"model":"sim","prompt":"x","ignore_eos":true,"max_tokens":%d}' % tokens
        answers = await self.queue.submit_many(self.pool, [JobSpec("ann", "default", body, head=HEAD, **more)] * n)
        return [answer.id for answer in answers if not isinstance(answer, Exception)]

    async def pids(self, n: int) -> list[int]:
        """Of the dispatchers that have shown themselves, once there are `n`."""
        async with asyncio.timeout(PATIENCE_S):
            while len(found := await self.queue.inspect.dispatchers(self.pool)) < n:
                await asyncio.sleep(0.02)
        return [json.loads(view.info)["pid"] for view in found]

    async def inflight(self, at_least: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (await self.queue.inspect.overview(self.pool)).leased < at_least:
                await asyncio.sleep(0.005)

    async def all_end(self, ids: list[str]) -> None:
        """Waits for every job's outcome, and checks that it has exactly one."""
        async with asyncio.timeout(PATIENCE_S):
            for id_ in ids:
                while (await self.queue.inspect.job(id_)).state not in FINISHED:
                    await asyncio.sleep(0.01)
            while (await self.queue.inspect.overview(self.pool)).leased:
                await asyncio.sleep(0.01)
        await check_invariants(self.queue, self.pool)
        for id_ in ids:
            job = await self.queue.inspect.job(id_)
            assert [a.outcome for a in job.attempts].count("succeeded") == (job.state == "succeeded")
        outcomes = [e for e in await self._events() if e in set(ids)]
        assert sorted(outcomes) == sorted(ids)

    async def _events(self) -> list[str]:
        client = self.queue._store.client
        entries = await client.xrange(self.pool.key("events"))  # type: ignore[attr-defined]
        return [fields[b"job"].decode() for _, fields in entries]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ValkeyServer() as server:
        yield server.url


@pytest.fixture
async def fleet(url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    with ExitStack() as stack:
        backend = stack.enter_context(simulated("--slots", "64", "--step-ms", "5"))
        queue = await Queue.open(url, namespace=f"k{random.randrange(10**9)}")
        os.environ["FAIRLANE_NAMESPACE"] = queue._store.namespace
        await register(queue, [parse_backend(f"sim={backend.url}")], Policy(lease_ms=LEASE_MS))
        pool = await queue.pools.by_name("sim")
        yield Fleet(queue, pool, url, backend.url, stack)
        del os.environ["FAIRLANE_NAMESPACE"]
        await queue.close()


async def test_jobs_of_a_killed_dispatcher_end_in_exactly_one_outcome(fleet: Fleet) -> None:
    """Case 1: SIGKILL with jobs in flight, again and again."""
    ids: list[str] = []
    dice = random.Random(5)
    doomed = fleet.start()
    for _ in range(ROUNDS):
        ids += await fleet.submit(JOBS, tokens=60, max_attempts=50)
        await fleet.inflight(JOBS // 2)
        await asyncio.sleep(dice.uniform(0, 0.2))  # the moment of death, not a wait for anything
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        doomed = fleet.start()
    await fleet.all_end(ids)
    assert {(await fleet.queue.inspect.job(id_)).state for id_ in ids} == {"succeeded"}


async def test_a_job_that_brings_down_each_dispatcher_ends_dead_with_its_history(fleet: Fleet) -> None:
    """Case 26."""
    (id_,) = await fleet.submit(1, tokens=4_000, max_attempts=2)
    for _ in range(2):
        doomed = fleet.start()
        await fleet.inflight(1)
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        async with asyncio.timeout(PATIENCE_S):
            while (await fleet.queue.inspect.overview(fleet.pool)).leased:
                await fleet.queue.sweep(fleet.pool)
                await asyncio.sleep(0.02)
    job = await fleet.queue.inspect.job(id_)
    assert (job.state, job.dead, [a.outcome for a in job.attempts]) == ("failed", True, ["lost", "lost"])


async def test_sigterm_under_load_fails_nothing_and_uses_no_attempt(fleet: Fleet) -> None:
    """Case 30. Nobody dies here: a lease of a second would end when the machine is busy for that long."""
    await fleet.queue.set_policy(fleet.pool, {"lease_ms": 30_000}, by="test")
    ids = await fleet.submit(200, tokens=30)
    for _ in range(2):
        process = fleet.start("--processes", "2")
        await fleet.inflight(5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert (await fleet.queue.inspect.overview(fleet.pool)).leased == 0
    fleet.start()
    await fleet.all_end(ids)
    for id_ in ids:
        job = await fleet.queue.inspect.job(id_)
        assert (job.state, [attempt.outcome for attempt in job.attempts]) == ("succeeded", ["succeeded"])


async def test_copies_end_when_their_parent_was_killed(fleet: Fleet) -> None:
    parent = fleet.start("--processes", "2")
    pids = await fleet.pids(2)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    async with asyncio.timeout(PATIENCE_S):
        while any(_lives(pid) for pid in pids):
            await asyncio.sleep(0.02)


async def test_a_copy_that_died_is_started_again(fleet: Fleet) -> None:
    parent = fleet.start("--processes", "2")
    os.kill((await fleet.pids(2))[0], signal.SIGKILL)
    assert len(set(await fleet.pids(3))) == 3  # the dead one is remembered for a while
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(PATIENCE_S) == 0


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
