"""The fan-out, broken off at each of its steps and between other acts: nothing is lost, and nothing doubled."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dispatcher.webhooks.fanout import Fanout
from fairlane.errors import StoreUnavailable
from fairlane.head import Head
from fairlane.model import JobError, JobSpec
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.safe_url import Guard
from fairlane.settings import Settings
from fairlane.webhooks.deliveries import Deliveries
from fairlane.webhooks.delivery import Delivery
from fairlane.webhooks.endpoints import Webhooks
from tests.contract.acts import take, take_one

SETTINGS = Settings()
HEAD = Head("/v1/chat/completions", "llama", webhook={"url": "https://own.example/"}).encode()


async def ended(queue: Queue, pool: Pool, n: int = 1, head: bytes = HEAD, result: bytes = b"{}") -> list[str]:
    """Jobs with hooks of their own, which succeeded."""
    for _ in range(n):
        await queue.submit(pool, JobSpec("ann", "default", b"{}", head=head, hook=True))
    leases = await take(queue, pool, n)
    for lease in leases:
        await queue.settle(pool, lease, "succeeded", status=200, result=result)
    return [lease.id for lease in leases]


async def sent(queue: Queue) -> list[Delivery]:
    deliveries = Deliveries(queue)
    found, _ = await deliveries.list("ann", limit=100)
    return [await deliveries.get("ann", one.id) for one in reversed(found)]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_fan_out_that_is_killed_at_any_step_loses_and_doubles_nothing(
    queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    monkeypatch.setattr("dispatcher.webhooks.fanout.AT_ONCE", 2)
    await Webhooks(queue, Guard.of("", "443")).create("ann", "https://all.example/")
    ids = await ended(queue, pool, 5)
    run: Callable[..., Awaitable[Any]] = queue.store.run
    left = 0

    async def breaking(*args: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not after:
            raise StoreUnavailable()
        reply = await run(*args, **more)
        if left == 0:
            raise StoreUnavailable()
        return reply

    monkeypatch.setattr(queue.store, "run", breaking)
    steps, done = 0, False
    while not done:
        steps += 1
        left = steps
        try:  # each time another process, which dies one step later than the one before it
            done = await Fanout(queue, SETTINGS).jobs(pool) == 0
        except StoreUnavailable:
            done = False
    monkeypatch.undo()
    assert steps > 5
    found = await sent(queue)
    assert sorted((one.object_id, one.url) for one in found) == sorted(
        (id_, url) for id_ in ids for url in ("https://all.example/", "https://own.example/")
    )


async def test_an_outcome_is_told_of_although_its_job_was_requeued_at_once(queue: Queue, pool: Pool) -> None:
    await queue.submit(pool, JobSpec("ann", "default", b"{}", head=HEAD, max_attempts=1, hook=True))
    lease = await take_one(queue, pool)
    await queue.retry(pool, lease, JobError("backend_unreachable", "It does not answer.", 502), delay_ms=0)
    await queue.requeue(lease.id)
    await Fanout(queue, SETTINGS).jobs(pool)
    again = await take_one(queue, pool)
    await queue.settle(pool, again, "succeeded", status=200, result=b"{}")
    await Fanout(queue, SETTINGS).jobs(pool)
    found = await sent(queue)
    assert sorted(one.event for one in found) == ["job.failed", "job.succeeded"]
    for one in found:
        assert one.payload is not None
        event = json.loads(one.payload)
        assert event["type"] == one.event == f"job.{event['data']['state']}"
        assert len(event["data"]["attempts"]) == (1 if one.event == "job.failed" else 2)


async def test_one_job_that_cannot_be_told_of_holds_up_no_other(queue: Queue, pool: Pool) -> None:
    """Its head is not ours, whoever wrote it there."""
    await Webhooks(queue, Guard.of("", "443")).create("ann", "https://all.example/")
    await ended(queue, pool, head=b"\xff")
    kept = await ended(queue, pool)
    await Fanout(queue, SETTINGS).jobs(pool)
    assert {one.object_id for one in await sent(queue)} == set(kept)
    assert await queue.hooks.events(pool) == (0, [])
