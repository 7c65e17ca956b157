"""Pools to measure with: gates wide open, no limit on what waits, leases that outlast the run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Final

from fairlane.model import BackendCounts, JobSpec, Policy, Submitted, TierGate
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool

TIER: Final = "default"
BODY: Final = b'{"prompt": "' + b"x" * 1010 + b'"}'  # 1 KB
SMALL_BODY: Final = b'{"prompt": "Tell me a story."}'
BATCH: Final = 1000
_WIDE_OPEN: Final = TierGate(10**9, 10**9)
_POLICY: Final = Policy(lease_ms=3_600_000, max_waiting_pool=10**9, max_waiting_tenant=10**9)

assert len(BODY) == 1024


@asynccontextmanager
async def open_pool(url: str) -> AsyncIterator[tuple[Queue, Pool]]:
    """A queue and its one pool, with one backend that takes everything."""
    queue = await Queue.open(url, timeout_s=60)
    try:
        pool = await queue.pools.open("llama", _POLICY)
        await queue.set_backend(pool, "b1", "add")
        gates = dict.fromkeys(pool.policy.tiers, _WIDE_OPEN)
        await queue.observe(pool, "b1", gates, counted=BackendCounts(0, 0, 0))
        yield queue, pool
    finally:
        await queue.close()


def specs(jobs: int, tenants: int, body: bytes = BODY) -> Iterator[JobSpec]:
    """`jobs` jobs, the tenants in turn."""
    return (JobSpec(tenant=f"tenant-{n % tenants}", tier=TIER, body=body) for n in range(jobs))


async def fill(queue: Queue, pool: Pool, jobs: Iterable[JobSpec]) -> int:
    """Submits the jobs in batches; returns how many."""
    rest = iter(jobs)
    done = 0
    while batch := list(islice(rest, BATCH)):
        for answer in await queue.submit_many(pool, batch):
            assert isinstance(answer, Submitted), answer
        done += len(batch)
    return done
