"""What many contract tests do: short names for acts whose details do not matter to the test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Final

from fairlane.clock import Clock
from fairlane.model import BackendCounts, JobError, JobSpec, Lease, State, TierGate
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool

NOTHING_COUNTED: Final = BackendCounts(0, 0, 0)
REFUSED: Final = JobError("backend_unreachable", "It does not answer.", 502)
NOTHING_KNOWN: Final = Lease("job_gone", 1, "b1", "ann", "default", 1, 1, 0, 0, 0, 0, 0, b"", b"")
_calls = count(1)


async def open_backend(queue: Queue, pool: Pool, name: str, limit: int) -> None:
    """Adds a backend and opens its gate for `limit` leases to every tier, fresh or stale."""
    await queue.set_backend(pool, name, "add")
    await set_gate(queue, pool, name, limit)


async def set_gate(queue: Queue, pool: Pool, name: str, limit: int) -> None:
    await set_gates(queue, pool, name, {tier: TierGate(limit, limit) for tier in pool.policy.tiers})


async def set_gates(queue: Queue, pool: Pool, name: str, gates: Mapping[str, TierGate]) -> None:
    await queue.observe(pool, name, gates, counted=NOTHING_COUNTED)


def spec(tenant: str = "ann", tier: str = "default", **changes: Any) -> JobSpec:
    return replace(JobSpec(tenant=tenant, tier=tier, body=b"{}"), **changes)


async def submit(
    queue: Queue, pool: Pool, tenant: str = "ann", tier: str = "default", n: int = 1, **changes: Any
) -> list[str]:
    """Submits `n` equal jobs of one tenant; returns their ids."""
    return await submit_all(queue, pool, [spec(tenant, tier, **changes)] * n)


async def submit_all(queue: Queue, pool: Pool, specs: Iterable[JobSpec]) -> list[str]:
    """Submits jobs none of which may be refused; returns their ids."""
    answers = await queue.submit_many(pool, specs)
    ids: list[str] = []
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
        ids.append(answer.id)
    return ids


async def take(queue: Queue, pool: Pool, n: int = 1, dispatcher: str = "d1") -> list[Lease]:
    """Acquires up to `n` jobs, with a call number that was never used."""
    return await queue.acquire(pool, dispatcher, next(_calls), n)


async def take_one(queue: Queue, pool: Pool) -> Lease:
    (lease,) = await take(queue, pool)
    return lease


async def finish(queue: Queue, pool: Pool, leases: Iterable[Lease]) -> None:
    for lease in leases:
        assert await queue.settle(pool, lease, "succeeded", status=200, result=b"{}") == "succeeded"


async def drain(queue: Queue, pool: Pool) -> list[Lease]:
    """Runs everything that can run, one job at a time; returns the leases in the order in which they were given."""
    done: list[Lease] = []
    while leases := await take(queue, pool, 1):
        done += leases
        await finish(queue, pool, leases)
    return done


def another_process(queue: Queue, clock: Clock | None = None, **settings: Any) -> Queue:
    """A queue on the same data as `queue`, that knows nothing of what it knows."""
    store = queue._store
    client: Any = store.client
    return Queue(client, namespace=store.namespace, clock=clock or store._clock, **settings)


async def state_of(queue: Queue, job_id: str) -> State:
    return (await queue.inspect.job(job_id)).state


async def live(queue: Queue, pool: Pool, backend: str = "b1") -> int:
    """The leases that count for a backend."""
    return (await queue.inspect.backend(pool, backend)).counts.live


def ids_of(leases: Iterable[Lease]) -> list[str]:
    return [lease.id for lease in leases]


def tenants_of(leases: Iterable[Lease]) -> list[str]:
    return [lease.tenant for lease in leases]
