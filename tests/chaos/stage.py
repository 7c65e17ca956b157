"""What the chaos tests have in common: a pool, processes to kill, waiting, and what must be true in the end."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from fairlane.model import Job, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import open_backend
from tests.contract.invariants import check_invariants

DEADLINE_S: Final = 60.0
# One process that has imported everything forks the others: twenty are there at once, and none is a copy of pytest.
PROCESSES: Final = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.chaos.stage"])


@asynccontextmanager
async def open_pool(url: str, policy: Policy) -> AsyncIterator[tuple[Queue, Pool]]:
    """A queue and its one pool; its one backend takes everything."""
    queue = await Queue.open(url)
    try:
        pool = await queue.pools.open("llama", policy)
        await open_backend(queue, pool, "b1", 1_000_000)
        yield queue, pool
    finally:
        await queue.close()


async def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.005)


async def is_idle(queue: Queue, pool: Pool) -> bool:
    """Nothing waits and nothing runs."""
    seen = await queue.inspect.overview(pool)
    return not (seen.leased or seen.delayed or any(tier.depth for tier in seen.tiers))


async def check_all_succeeded_once(queue: Queue, pool: Pool, ids: set[str]) -> list[Job]:
    """These jobs, no others, have one outcome each, and nothing in Redis contradicts anything else; returns them."""
    assert await is_idle(queue, pool)
    client: Any = queue.inspect._store.client
    events = [fields for _, fields in await client.xrange(pool.key("events"))]
    assert Counter(event[b"job"].decode() for event in events) == Counter(dict.fromkeys(ids, 1))
    assert {event[b"state"] for event in events} == {b"succeeded"}
    jobs = await read_all(queue, ids)
    assert {job.state for job in jobs} == {"succeeded"}
    await check_invariants(queue, pool)
    return jobs


async def read_all(queue: Queue, ids: Iterable[str]) -> list[Job]:
    return await asyncio.gather(*map(queue.inspect.job, ids))
