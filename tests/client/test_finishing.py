"""Many jobs out: each once, as they finish, with few waits at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane import AsyncClient, WaitTimeout
from fairlane.errors import ModelNotFound
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from producer.client.direct import RedisTransport
from producer.client.http import HttpTransport
from tests.contract.acts import take
from tests.dispatcher.scripted import until

JOB: dict[str, Any] = {"model": "llama", "prompt": "x"}
SOON_S = 10.0


@pytest.fixture(params=["few", "enough"])
def waits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer waits than jobs, and with enough."""
    if request.param == "few":
        monkeypatch.setattr(HttpTransport, "most_waits", 3)
        monkeypatch.setattr(RedisTransport, "most_waits", 3)


@pytest.mark.usefixtures("waits", "worker")
async def test_each_job_comes_once(client: AsyncClient) -> None:
    handles = await client.submit_many([JOB] * 60)
    seen = [handle async for handle in client.as_completed(handles, timeout=SOON_S)]
    assert len(seen) == 60
    assert set(seen) == set(handles)
    assert {(await handle.wait(0)).state for handle in seen} == {"succeeded"}


@pytest.mark.usefixtures("waits")
async def test_jobs_come_in_the_order_in_which_they_finish(client: AsyncClient, queue: Queue, pool: Pool) -> None:
    handles = await client.submit_many([JOB] * 6)
    leases = {lease.id: lease for lease in await take(queue, pool, 6)}
    finishing = client.as_completed(handles, timeout=SOON_S)
    for n in (5, 2, 0, 4, 1, 3):
        await queue.settle(pool, leases[handles[n].id], "succeeded", status=200, result=b"{}")
        assert await anext(finishing) is handles[n]
    assert [handle async for handle in finishing] == []


async def test_whoever_cannot_be_waited_for_comes_too(client: AsyncClient) -> None:
    handles = [*await client.submit_many([{"model": "none", "prompt": "x"}]), client.get("job_none")]
    done = await client.submit(**JOB)
    await done.cancel()
    seen = [handle async for handle in client.as_completed([*handles, done, done], timeout=SOON_S)]
    assert sorted(map(repr, seen)) == sorted(map(repr, [*handles, done, done]))
    assert isinstance(handles[0].error, ModelNotFound)
    assert [handle async for handle in client.as_completed([])] == []


async def test_the_time_is_for_all_of_them(client: AsyncClient) -> None:
    first, second = await client.submit_many([JOB, JOB])
    await first.cancel()
    finishing = client.as_completed([first, second], timeout=0.3)
    assert await anext(finishing) is first
    with pytest.raises(WaitTimeout, match="1 of 2"):
        await anext(finishing)


async def test_who_leaves_early_leaves_nothing_behind(client: AsyncClient) -> None:
    handles = await client.submit_many([JOB] * 5)
    await handles[4].cancel()
    before = asyncio.all_tasks()
    finishing = client.as_completed(handles)
    assert await anext(finishing) is handles[4]
    await finishing.aclose()

    async def gone() -> bool:
        return asyncio.all_tasks() <= before

    await until(gone)


async def test_a_client_that_is_closed_waits_for_nobody(client: AsyncClient) -> None:
    handle = await client.submit(**JOB)
    await client.close()
    with pytest.raises(RuntimeError, match="closed"):
        await anext(client.as_completed([handle]))
    with pytest.raises(RuntimeError, match="closed"):
        await handle.status()
