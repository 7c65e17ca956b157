"""What is due of the batches reaches Celery's broker, and is due again if nobody does it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dispatcher import tasks
from dispatcher.celery_app import create
from dispatcher.handing import Handing
from dispatcher.tasks import ADVANCE, COLLECT, define_batches
from fairlane.batches.work import AGAIN_S, BatchWork, Due
from fairlane.clock import ManualClock
from fairlane.files import Files
from fairlane.ids import SeededIds
from fairlane.model import Policy
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.settings import Settings
from tests.contract.acts import open_backend
from tests.contract.shop import Shop
from tests.servers import ValkeyServer


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as started:
        yield started


async def open_shop(server: ValkeyServer, folder: Path) -> Shop:
    queue = Queue(connect(server.url), clock=ManualClock(), ids=SeededIds())
    pool = await queue.pools.open("llama", Policy())
    await open_backend(queue, pool, "b1", 1000)
    return Shop(queue, pool, ManualClock(), folder)


async def handed_over(settings: Settings, shop: Shop) -> int:
    """How many messages wait after the handing over had some time."""
    app = create(settings)
    before = tasks.waiting(app, ADVANCE)
    handing = asyncio.create_task(Handing(shop.queue, settings).run())
    async with asyncio.timeout(20):
        while tasks.waiting(app, ADVANCE) == before and not handing.done():
            await asyncio.sleep(0.02)
    handing.cancel()
    await asyncio.wait([handing])
    return tasks.waiting(app, ADVANCE) - before


async def test_what_is_due_is_handed_over_once_and_again_when_it_is_due_again(
    server: ValkeyServer, tmp_path: Path
) -> None:
    shop = await open_shop(server, tmp_path)
    clock: Any = shop.queue.store._clock
    settings = Settings(redis_url=server.url)
    await shop.create(3)
    assert await handed_over(settings, shop) == 1
    assert not await shop.step()
    clock.advance(round(1000 * AGAIN_S))
    assert await handed_over(settings, shop) == 1
    await shop.queue.close()


async def taken(shop: Shop, batch: str) -> bool:
    """Whether somebody was told that it is due."""
    entries = await shop.queue.store.client.zrange("fl:{acct}:batches_handed:ann", 0, -1)
    return batch.encode() in entries


async def test_while_the_broker_is_away_nothing_is_lost(server: ValkeyServer, tmp_path: Path) -> None:
    shop = await open_shop(server, tmp_path)
    clock: Any = shop.queue.store._clock
    away = Settings(redis_url=server.url, celery_broker_url="redis://127.0.0.1:1/0")
    batch = await shop.create(1)
    handing = asyncio.create_task(Handing(shop.queue, away).run())
    async with asyncio.timeout(20):
        while not await taken(shop, batch.id):
            await asyncio.sleep(0.02)
    assert not await shop.step()
    handing.cancel()
    await asyncio.wait([handing])
    clock.advance(round(1000 * AGAIN_S))
    assert await shop.step()
    assert (await shop.view(batch)).status == "in_progress"
    await shop.queue.close()


def test_a_step_that_fails_does_not_end_the_worker(server: ValkeyServer, tmp_path: Path) -> None:
    app = create(Settings(redis_url=server.url))
    with asyncio.Runner() as runner:
        shop = runner.run(open_shop(server, tmp_path))
        define_batches(app, BatchWork(shop.queue, Files(shop.queue, str(tmp_path))), runner)
        known: Any = app.tasks
        known[COLLECT]("none")  # no such pool
        known[ADVANCE]("batch_none")
        runner.run(shop.queue.close())
        known[ADVANCE]("batch_none")  # Redis is away


async def test_messages_do_not_pile_up_while_no_worker_takes_them(
    server: ValkeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MOST_WAITING", 3)
    settings = Settings(redis_url=server.url, namespace="piled")
    app = create(settings)
    for _ in range(5):
        tasks.send(app, Due(["batch_1"], ["pool"]))
    assert tasks.waiting(app, ADVANCE) == 4


async def test_collecting_comes_before_all_that_waits(server: ValkeyServer) -> None:
    """Outcomes fill Redis until they are collected. What is sent first comes first else."""
    app: Any = create(Settings(redis_url=server.url, namespace="first"))
    tasks.send(app, Due(["batch_1", "batch_2"], []))
    tasks.send(app, Due([], ["pool"]))
    came: list[str] = []
    with app.connection() as connection:
        queue = app.amqp.queues["first.batches"](connection)
        consumer = app.amqp.TaskConsumer(connection.channel(), [queue], no_ack=True)
        consumer.callbacks = [lambda body, _: came.append(body[0][0])]
        consumer.qos(prefetch_count=1)
        consumer.consume()
        while len(came) < 3:
            connection.drain_events(timeout=10)
    assert came == ["pool", "batch_1", "batch_2"]
