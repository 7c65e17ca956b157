"""Who waits does not notice that the front door, or Redis, went away and came back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane import AsyncClient, WaitTimeout
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.settings import Settings
from tests.client.doors import free_socket, serving
from tests.contract.acts import take
from tests.dispatcher.scripted import in_state

JOB: dict[str, Any] = {"model": "llama", "prompt": "x"}


async def test_a_wait_outlives_the_front_door(queue: Queue, pool: Pool) -> None:
    from producer.api.app import create_app

    def door() -> Any:
        return create_app(Settings(auth="open"), queue=queue)

    with free_socket() as first:
        port = first.getsockname()[1]
        async with AsyncClient(f"http://127.0.0.1:{port}") as client:
            async with serving(door(), first):
                handle = await client.submit(**JOB)
                results = asyncio.create_task(handle.result(20))
                other = asyncio.create_task(anext(client.as_completed([client.get(handle.id)], timeout=20)))
                await asyncio.sleep(0.1)  # they are at it
            assert not results.done()
            (lease,) = await take(queue, pool)
            await queue.settle(pool, lease, "succeeded", status=200, result=b'{"a": 1}')
            with pytest.raises(WaitTimeout, match="cannot be reached"):
                await client.get(handle.id).wait(0.3)
            async with serving(door(), free_socket(port)):
                assert await results == {"a": 1}
                assert (await other).id == handle.id


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # redis-py drops what was killed unclosed
async def test_a_wait_outlives_a_lost_connection_to_redis(
    valkey: Any, queue: Queue, pool: Pool, namespace: str
) -> None:
    async with AsyncClient(valkey.url, namespace=namespace) as client:
        handle = await client.submit(**JOB)
        waiting = asyncio.create_task(handle.result(20))
        (lease,) = await take(queue, pool)
        await in_state(queue, handle.id, "leased")
        with valkey.client() as redis:
            redis.client_kill_filter(_type="pubsub")
            redis.client_kill_filter(_type="normal", skipme=True)
        await queue.settle(pool, lease, "succeeded", status=200, result=b'{"a": 1}')
        assert await waiting == {"a": 1}
