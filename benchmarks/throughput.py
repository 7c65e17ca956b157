"""Jobs a second through one asyncio process, and what the same client does with the raw commands on the same server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import count
from statistics import median
from typing import Final

from redis.asyncio import Redis

from benchmarks.pools import BATCH, BODY, TIER, fill, open_pool, specs
from benchmarks.servers import Measured
from fairlane.model import JobSpec
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool

TENANTS: Final = 100
AT_A_TIME: Final = 16
DISPATCHERS: Final = (1, 2, 4)
SUBMITTERS: Final = 32

Run = Callable[[int], Awaitable[float]]  # does that many jobs; returns jobs/s


async def pops(server: Measured, *, rounds: int, jobs: int) -> tuple[dict[int, float], float]:
    """acquire(n=16) on a full queue: jobs/s by the number of dispatchers, and the yardstick's with one."""
    runs = [partial(_raw_pop, server.url), *(partial(_acquire, server.url, dispatchers=d) for d in DISPATCHERS)]
    yardstick, *measured = await _alternate(server, runs, rounds, jobs)
    return dict(zip(DISPATCHERS, measured, strict=True)), yardstick


async def submits(server: Measured, *, rounds: int, jobs: int) -> tuple[float, float]:
    """32 tasks that submit one job after another: jobs/s, and the yardstick's."""
    runs = [partial(_raw_submit, server.url), partial(_submit, server.url)]
    yardstick, measured = await _alternate(server, runs, rounds, jobs)
    return measured, yardstick


async def batches(server: Measured, *, rounds: int, jobs: int) -> tuple[float, float]:
    """submit_many of 1,000 jobs, one call after another: jobs/s, and the yardstick's."""
    runs = [partial(_raw_submit_batches, server.url), partial(_submit_batches, server.url)]
    yardstick, measured = await _alternate(server, runs, rounds, jobs)
    return measured, yardstick


async def _alternate(server: Measured, runs: Sequence[Run], rounds: int, jobs: int) -> list[float]:
    """Each run in turn, on an emptied server; medians of the rounds after a first one that warms up."""
    speeds: list[list[float]] = [[] for _ in runs]
    with server.client() as client:
        for run in runs:
            client.flushall()
            await run(jobs // 10)
        for _ in range(rounds):
            for n, run in enumerate(runs):
                client.flushall()
                speeds[n].append(await run(jobs))
    return [median(of_one) for of_one in speeds]


async def _acquire(url: str, jobs: int, dispatchers: int) -> float:
    async with open_pool(url) as (queue, pool):
        await fill(queue, pool, specs(jobs, TENANTS))

        async def dispatch(name: str) -> int:
            taken = 0
            for call_no in count(1):
                leases = await queue.acquire(pool, name, call_no, AT_A_TIME)
                taken += len(leases)
                if not leases:
                    break
            return taken

        began = time.perf_counter()
        taken = await asyncio.gather(*(dispatch(f"dispatcher-{n}") for n in range(dispatchers)))
        took = time.perf_counter() - began
    assert sum(taken) == jobs
    return jobs / took


async def _submit(url: str, jobs: int) -> float:
    async with open_pool(url) as (queue, pool):
        todo = specs(jobs, TENANTS)
        began = time.perf_counter()
        await asyncio.gather(*(_submit_all(queue, pool, todo) for _ in range(SUBMITTERS)))
        return jobs / (time.perf_counter() - began)


async def _submit_all(queue: Queue, pool: Pool, todo: Iterator[JobSpec]) -> None:
    for spec in todo:
        await queue.submit(pool, spec)


async def _submit_batches(url: str, jobs: int) -> float:
    async with open_pool(url) as (queue, pool):
        began = time.perf_counter()
        done = await fill(queue, pool, specs(jobs, TENANTS))
        return done / (time.perf_counter() - began)


# --- the yardsticks: the least a durable queue on streams must do, through the same client --------------------------


async def _raw_pop(url: str, jobs: int) -> float:
    async with _client(url) as client:
        await _put(client, range(1, jobs + 1), BATCH)
        began = time.perf_counter()
        for start in range(1, jobs + 1, AT_A_TIME):
            pipe = client.pipeline(transaction=False)
            pipe.xrange("line", count=AT_A_TIME)
            taken = range(start, min(start + AT_A_TIME, jobs + 1))
            pipe.xdel("line", *(f"{seq}-0" for seq in taken))
            for seq in taken:
                pipe.hset(f"job:{seq}", mapping={"state": "leased", "token": 1})
            await pipe.execute()
        return jobs / (time.perf_counter() - began)


async def _raw_submit(url: str, jobs: int) -> float:
    todo = iter(range(1, jobs + 1))

    async def submit() -> None:
        for seq in todo:
            await _put(client, range(seq, seq + 1), 1)

    async with _client(url) as client:
        began = time.perf_counter()
        await asyncio.gather(*(submit() for _ in range(SUBMITTERS)))
        return jobs / (time.perf_counter() - began)


async def _raw_submit_batches(url: str, jobs: int) -> float:
    async with _client(url) as client:
        began = time.perf_counter()
        await _put(client, range(1, jobs + 1), BATCH)
        return jobs / (time.perf_counter() - began)


async def _put(client: Redis, seqs: range, at_a_time: int) -> None:
    for start in range(0, len(seqs), at_a_time):
        pipe = client.pipeline(transaction=False)
        for seq in seqs[start : start + at_a_time]:
            pipe.xadd("line", {"body": BODY}, id="*" if at_a_time == 1 else f"{seq}-0")
            pipe.hset(f"job:{seq}", mapping={"state": "queued", "tenant": f"tenant-{seq % TENANTS}", "tier": TIER})
        await pipe.execute()


def _client(url: str) -> Redis:
    """The same connections as the queue's, so that only the commands differ."""
    client = connect(url, timeout_s=60)
    assert isinstance(client, Redis)
    return client
