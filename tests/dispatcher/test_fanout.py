"""The fan-out: each outcome that somebody wants to be told of becomes its deliveries, once, whoever dies on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from dispatcher.webhooks import fanout as module
from dispatcher.webhooks.fanout import Alarm, Fanout
from fairlane.batches.ledger import Ledger
from fairlane.errors import StoreUnavailable
from fairlane.head import Head
from fairlane.model import JobSpec
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.safe_url import Guard
from fairlane.settings import Settings
from fairlane.webhooks.deliveries import Deliveries
from fairlane.webhooks.delivery import Delivery, Sending
from fairlane.webhooks.endpoints import Webhooks
from fairlane.webhooks.making import lane_of
from fairlane.webhooks.payload import RESULT_MOST

SETTINGS = Settings(public_url="https://fairlane.example")
URL = "https://receiver.example/hook"
_calls = iter(range(1, 1000))


@pytest.fixture
def webhooks(queue: Queue) -> Webhooks:
    return Webhooks(queue, Guard.of(SETTINGS.webhook_allow, SETTINGS.webhook_ports))


@pytest.fixture
def fanout(queue: Queue) -> Fanout:
    return Fanout(queue, SETTINGS)


async def ended(
    queue: Queue,
    pool: Pool,
    tenant: str = "ann",
    webhook: Mapping[str, Any] | None = None,
    result: bytes = b'{"a":1}',
    batch_id: str | None = None,
) -> str:
    """A job that has succeeded."""
    head = Head("/v1/chat/completions", "llama", webhook=webhook).encode()
    spec = JobSpec(tenant, "default", b"{}", head=head, hook=webhook is not None, batch_id=batch_id)
    id_ = (await queue.submit(pool, spec)).id
    (lease,) = await queue.acquire(pool, "d1", next(_calls), 1)
    await queue.settle(pool, lease, "succeeded", status=200, result=result)
    return id_


async def sent(queue: Queue, tenant: str = "ann") -> list[Delivery]:
    """All deliveries of a tenant, with their payloads, the oldest first."""
    deliveries = Deliveries(queue)
    found, _ = await deliveries.list(tenant, limit=100)
    return [await deliveries.get(tenant, one.id) for one in reversed(found)]


async def test_a_job_s_own_hook_and_its_tenant_s_endpoints_are_told(
    queue: Queue, pool: Pool, fanout: Fanout, webhooks: Webhooks
) -> None:
    all_, _ = await webhooks.create("ann", "https://all.example/")
    await webhooks.create("ann", "https://failures.example/", events=["job.failed"])
    await webhooks.create("bob", "https://bob.example/")
    id_ = await ended(queue, pool, webhook={"url": URL, "headers": {"x-mine": "1"}})
    await fanout.jobs(pool)
    found = await sent(queue)
    assert {(one.url, one.endpoint_id) for one in found} == {(URL, None), (all_.url, all_.id)}
    for one in found:
        assert (one.event, one.object_id, one.state) == ("job.succeeded", id_, "pending")
        assert one.payload is not None
        event = json.loads(one.payload)
        assert (event["type"], event["data"]["id"]) == ("job.succeeded", id_)
        assert event["data"]["result"] == {"status": 200, "body": {"a": 1}}
    assert await sent(queue, "bob") == []


async def test_a_large_result_is_a_link(queue: Queue, pool: Pool, fanout: Fanout) -> None:
    id_ = await ended(queue, pool, webhook={"url": URL}, result=b'"%b"' % (b"x" * RESULT_MOST))
    await fanout.jobs(pool)
    (found,) = await sent(queue)
    assert found.payload is not None
    data = json.loads(found.payload)["data"]
    assert (data["result"], data["result_url"]) == (None, f"https://fairlane.example/v1/jobs/{id_}")


@pytest.mark.parametrize("broken", ["add", "ack"])
async def test_a_fan_out_that_breaks_off_loses_and_doubles_nothing(
    queue: Queue, pool: Pool, fanout: Fanout, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 2)
    ids = [await ended(queue, pool, webhook={"url": URL}) for _ in range(5)]
    target, name = (fanout._outbox, "add") if broken == "add" else (queue.hooks, "ack")
    real, left = getattr(target, name), 1

    async def breaking(*args: Any) -> Any:
        """The second call breaks off, after it was done or before."""
        nonlocal left
        if left == 0:
            left -= 1
            if broken == "add":
                await real(*args)
            raise StoreUnavailable()
        left -= 1
        return await real(*args)

    monkeypatch.setattr(target, name, breaking)
    with pytest.raises(StoreUnavailable):
        await fanout.jobs(pool)
    await Fanout(queue, SETTINGS).jobs(pool)  # another process
    assert sorted(one.object_id for one in await sent(queue)) == sorted(ids)
    assert await queue.hooks.events(pool) == (0, [])


async def test_it_goes_on_after_an_error_and_tells_soon(queue: Queue, pool: Pool, fanout: Fanout) -> None:
    going = asyncio.create_task(fanout.run(pool))
    try:
        ids = {await ended(queue, pool, webhook={"url": URL}) for _ in range(3)}
        async with asyncio.timeout(5):
            while {one.object_id for one in await sent(queue)} != ids:
                await asyncio.sleep(0.02)
    finally:
        going.cancel()


async def test_a_job_that_is_gone_holds_up_nothing(queue: Queue, pool: Pool, fanout: Fanout) -> None:
    gone = await ended(queue, pool, webhook={"url": URL})
    kept = await ended(queue, pool, webhook={"url": URL})
    await queue.store.client.delete(pool.key("job", gone))  # pyright: ignore[reportAttributeAccessIssue]
    await fanout.jobs(pool)
    assert [one.object_id for one in await sent(queue)] == [kept]


async def test_a_batch_that_has_ended_is_told_of_once(queue: Queue, fanout: Fanout, webhooks: Webhooks) -> None:
    await webhooks.create("ann", "https://all.example/")
    ledger = Ledger(queue.store)
    order = {"input": "file-1", "endpoint": "/v1/embeddings", "window": "24h", "webhook": json.dumps({"url": URL})}
    id_ = await ledger.create("ann", "x" * 10, 86_400_000, order, None)
    await fanout.batches()
    assert await sent(queue) == []
    assert await ledger.turn(id_, "", "failed")
    await fanout.batches()
    await fanout.batches()
    found = await sent(queue)
    assert {(one.event, one.object_id, one.url) for one in found} == {
        ("batch.failed", id_, URL), ("batch.failed", id_, "https://all.example/"),
    }  # fmt: skip
    assert len(found) == 2


async def test_jobs_of_batches_are_not_told_of(queue: Queue, pool: Pool, fanout: Fanout, webhooks: Webhooks) -> None:
    await webhooks.create("ann", URL)
    await ended(queue, pool, batch_id="batch_1")
    await fanout.jobs(pool)
    assert await sent(queue) == []


async def test_other_endpoints_learn_that_one_was_disabled(queue: Queue, pool: Pool, webhooks: Webhooks) -> None:
    dead, _ = await webhooks.create("ann", "https://dead.example/")
    other, _ = await webhooks.create("ann", "https://other.example/", events=["webhook_endpoint.disabled"])
    await webhooks.disable("ann", dead.id)
    sending = Sending("msg_1", "ann", dead.url, {}, (), b"{}", 1, 0, dead.id)
    alarm = Alarm(queue, SETTINGS)
    await alarm(sending, "gone")
    await alarm(sending, "gone")  # told again
    (found,) = await sent(queue)
    assert (found.endpoint_id, found.event, found.object_id) == (other.id, "webhook_endpoint.disabled", dead.id)


async def test_hooks_to_one_origin_share_a_lane(queue: Queue) -> None:
    lane = lane_of("ann", "https://a.example/x?y")
    assert lane == lane_of("ann", "https://A.example:443/other")
    others = {
        lane_of("bob", "https://a.example/"),
        lane_of("ann", "http://a.example/"),
        lane_of("ann", "https://a.example:8443/"),
    }
    assert len(others | {lane}) == 4
