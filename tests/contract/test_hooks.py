"""Hooks: whoever wants to be told of a job's outcome finds it, whatever the way in which the job ended."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.model import Policy
from fairlane.queue.engine import Queue
from fairlane.queue.hooks import HookEvent
from fairlane.queue.pools import Pool
from tests.contract.acts import (
    REFUSED,
    finish,
    open_backend,
    spec,
    submit,
    submit_all,
    take,
    take_one,
)

pytestmark = pytest.mark.usefixtures("invariants")

DAY_MS = 86_400_000


async def told(queue: Queue, pool: Pool) -> list[HookEvent]:
    """All that is to be told of, and has not been."""
    _, events = await queue.hooks.events(pool)
    return events


async def ttl_ms(client: Any, pool: Pool, job_id: str) -> int:
    return await client.pttl(pool.key("job", job_id))


async def test_every_end_of_a_job_with_a_hook_is_told_and_no_other(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    expected: list[tuple[str, str]] = []
    await submit(queue, pool, tenant="bob", n=7)  # nobody wants to be told of these
    hooked = await submit_all(queue, pool, [spec(max_attempts=1, hook=True)] * 7)
    leases = {lease.id: lease for lease in await take(queue, pool, 14)}
    good, bad, dead, dropped, late, lost, cancelled = (leases[id_] for id_ in hooked)
    for lease in leases.values():
        if lease.tenant == "bob":
            await finish(queue, pool, [lease])
    await finish(queue, pool, [good])
    expected.append((good.id, "succeeded"))
    await queue.settle(pool, bad, "failed", status=400)
    expected.append((bad.id, "failed"))
    await queue.retry(pool, dead, REFUSED, delay_ms=0)
    expected.append((dead.id, "failed"))
    for lease, end in ((dropped, "release"), (late, "settle"), (cancelled, "nothing")):
        await queue.cancel(lease.id)
        expected.append((lease.id, "cancelled"))
        if end == "release":
            await queue.release(pool, lease)
        elif end == "settle":
            await queue.settle(pool, lease, "succeeded")
    clock.advance(30_000)
    await queue.sweep(pool)
    expected.append((lost.id, "failed"))
    for delay_ms in (0, 1000):
        (id_,) = await submit(queue, pool, delay_ms=delay_ms, hook=True)
        await queue.cancel(id_)
        expected.append((id_, "cancelled"))
        (id_,) = await submit(queue, pool, delay_ms=delay_ms, deadline_ms=1, hook=True)
        clock.advance(1)
        await queue.sweep(pool)
        expected.append((id_, "expired"))
    events = await told(queue, pool)
    assert [(event.job, event.state) for event in events] == expected
    assert {event.tenant for event in events} == {"ann"}
    assert len({event.id for event in events}) == len(events)


async def test_a_tenant_s_endpoints_are_told_of_what_was_submitted_before_they_were_there(
    queue: Queue, pool: Pool
) -> None:
    ids = await submit(queue, pool, n=2)
    first, second = await take(queue, pool, 2)
    await finish(queue, pool, [first])
    await queue.hooks.set(pool, "ann", True, 1)
    await finish(queue, pool, [second])
    assert [event.job for event in await told(queue, pool)] == [ids[1]]


async def test_an_older_copy_changes_nothing(queue: Queue, pool: Pool) -> None:
    await queue.hooks.set(pool, "ann", True, 2)
    await queue.hooks.set(pool, "ann", False, 1)
    (id_,) = await submit(queue, pool)
    await finish(queue, pool, [await take_one(queue, pool)])
    assert [event.job for event in await told(queue, pool)] == [id_]
    await queue.hooks.set(pool, "ann", False, 3)
    await submit(queue, pool)
    await finish(queue, pool, [await take_one(queue, pool)])
    assert [event.job for event in await told(queue, pool)] == [id_]  # it was not acknowledged


async def test_a_tenant_that_wants_nothing_any_more_leaves_no_trace(queue: Queue, pool: Pool, client: Any) -> None:
    await queue.hooks.set(pool, "ann", True, 1)
    assert await client.exists(pool.key("tenant", "ann"))
    await submit(queue, pool)
    await finish(queue, pool, [await take_one(queue, pool)])
    assert await client.exists(pool.key("tenant", "ann")), "what it wants was forgotten with its last job"
    await queue.hooks.set(pool, "ann", False, 2)
    assert not await client.exists(pool.key("tenant", "ann"))


async def test_a_batch_tells_of_itself_not_of_its_jobs(queue: Queue, pool: Pool) -> None:
    await queue.hooks.set(pool, "ann", True, 1)
    await submit(queue, pool, batch_id="batch_1")
    await finish(queue, pool, [await take_one(queue, pool)])
    assert await told(queue, pool) == []


async def test_what_was_read_and_not_acknowledged_comes_again(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, n=5, hook=True)
    await finish(queue, pool, await take(queue, pool, 5))
    looked, first = await queue.hooks.events(pool, 3)
    assert (looked, len(first)) == (3, 3)
    assert await queue.hooks.events(pool, 3) == (3, first)  # who read them has died
    await queue.hooks.ack(pool, first[:2])
    assert await queue.hooks.events(pool, 3) == (1, first[2:])
    await queue.hooks.ack(pool, first[2:])
    await queue.hooks.ack(pool, first[2:])  # its answer was lost
    _, rest = await queue.hooks.events(pool, 3)
    assert len(rest) == 2
    await queue.hooks.ack(pool, rest)
    assert await queue.hooks.events(pool, 3) == (0, [])


async def test_a_pool_in_which_nobody_wants_hooks_says_so(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool)
    await finish(queue, pool, [await take_one(queue, pool)])
    assert await queue.hooks.events(pool) == (-1, [])


async def test_a_requeued_job_is_told_of_again(queue: Queue, pool: Pool) -> None:
    (id_,) = await submit(queue, pool, max_attempts=1, hook=True)
    await queue.retry(pool, await take_one(queue, pool), REFUSED, delay_ms=0)
    await queue.requeue(id_)
    await finish(queue, pool, [await take_one(queue, pool)])
    events = await told(queue, pool)
    assert [(event.job, event.state) for event in events] == [(id_, "failed"), (id_, "succeeded")]
    assert events[0].id != events[1].id


async def test_a_job_that_moved_is_told_of_where_it_ends(queue: Queue, pool: Pool) -> None:
    target = await queue.pools.open("other", Policy())
    await open_backend(queue, target, "b1", 10)
    (id_,) = await submit(queue, pool, hook=True)
    await queue.move(id_, target)
    await queue.retier(target, [id_], "flex")
    await finish(queue, target, [await take_one(queue, target)])
    assert await told(queue, pool) == []
    assert [event.job for event in await told(queue, target)] == [id_]


@pytest.mark.parametrize("policy", [Policy(result_ttl_ms=1000, dead_ttl_ms=2000)], indirect=True, ids=["short"])
async def test_a_job_stays_until_its_hook_was_made_from_it(queue: Queue, pool: Pool, client: Any) -> None:
    await submit(queue, pool, n=3, max_attempts=1, hook=True)
    good, dead, cancelled = await take(queue, pool, 3)
    await finish(queue, pool, [good])
    await queue.retry(pool, dead, REFUSED, delay_ms=0)
    await queue.cancel(cancelled.id)
    await queue.release(pool, cancelled)
    for lease in (good, dead, cancelled):
        assert await ttl_ms(client, pool, lease.id) > DAY_MS
    await queue.hooks.ack(pool, await told(queue, pool))
    assert 0 < await ttl_ms(client, pool, good.id) <= 1000
    assert 1000 < await ttl_ms(client, pool, dead.id) <= 2000
    assert 0 < await ttl_ms(client, pool, cancelled.id) <= 1000


@pytest.mark.parametrize("policy", [Policy(result_ttl_ms=1000)], indirect=True, ids=["short"])
async def test_a_job_whose_lease_still_counts_is_not_given_an_end_by_its_hook(
    queue: Queue, pool: Pool, client: Any
) -> None:
    await submit(queue, pool, hook=True)
    lease = await take_one(queue, pool)
    await queue.cancel(lease.id)
    await queue.hooks.ack(pool, await told(queue, pool))
    assert await ttl_ms(client, pool, lease.id) == -1
    await queue.release(pool, lease)
    assert 0 < await ttl_ms(client, pool, lease.id) <= 1000


async def test_the_same_order_with_another_hook_is_another_order(queue: Queue, pool: Pool) -> None:
    """The hook stands in the head, which the digest of the request covers."""
    one = spec(head=b'{"webhook":{"url":"https://a.example/"}}', idempotency_key="k", hook=True)
    other = spec(head=b'{"webhook":{"url":"https://b.example/"}}', idempotency_key="k", hook=True)
    answers = Counter(type(answer).__name__ for answer in await queue.submit_many(pool, [one, other]))
    assert answers == {"Submitted": 1, "IdempotencyMismatch": 1}


async def test_events_are_trimmed_once_the_fan_out_has_had_them(queue: Queue, pool: Pool, client: Any) -> None:
    await submit(queue, pool, n=300, hook=True)
    for _ in range(3):
        await finish(queue, pool, await take(queue, pool, 100))
    await queue.sweep(pool)
    assert await client.xlen(pool.key("events")) == 300  # nobody has read them
    while (events := await told(queue, pool)) != []:
        await queue.hooks.ack(pool, events)
    await queue.sweep(pool)
    assert await client.xlen(pool.key("events")) <= 100  # it is trimmed in whole nodes
