"""Events: one entry for each outcome, kept until everyone who reads them has; and a word to whoever waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import REFUSED, another_process, finish, spec, submit, submit_all, take, take_one

pytestmark = pytest.mark.usefixtures("invariants")

Event = dict[str, str]


async def events(client: Any, pool: Pool) -> list[Event]:
    entries = await client.xrange(pool.key("events"))
    read = [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in entries]
    return [{name: value for name, value in event.items() if name != "times"} for event in read]


async def expire(queue: Queue, pool: Pool, clock: ManualClock, n: int) -> None:
    """Produces `n` events: what waits beyond its deadline."""
    await submit_all(queue, pool, [spec(deadline_ms=0)] * n)
    while (await queue.sweep(pool)).more:
        pass


async def test_every_end_of_a_job_is_one_event(queue: Queue, pool: Pool, client: Any, clock: ManualClock) -> None:
    expected: list[Event] = []

    def ended(job_id: str, state: str, tenant: str = "ann", batch: str = "") -> None:
        expected.append({"job": job_id, "state": state, "tenant": tenant, "batch": batch})

    await submit_all(queue, pool, [spec(max_attempts=1)] * 6 + [spec("bob", batch_id="batch_1")])
    good, batch, bad, dead, dropped, late, lost = await take(queue, pool, 7)
    assert batch.tenant == "bob"
    await finish(queue, pool, [good, batch])
    ended(good.id, "succeeded")
    ended(batch.id, "succeeded", "bob", "batch_1")
    await queue.settle(pool, bad, "failed", status=400)
    ended(bad.id, "failed")
    await queue.retry(pool, dead, REFUSED, delay_ms=0)
    ended(dead.id, "failed")
    await queue.cancel(dropped.id)
    ended(dropped.id, "cancelled")
    await queue.release(pool, dropped)
    await queue.cancel(late.id)
    ended(late.id, "cancelled")
    await queue.settle(pool, late, "succeeded")
    clock.advance(30_000)
    await queue.sweep(pool)
    ended(lost.id, "failed")
    for delay_ms in (0, 1000):
        (id_,) = await submit(queue, pool, delay_ms=delay_ms)
        await queue.cancel(id_)
        ended(id_, "cancelled")
    for delay_ms in (0, 1000):
        (id_,) = await submit(queue, pool, delay_ms=delay_ms, deadline_ms=1)
        clock.advance(1)
        await queue.sweep(pool)
        ended(id_, "expired")
    assert await events(client, pool) == expected


async def test_nothing_but_an_end_is_an_event(queue: Queue, pool: Pool, client: Any, clock: ManualClock) -> None:
    await submit(queue, pool, n=4)
    kept, retried, released, lost = await take(queue, pool, 4)
    await queue.renew(pool, [kept])
    await queue.retry(pool, retried, REFUSED, delay_ms=10)
    await queue.release(pool, released)
    clock.advance(29_000)
    await queue.renew(pool, [kept])
    clock.advance(1000)
    assert (await queue.sweep(pool)).lost == 1
    await queue.retier(pool, [lost.id], "flex")
    await queue.pause(pool)
    assert await events(client, pool) == []
    await finish(queue, pool, [kept])
    await queue.settle(pool, kept, "succeeded")
    await queue.cancel(kept.id)
    assert len(await events(client, pool)) == 1


async def test_a_job_that_was_requeued_ends_twice(queue: Queue, pool: Pool, client: Any) -> None:
    (id_,) = await submit(queue, pool, max_attempts=1)
    await queue.retry(pool, await take_one(queue, pool), REFUSED, delay_ms=0)
    await queue.requeue(id_)
    await finish(queue, pool, [await take_one(queue, pool)])
    assert [(event["job"], event["state"]) for event in await events(client, pool)] == [
        (id_, "failed"),
        (id_, "succeeded"),
    ]


async def test_events_stay_until_every_group_has_read_and_acknowledged_them(
    queue: Queue, pool: Pool, client: Any, clock: ManualClock
) -> None:
    """Case 27, without losing what somebody has yet to see."""
    key = pool.key("events")
    for group in ("webhooks", "batches"):
        await client.xgroup_create(key, group, id="0", mkstream=True)
    await expire(queue, pool, clock, 350)
    entries = [id_ for id_, _ in await client.xrange(key)]
    assert len(entries) == 350

    async def read(group: str, n: int) -> list[bytes]:
        ((_, got),) = await client.xreadgroup(group, "c", {key: ">"}, count=n)
        return [id_ for id_, _ in got]

    first = await read("webhooks", 350)
    await client.xack(key, "webhooks", *first)
    await queue.sweep(pool)
    assert await client.xlen(key) == 350, "nobody has read them for the batches"
    half = await read("batches", 250)
    await queue.sweep(pool)
    assert await client.xlen(key) == 350, "read is not acknowledged"
    await client.xack(key, "batches", *half[:120], *half[130:])
    await queue.sweep(pool)
    left = [id_ for id_, _ in await client.xrange(key)]
    assert left == entries[-len(left) :]
    assert entries[120] in left
    assert len(left) < 350, "whole nodes of the stream go"
    await client.xack(key, "batches", *half[120:130])
    await client.xack(key, "batches", *await read("batches", 350))
    await queue.sweep(pool)
    assert await client.xlen(key) <= 100


async def test_a_group_that_was_just_made_loses_nothing(
    queue: Queue, pool: Pool, client: Any, clock: ManualClock
) -> None:
    await expire(queue, pool, clock, 210)
    await client.xgroup_create(pool.key("events"), "webhooks", id="0")
    await queue.sweep(pool)
    assert await client.xlen(pool.key("events")) == 210


async def test_every_reader_gets_its_own_jobs_result_and_any_number_of_them(queue: Queue, pool: Pool) -> None:
    """Case 10."""
    ids = await submit(queue, pool, n=8)
    for lease in await take(queue, pool, 8):
        await queue.settle(pool, lease, "succeeded", result=lease.id.encode(), status=200)
    readers = [another_process(queue).inspect.job(id_) for _ in range(5) for id_ in ids]
    jobs = await asyncio.gather(*readers)
    assert [(job.id, job.result) for job in jobs] == [(id_, id_.encode()) for id_ in ids] * 5
