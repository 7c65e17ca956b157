"""Deliveries that are due reach Celery's broker, and are given out only if they do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

from dispatcher import tasks
from dispatcher.celery_app import DELIVER, create
from dispatcher.handing import Handing
from dispatcher.tasks import define_webhooks
from fairlane.queue.engine import Queue
from fairlane.settings import Settings
from fairlane.webhooks.delivery import NewDelivery, Own
from fairlane.webhooks.outbox import Outbox
from tests.servers import ValkeyServer

LEASE_MS: Final = 30_000


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as started:
        yield started


def deliveries(n: int) -> list[NewDelivery]:
    """Each to a receiver of its own."""
    return [
        NewDelivery(f"msg_{i}", "ann", f"adhoc_{i}", None, Own(f"http://r{i}.example/"), "job.succeeded", "j", b"{}")
        for i in range(n)
    ]


async def test_deliveries_that_are_due_are_handed_over_many_in_a_message(server: ValkeyServer) -> None:
    settings = Settings(redis_url=server.url, namespace="many")
    queue = await Queue.open(server.url, namespace="many")
    outbox = Outbox(queue.store)
    await outbox.add(deliveries(120))
    app: Any = create(settings)
    handing = asyncio.create_task(Handing(queue, settings).run())
    async with asyncio.timeout(20):
        while tasks.waiting(app, DELIVER) < 3:
            await asyncio.sleep(0.02)
    handing.cancel()
    await asyncio.wait([handing])
    assert await outbox.waiting() == 0
    given: list[tuple[str, int]] = []
    define_webhooks(app, given.extend)
    for arguments in messages(app, "many.webhooks", 3):
        app.tasks[DELIVER](*arguments)
    assert sorted(given) == sorted((one.id, 1) for one in deliveries(120))
    begun = [await outbox.begin(*pair, LEASE_MS) for pair in given]
    assert all(begun)
    await queue.close()


def messages(app: Any, queue: str, n: int) -> list[Any]:
    """The arguments of the next `n`."""
    came: list[Any] = []
    with app.connection() as connection:
        consumer = app.amqp.TaskConsumer(connection.channel(), [app.amqp.queues[queue](connection)], no_ack=True)
        consumer.callbacks = [lambda body, _: came.append(body[0])]
        consumer.qos(prefetch_count=1)
        consumer.consume()
        while len(came) < n:
            connection.drain_events(timeout=10)
    return came


async def test_no_delivery_is_given_out_while_the_broker_is_away_or_full(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await Queue.open(server.url, namespace="away")
    outbox = Outbox(queue.store)
    await outbox.add(deliveries(3))
    due = await outbox.waiting()
    assert due
    monkeypatch.setattr(tasks, "MOST_SENDING", 0)
    for settings in (
        Settings(redis_url=server.url, namespace="away"),
        Settings(redis_url=server.url, namespace="away", celery_broker_url="redis://127.0.0.1:1/0"),
    ):
        looked = asyncio.Event()
        monkeypatch.setattr("dispatcher.handing.log", Heard(looked))
        handing = asyncio.create_task(Handing(queue, settings).run())
        async with asyncio.timeout(20):
            await looked.wait()
        handing.cancel()
        await asyncio.wait([handing])
        assert await outbox.waiting() == due
    await queue.close()


class Heard:
    """A log that says that something was written to it."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event
        self._loop = asyncio.get_running_loop()

    def warning(self, *_: object, **__: object) -> None:
        self._loop.call_soon_threadsafe(self._event.set)
