"""What many contract tests do: short names for acts whose details do not matter to the test."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from fairlane.model import BackendCounts, JobSpec, Lease, TierGate
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool

_calls = count(1)
NOTHING_COUNTED = BackendCounts(0, 0, 0)


async def open_backend(queue: Queue, pool: Pool, name: str, limit: int) -> None:
    """Adds a backend and opens its gate for `limit` leases to every tier, fresh or stale."""
    await queue.set_backend(pool, name, "add")
    await set_gate(queue, pool, name, limit)


async def set_gate(queue: Queue, pool: Pool, name: str, limit: int) -> None:
    gates = {tier: TierGate(limit, limit) for tier in pool.policy.tiers}
    await queue.observe(pool, name, gates, counted=NOTHING_COUNTED)


async def submit(queue: Queue, pool: Pool, tenant: str = "ann", tier: str = "default", n: int = 1, **spec: object) -> list[str]:
    """Submits `n` jobs of one tenant; returns their ids."""
    specs = [JobSpec(tenant=tenant, tier=tier, body=b"{}", **spec) for _ in range(n)]  # pyright: ignore[reportArgumentType]
    return [(await queue.submit(pool, one)).id for one in specs]


async def take(queue: Queue, pool: Pool, n: int = 1, dispatcher: str = "d1") -> list[Lease]:
    """Acquires up to `n` jobs, with a call number that was never used."""
    return await queue.acquire(pool, dispatcher, next(_calls), n)


async def finish(queue: Queue, pool: Pool, leases: Iterable[Lease]) -> None:
    for lease in leases:
        assert await queue.settle(pool, lease, "succeeded", status=200, result=b"{}") == "succeeded"


async def drain(queue: Queue, pool: Pool, n: int = 100) -> list[Lease]:
    """Runs everything that can run, one job at a time; returns the leases in the order in which they were given."""
    done: list[Lease] = []
    while leases := await take(queue, pool, 1):
        done += leases
        await finish(queue, pool, leases)
    return done
