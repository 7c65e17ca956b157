"""Many outcomes in one call: each on its own, and single settles that come at once share their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import InvalidRequest, LeaseLost, NotFound
from fairlane.model import BackendCounts, JobError, Lease, Limits, Policy, Settlement, Usage
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import NOTHING_COUNTED, NOTHING_KNOWN, ids_of, open_backend, set_gate, state_of, submit, take

pytestmark = pytest.mark.usefixtures("invariants")


def count_calls(queue: Queue, name: str) -> list[int]:
    """The number of arguments of each call of a script, from now on."""
    calls: list[int] = []
    run: Any = queue._store.run

    async def counted(*args: Any, **options: Any) -> Any:
        if args[0] == name:
            calls.append(len(args) - 2)
        return await run(*args, **options)

    queue._store.run = counted
    return calls


async def lease_many(queue: Queue, pool: Pool, n: int) -> list[Lease]:
    for tenant in ("ann", "bob", "cho"):
        await submit(queue, pool, tenant, n=n // 3 + 1)
    leases: list[Lease] = []
    while len(leases) < n:
        leases += await take(queue, pool, min(100, n - len(leases)))
    return leases


async def test_each_outcome_is_written_on_its_own(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    lost, good, bad, cancelled, done = await lease_many(queue, pool, 5)
    await queue.renew(pool, [good, bad, cancelled, done])
    clock.advance(pool.policy.lease_ms - 1)
    await queue.renew(pool, [good, bad, cancelled, done])
    clock.advance(1)
    await queue.sweep(pool)
    await queue.settle(pool, done, "succeeded")
    await queue.cancel(cancelled.id)
    failure = JobError("timeout", "It took too long.", 504)
    answers = await queue.settle_many(
        pool,
        [
            Settlement(lost, "succeeded"),
            Settlement(good, "succeeded", 200, b'{"a": 1}', usage=Usage(3, 4)),
            Settlement(bad, "failed", 504, error=failure),
            Settlement(cancelled, "succeeded"),
            Settlement(done, "succeeded"),
            Settlement(NOTHING_KNOWN, "succeeded"),
            Settlement(good, "failed", usage=Usage(-1, 0)),
        ],
    )
    assert [answer if isinstance(answer, str) else type(answer) for answer in answers] == [
        LeaseLost, "succeeded", "failed", "cancelled", "succeeded", NotFound, InvalidRequest,
    ]  # fmt: skip
    job = await queue.inspect.job(good.id)
    assert (job.status, job.result, job.usage) == (200, b'{"a": 1}', Usage(3, 4))
    assert (await queue.inspect.job(bad.id)).error == failure
    assert await state_of(queue, lost.id) == "queued"


async def test_what_is_settled_twice_in_one_call_is_settled_once(queue: Queue, pool: Pool) -> None:
    (lease,) = await lease_many(queue, pool, 1)
    answers = await queue.settle_many(pool, [Settlement(lease, "succeeded", result=b"1"), Settlement(lease, "failed")])
    assert answers == ["succeeded", "succeeded"]
    assert (await queue.inspect.job(lease.id)).result == b"1"
    counts = await queue.observe(pool, "b1", {}, counted=NOTHING_COUNTED)
    assert counts == BackendCounts(live=0, done=1, denied=0)


async def test_a_tenant_that_has_all_in_flight_goes_on_when_many_end(queue: Queue, pool: Pool) -> None:
    await queue.set_limits(pool, "ann", Limits(max_inflight=4))
    ids = await submit(queue, pool, n=9)
    leases = await take(queue, pool, 9)
    assert ids_of(leases) == ids[:4]
    await queue.settle_many(pool, [Settlement(lease, "succeeded") for lease in leases])
    assert ids_of(await take(queue, pool, 9)) == ids[4:8]


async def test_backends_and_waiters_are_counted_and_told_for_all(queue: Queue, pool: Pool, client: Any) -> None:
    await open_backend(queue, pool, "b2", 1000)
    leases = await lease_many(queue, pool, 60)
    await set_gate(queue, pool, "b1", 0)
    await set_gate(queue, pool, "b2", 0)
    await submit(queue, pool)
    assert await take(queue, pool) == []
    async with client.pubsub() as pubsub:
        await pubsub.subscribe(pool.key("wake"))
        assert (await pubsub.get_message(timeout=5))["type"] == "subscribe"
        await queue.settle_many(pool, [Settlement(lease, "succeeded") for lease in leases])
        assert (await pubsub.get_message(timeout=5))["data"] == b"room"
        assert await pubsub.get_message(timeout=0.01) is None, "one word is enough"
    for name in ("b1", "b2"):
        assert (await queue.inspect.backend(pool, name)).counts == BackendCounts(0, 30, 1)


async def test_a_hundred_settles_at_once_share_their_calls(queue: Queue, pool: Pool) -> None:
    leases = await lease_many(queue, pool, 100)
    calls = count_calls(queue, "settle")
    states = await asyncio.gather(*(queue.settle(pool, lease, "succeeded", result=b"{}") for lease in leases))
    assert states == ["succeeded"] * 100
    assert len(calls) <= 2


async def test_each_of_those_that_share_a_call_gets_its_own_answer(queue: Queue, pool: Pool) -> None:
    first, second, third = await lease_many(queue, pool, 3)
    await queue.release(pool, second)
    (again,) = await take(queue, pool)
    assert again.id == second.id
    settles = [queue.settle(pool, lease, "succeeded") for lease in (first, second, third, NOTHING_KNOWN)]
    answers = await asyncio.gather(*settles, return_exceptions=True)
    kinds = [answer if isinstance(answer, str) else type(answer) for answer in answers]
    assert kinds == ["succeeded", LeaseLost, "succeeded", NotFound]


@pytest.mark.parametrize("policy", [Policy(max_waiting_tenant=1000)], indirect=True)
async def test_what_one_call_carries_is_bounded(queue: Queue, pool: Pool) -> None:
    leases = await lease_many(queue, pool, 130)
    calls = count_calls(queue, "settle")

    async def settle(some: Sequence[Lease], size: int) -> None:
        answers = await queue.settle_many(pool, [Settlement(one, "succeeded", result=b"x" * size) for one in some])
        assert answers == ["succeeded"] * len(some)

    await settle(leases[:120], 10)
    await settle(leases[120:], 1 << 20)
    assert [n // 8 for n in calls] == [100, 20, 4, 4, 2]
