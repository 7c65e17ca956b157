"""Twenty dispatchers take jobs from one queue at once."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

from fairlane.model import JobSpec, Policy
from fairlane.queue.engine import Queue
from tests.chaos.stage import DEADLINE_S, PROCESSES, check_all_succeeded_once, open_pool

RACERS = 20
CALL_MOST = 4
TENANTS = 10
JOBS_EACH = 100
AT_MOST = TENANTS * JOBS_EACH // 5  # for one racer: on a busy machine two or three would take all before the others run
POLICY = Policy(lease_ms=60_000)


@dataclass(frozen=True)
class Taken:
    id: str
    token: int
    tenant: str
    until_ms: int


def test_twenty_racers_share_the_jobs_and_the_tenants_take_turns(valkey_url: str) -> None:
    ids = asyncio.run(submit_all(valkey_url))
    start = PROCESSES.Barrier(RACERS)
    ends = [PROCESSES.Pipe(duplex=False) for _ in range(RACERS)]
    racers = [PROCESSES.Process(target=race, args=(valkey_url, f"d{n}", start, ends[n][1])) for n in range(RACERS)]
    for racer in racers:
        racer.start()
    taken = [receive(reader) for reader, _ in ends]
    for racer in racers:
        racer.join()
    assert sum(bool(of_one) for of_one in taken) >= 5, "there was no race"
    everything = [one for of_one in taken for one in of_one]
    assert Counter(one.id for one in everything) == Counter(dict.fromkeys(ids, 1))
    assert {one.token for one in everything} == {1}
    assert_in_turn(everything)
    asyncio.run(check_the_end(valkey_url, ids))


async def submit_all(url: str) -> set[str]:
    """One tenant's jobs after the other's: first come, first served would be as unfair as can be."""
    async with open_pool(url, POLICY) as (queue, pool):
        specs = [JobSpec(f"t{n}", "default", b"{}") for n in range(TENANTS) for _ in range(JOBS_EACH)]
        return {answer.id for answer in await queue.submit_many(pool, specs)}  # pyright: ignore[reportAttributeAccessIssue]


def race(url: str, name: str, start: Barrier, writer: Connection) -> None:
    """Takes jobs until there are none, or it has its part, then settles them."""

    async def run() -> list[Taken]:
        queue = await Queue.open(url, timeout_s=DEADLINE_S)  # twenty of them, and whatever else runs
        pool = await queue.pools.by_name("llama")
        start.wait(DEADLINE_S)
        leases = []
        for call_no in count(1):
            got = await queue.acquire(pool, name, call_no, 1 + call_no % CALL_MOST)
            if not got:
                break
            leases += got
            if len(leases) > AT_MOST - CALL_MOST:
                break
        for lease in leases:
            await queue.settle(pool, lease, "succeeded", status=200)
        await queue.close()
        return [Taken(lease.id, lease.token, lease.tenant, lease.until_ms) for lease in leases]

    writer.send(asyncio.run(run()))


def receive(reader: Connection) -> list[Taken]:
    assert reader.poll(DEADLINE_S), "a racer does not come home"
    return reader.recv()


def assert_in_turn(everything: list[Taken]) -> None:
    """Whenever one looks, no tenant is more than one turn ahead of another (all have as many jobs)."""
    by_time: dict[int, list[Taken]] = defaultdict(list)
    for one in everything:
        by_time[one.until_ms].append(one)
    turns = Counter({one.tenant: 0 for one in everything})
    for _, at_once in sorted(by_time.items()):
        turns.update(one.tenant for one in at_once)
        assert max(turns.values()) - min(turns.values()) <= 1


async def check_the_end(url: str, ids: set[str]) -> None:
    async with open_pool(url, POLICY) as (queue, pool):
        await check_all_succeeded_once(queue, pool, ids)
