"""The embedded server is killed under load: what was acknowledged stays, what was not can be asked again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from fairlane.errors import StoreUnavailable
from fairlane.model import JobSpec, Lease, Policy
from fairlane.queue.embedded import EmbeddedServer
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.chaos.stage import check_all_succeeded_once, is_idle, open_pool, read_all, wait_until
from tests.contract.invariants import check_invariants

ROUNDS = 5
SUBMITTERS = 4
DISPATCHERS = 3
SUBMITS_A_ROUND = 150
SETTLES_A_ROUND = 80
POLICY = Policy(lease_ms=1000)


@dataclass
class Ledger:
    """What the queue was asked, and what it acknowledged."""

    keys: Iterator[str] = field(default_factory=lambda: (f"key{n}" for n in count()))
    submitted: dict[str, str] = field(default_factory=dict)  # idempotency key -> id
    unsure: set[str] = field(default_factory=set)  # keys whose submit was not answered
    settled: set[str] = field(default_factory=set)


async def test_a_killed_server_loses_no_acknowledged_job(tmp_path: Path) -> None:
    ledger = Ledger()
    server = EmbeddedServer(tmp_path)
    for round_ in range(ROUNDS):
        await asyncio.to_thread(server.start)
        async with open_pool(server.url, POLICY) as (queue, pool):
            await check(queue, pool, ledger)
            await kill_under_load(server, queue, pool, ledger, round_)
    with server:
        async with open_pool(server.url, POLICY) as (queue, pool):
            await check(queue, pool, ledger)
            for key in [*ledger.unsure, *ledger.submitted]:
                answer = await queue.submit(pool, spec(key))
                assert ledger.submitted.setdefault(key, answer.id) == answer.id
            await drain(queue, pool)
            await check_all_succeeded_once(queue, pool, set(ledger.submitted.values()))


async def check(queue: Queue, pool: Pool, ledger: Ledger) -> None:
    """Everything that was acknowledged is there, and nothing was written by halves."""
    jobs = await read_all(queue, ledger.submitted.values())
    for key, job in zip(ledger.submitted, jobs, strict=True):
        assert job.body == body(key)
        if job.id in ledger.settled:
            assert (job.state, job.result) == ("succeeded", result(job.id))
    await check_invariants(queue, pool)


async def kill_under_load(server: EmbeddedServer, queue: Queue, pool: Pool, ledger: Ledger, round_: int) -> None:
    submits = len(ledger.submitted) + SUBMITS_A_ROUND
    settles = len(ledger.settled) + SETTLES_A_ROUND
    async with asyncio.TaskGroup() as tasks:
        for _ in range(SUBMITTERS):
            tasks.create_task(until_it_is_gone(keep_submitting(queue, pool, ledger)))
        for n in range(DISPATCHERS):
            tasks.create_task(until_it_is_gone(keep_settling(queue, pool, ledger, f"r{round_}d{n}")))
        await wait_until(lambda: len(ledger.submitted) >= submits and len(ledger.settled) >= settles)
        os.kill(server.pid, signal.SIGKILL)
    await wait_until(lambda: not server.alive)


async def until_it_is_gone(work: Awaitable[None]) -> None:
    with suppress(StoreUnavailable):
        await work


async def keep_submitting(queue: Queue, pool: Pool, ledger: Ledger) -> None:
    for key in ledger.keys:
        ledger.unsure.add(key)
        ledger.submitted[key] = (await queue.submit(pool, spec(key))).id
        ledger.unsure.remove(key)


async def keep_settling(queue: Queue, pool: Pool, ledger: Ledger, name: str) -> None:
    for call_no in count(1):
        for lease in await queue.acquire(pool, name, call_no, 4):
            await settle(queue, pool, lease)
            ledger.settled.add(lease.id)


async def drain(queue: Queue, pool: Pool) -> None:
    """Runs what waits; what the dead dispatchers held comes back at the end of its lease."""
    async with asyncio.timeout(30):
        for call_no in count(1):
            swept = await queue.sweep(pool)
            leases = await queue.acquire(pool, "last", call_no, 16)
            for lease in leases:
                await settle(queue, pool, lease)
            if not leases and not swept.more:
                if await is_idle(queue, pool):
                    break
                await asyncio.sleep(0.02)


async def settle(queue: Queue, pool: Pool, lease: Lease) -> None:
    assert await queue.settle(pool, lease, "succeeded", status=200, result=result(lease.id)) == "succeeded"


def spec(key: str) -> JobSpec:
    return JobSpec(tenant=f"t{len(key) % 3}", tier="default", body=body(key), idempotency_key=key)


def body(key: str) -> bytes:
    return f'{{"prompt": "{key}"}}'.encode()


def result(id_: str) -> bytes:
    return f'{{"answer": "{id_}"}}'.encode()
