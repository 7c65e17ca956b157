"""Dispatchers are killed while they hold leases: after the lease every job runs again, once."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import pytest

from fairlane.errors import LeaseLost
from fairlane.model import JobSpec, Lease, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.chaos.stage import DEADLINE_S, PROCESSES, check_all_succeeded_once, is_idle, open_pool

JOBS = 64
SETTLED_FIRST = 20
LEASE_MS = 1000
KILLS = 8
HANDS = 3
MANY_JOBS = 600


async def test_what_a_killed_dispatcher_held_runs_again_at_its_old_place(valkey_url: str) -> None:
    async with open_pool(valkey_url, Policy(lease_ms=LEASE_MS)) as (queue, pool):
        ids = await submit(queue, pool, JOBS)
        held = await killed_with_leases(valkey_url)
        assert [lease.id for lease in held] == ids
        await submit(queue, pool, 1)  # comes later, must run later
        again = await run_until_idle(queue, pool)
        assert [lease.id for lease in again[:-1]] == ids[SETTLED_FIRST:]
        assert {lease.attempt for lease in again[:-1]} == {2}
        await check_all_succeeded_once(queue, pool, {*ids, again[-1].id})
        for n, id_ in enumerate(ids):
            outcomes = [attempt.outcome for attempt in (await queue.inspect.job(id_)).attempts]
            assert outcomes == (["succeeded"] if n < SETTLED_FIRST else ["lost", "succeeded"])
        for lease in held[SETTLED_FIRST:]:
            with pytest.raises(LeaseLost):
                await queue.settle(pool, lease, "failed")


async def test_dispatchers_killed_at_any_moment_lose_nothing(valkey_url: str) -> None:
    policy = Policy(lease_ms=LEASE_MS)
    async with open_pool(valkey_url, policy) as (queue, pool):
        ids = await submit(queue, pool, MANY_JOBS, max_attempts=KILLS + 1)
        names = (f"d{n}" for n in count())
        hands = [start_hand(valkey_url, next(names)) for _ in range(HANDS)]
        done = 0
        for kill in range(1, KILLS + 1):
            done = await settled(
                queue, pool, at_least=min(MANY_JOBS // 2, done + random.randint(1, MANY_JOBS // KILLS // 2))
            )
            hands[kill % HANDS].kill()
            hands[kill % HANDS] = start_hand(valkey_url, next(names))
        for hand in hands:
            hand.kill()
        await run_until_idle(queue, pool)
        await check_all_succeeded_once(queue, pool, set(ids))


@dataclass(frozen=True)
class Hand:
    """A dispatcher's process."""

    process: BaseProcess

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


def start_hand(url: str, name: str) -> Hand:
    process = PROCESSES.Process(target=work, args=(url, name), daemon=True)
    process.start()
    return Hand(process)


def work(url: str, name: str) -> None:
    """Takes jobs and settles them until it is killed."""

    async def run() -> None:
        queue = await Queue.open(url)
        pool = await queue.pools.by_name("llama")
        for call_no in count(1):
            for lease in await queue.acquire(pool, name, call_no, 4):
                await queue.settle(pool, lease, "succeeded", status=200)

    asyncio.run(run())


async def killed_with_leases(url: str) -> list[Lease]:
    """The leases of a process that took all jobs, settled SETTLED_FIRST of them and was killed."""
    reader, writer = PROCESSES.Pipe(duplex=False)
    victim = PROCESSES.Process(target=take_and_hold, args=(url, writer), daemon=True)
    victim.start()
    assert await asyncio.to_thread(reader.poll, DEADLINE_S), "the victim does not answer"
    held: list[Lease] = reader.recv()
    victim.kill()
    victim.join()
    return held


def take_and_hold(url: str, writer: Connection) -> None:
    async def run() -> None:
        queue = await Queue.open(url)
        pool = await queue.pools.by_name("llama")
        leases = await queue.acquire(pool, "victim", 1, JOBS)
        for lease in leases[:SETTLED_FIRST]:
            await queue.settle(pool, lease, "succeeded", status=200)
        writer.send(leases)
        await asyncio.Event().wait()

    asyncio.run(run())


async def submit(queue: Queue, pool: Pool, jobs: int, max_attempts: int = 3) -> list[str]:
    spec = JobSpec("ann", "default", b"{}", max_attempts=max_attempts)
    return [(await queue.submit(pool, spec)).id for _ in range(jobs)]


async def run_until_idle(queue: Queue, pool: Pool) -> list[Lease]:
    """A sweeper and a dispatcher that live; returns what the dispatcher ran. It begins once leases have ended."""
    ran: list[Lease] = []
    end = time.monotonic() + DEADLINE_S
    for call_no in count(1):
        assert time.monotonic() < end, "the jobs do not come to an end"
        swept = await queue.sweep(pool)
        if (await queue.inspect.overview(pool)).leased:
            await asyncio.sleep(0.02 if not swept.more else 0)
            continue
        for lease in await queue.acquire(pool, "survivor", call_no, 16):
            await queue.settle(pool, lease, "succeeded", status=200)
            ran.append(lease)
        if await is_idle(queue, pool):
            break
    return ran


async def settled(queue: Queue, pool: Pool, at_least: int) -> int:
    """Waits until so many jobs have an outcome; returns how many have."""
    end = time.monotonic() + DEADLINE_S
    while True:
        counts = (await queue.inspect.backend(pool, "b1")).counts
        if counts.done >= at_least:
            return counts.done
        await queue.sweep(pool)
        assert time.monotonic() < end, f"only {counts.done} of {at_least} jobs are settled"
