"""How Redis's time and memory grow: with the tenants that wait, with the jobs that wait, and per waiting job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from redis import Redis

from benchmarks.lifecycle import DEPTH, Cost, Fairlane, measure, opened
from benchmarks.pools import BODY, SMALL_BODY, TIER, fill, open_pool, specs
from benchmarks.servers import Measured, StoreName, server

LINES: Final = 100
HEAD: Final = b"{}"


@dataclass(frozen=True)
class Load:
    """What waits before the measurement begins: that many jobs, the tenants in turn."""

    tenants: int
    waiting: int


def under_loads(store: StoreName, loads: Sequence[Load], *, rounds: int, jobs: int) -> tuple[list[Cost], list[int]]:
    """The lifecycle's cost under each load, and the memory (bytes) of each: a server each, measured in turn."""
    costs: list[list[Cost]] = [[] for _ in loads]
    with ExitStack() as stack:
        servers = [stack.enter_context(server(store)) for _ in loads]
        clients = [stack.enter_context(running.client()) for running in servers]
        sides = []
        for load, running, client in zip(loads, servers, clients, strict=True):
            _fill(running, load.waiting, load.tenants, SMALL_BODY)
            sides.append(Fairlane(client, opened(running), load.tenants))
            measure(running, client, sides[-1], max(DEPTH, jobs // 10), DEPTH)
        memory = [_used_memory(client) for client in clients]
        for _ in range(rounds):
            for n, running in enumerate(servers):
                costs[n].append(measure(running, clients[n], sides[n], jobs, DEPTH))
    return [Cost.median(rounds_of_one) for rounds_of_one in costs], memory


@dataclass(frozen=True)
class Footprint:
    """Bytes of memory: of one waiting job beside its payload, and of one line with nothing in it but its first job."""

    per_job: float
    per_line: float


def footprint(store: StoreName, jobs: int) -> Footprint:
    """Ours. All of a job's memory counts (hash, stream, key space) but its body and head."""
    with server(store) as running, running.client() as client:
        opened(running)
        _fill(running, LINES, LINES, BODY)
        client.flushall()  # from here on the scripts are there
        opened(running)
        memory = [_used_memory(client)]
        for more in (LINES, jobs):
            _fill(running, more, LINES, BODY)
            memory.append(_used_memory(client))
    return _footprint(memory, jobs, len(BODY) + len(HEAD))


def raw_footprint(store: StoreName, jobs: int) -> Footprint:
    """The yardstick's: XADD with the body, HSET with the state."""
    with server(store) as running, running.client() as client:
        memory = [_used_memory(client)]
        for seqs in (range(LINES), range(LINES, LINES + jobs)):
            _fill_raw(client, seqs)
            memory.append(_used_memory(client))
    return _footprint(memory, jobs, len(BODY))


def _footprint(memory: list[int], jobs: int, payload: int) -> Footprint:
    """memory: used when empty, with one job in each line, with `jobs` more."""
    empty, first, last = memory
    per_job = (last - first) / jobs
    return Footprint(per_job - payload, (first - empty) / LINES - per_job)


def _fill_raw(client: Redis, seqs: range) -> None:
    for start in range(0, len(seqs), DEPTH):
        pipe = client.pipeline(transaction=False)
        for seq in seqs[start : start + DEPTH]:
            pipe.xadd(f"line:{seq % LINES}", {"body": BODY}, id=f"{seq + 1}-0")
            pipe.hset(f"job:{seq}", mapping={"state": "queued", "tenant": f"tenant-{seq % LINES}", "tier": TIER})
        pipe.execute()


def _fill(running: Measured, jobs: int, tenants: int, body: bytes) -> None:
    async def run() -> None:
        async with open_pool(running.url) as (queue, pool):
            await fill(queue, pool, specs(jobs, tenants, body))

    asyncio.run(run())


def _used_memory(client: Redis) -> int:
    """Once Redis has nothing left to rehash or free: the middle of three looks."""
    looks: list[Any] = [client.info("memory") for _ in range(3)]
    return int(median(look["used_memory"] for look in looks))
