"""Redis has a bound, and so has what Fairlane keeps there: when it is full, what was accepted stays and drains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import FairlaneError, StoreFull
from fairlane.model import BackendSpec, JobError, Lease, Policy, Settlement
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import NOTHING_COUNTED, open_backend, spec, submit, take, take_one
from tests.contract.invariants import check_invariants, note_events, note_finished
from tests.contract.shop import Shop, good
from tests.servers import RedisServer, Server, ValkeyServer, redis_binary

SERVERS = [
    pytest.param(ValkeyServer, id="valkey"),
    pytest.param(
        RedisServer,
        id="redis",
        marks=pytest.mark.skipif(
            redis_binary() is None, reason="redis-server is not installed; `make check` requires it"
        ),
    ),
]
SPARE_BYTES = 1 << 20
TIMEOUT = JobError("timeout", "It took too long.")


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with request.param() as started:
        yield started


async def fill(queue: Queue, pool: Pool) -> list[str]:
    """Submits jobs until Redis takes no more; returns those that it took."""
    ids: list[str] = []
    while True:
        for answer in await queue.submit_many(pool, [spec(f"t{n}", body=b"x" * 2000) for n in range(10)]):
            if isinstance(answer, StoreFull):
                assert answer.retry_after
                return ids
            assert not isinstance(answer, FairlaneError)
            ids.append(answer.id)


async def test_who_starts_while_it_is_full_can_work_on_what_is_there(server: Server) -> None:
    """Else a worker that is started again could not help to drain it."""
    queue = Queue(connect(server.url))
    await queue.check()
    pool = await queue.pools.open("llama", Policy())
    await open_backend(queue, pool, "b1", 10)
    await submit(queue, pool)
    await queue.close()
    with server.client() as client:
        client.config_set("maxmemory", 1)
    started = await Queue.open(server.url)
    (lease,) = await take(started, await started.pools.by_name("llama"))
    await started.settle(pool, lease, "succeeded", status=200, result=b"{}")
    await started.close()


async def test_a_full_server_refuses_new_jobs_and_lets_go_on_what_it_has(server: Server) -> None:
    """Case 27."""
    queue = Queue(connect(server.url))
    pool = await queue.pools.open("llama", Policy())
    await open_backend(queue, pool, "b1", 1000)
    with server.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] + SPARE_BYTES)
    ids = await fill(queue, pool)
    assert len(ids) > 100
    result = b"y" * 4000

    async def end(lease: Lease, way: int) -> None:
        match way:
            case 0 if lease.token < 3:
                await queue.release(pool, lease)
            case 1:
                await queue.retry(pool, lease, TIMEOUT, delay_ms=0, result=result)
            case 2:
                assert await queue.cancel(lease.id) == "cancelled"
                assert await queue.renew(pool, [lease]) == ["cancelled"]
                await queue.release(pool, lease)
            case 3:
                await queue.settle_many(pool, [Settlement(lease, "succeeded", 200, result)] * 2)
            case _:
                await queue.settle(pool, lease, "succeeded", status=200, result=result)

    call = 0
    while leases := await queue.acquire(pool, "d", call := call + 1, 20):
        assert await queue.renew(pool, leases) == ["ok"] * len(leases)
        for n, lease in enumerate(leases):
            await end(lease, n)
        await queue.sweep(pool)
        await queue.observe(pool, "b1", {}, counted=NOTHING_COUNTED)
        with pytest.raises(StoreFull):
            await queue.submit(pool, spec(body=b"x" * 2000))
    for id_ in ids:
        assert (await queue.inspect.job(id_)).finished_at_ms
    await check_invariants(queue, pool)
    with server.client() as client:
        client.config_set("maxmemory", 0)
    await queue.submit(pool, spec())
    await queue.close()


async def test_on_a_full_server_the_rest_goes_on_too(server: Server) -> None:
    queue = Queue(connect(server.url))
    pool = await queue.pools.open("llama", Policy())
    await open_backend(queue, pool, "b1", 1000)
    with server.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] + SPARE_BYTES)
    target = await queue.pools.open("mistral", Policy())
    first, second, moved, *_ = await fill(queue, pool)
    for scope in ({}, {"tier": "flex"}, {"tenant": "t1"}):
        assert await queue.pause(pool, **scope)
        assert await queue.resume(pool, **scope)
    await queue.set_backend(pool, "b1", "down")
    await queue.set_backend(pool, "b1", "undrain")
    await queue.set_backend(pool, "b1", "add", spec=BackendSpec("http://localhost:8000"))
    for _ in range(2):
        assert await queue.elect(pool, "sweeper", "d1", 2_000)
    await queue.resign(pool, "sweeper", "d1")
    await queue.beat(pool, "d1", "{}")
    await queue.steer(pool, 0.1, "{}")
    assert (await queue.set_policy(pool, {"valve_ms": 5}, by="ops")).policy.valve_ms == 5
    assert len(await queue.inspect.dispatchers(pool)) == 1
    assert await queue.retier(pool, [first, second], "flex") == [None, None]
    assert await queue.cancel(first) == "cancelled"
    assert await queue.cancel(second) == "cancelled"
    await queue.move(moved, target)
    assert (await queue.inspect.job(moved)).pool == "mistral"
    dead: list[str] = []
    while not dead:
        lease = await take_one(queue, pool)
        if await queue.retry(pool, lease, TIMEOUT, delay_ms=0) == "failed":
            dead.append(lease.id)
    assert await queue.requeue(dead[0]) == "queued"
    for place in (pool, target):
        await check_invariants(queue, place)
    await queue.close()


@pytest.mark.parametrize("store", ["valkey", "redis", "cluster"], indirect=True)
async def test_the_list_of_finished_jobs_stays_bounded(queue: Queue, pool: Pool) -> None:
    """Case 27."""
    await note_finished(queue, pool, 12_345)
    await queue.sweep(pool)
    _, cursor = await queue.inspect.index(pool, "done", 9_000, limit=1000)
    assert cursor is not None
    assert await queue.inspect.index(pool, "done", cursor) == ([], None)


@pytest.mark.parametrize("store", ["valkey", "redis", "cluster"], indirect=True)
async def test_events_that_nobody_reads_stay_bounded(queue: Queue, pool: Pool, client: Any) -> None:
    """Case 27."""
    await note_events(queue, pool, 101_000)
    await queue.sweep(pool)
    assert 100_000 <= await client.xlen(pool.key("events")) < 101_000


async def test_a_server_that_is_full_of_a_batchs_answers_is_emptied(server: Server, tmp_path: Path) -> None:
    """Nobody else frees it: what collects must go on, and the batch comes to its end."""
    clock = ManualClock()
    queue = Queue(connect(server.url), clock=clock)
    pool = await queue.pools.open("llama", Policy())
    await open_backend(queue, pool, "b1", 1000)
    shop = Shop(queue, pool, clock, tmp_path)
    batch = await shop.create(100)
    await shop.steps(1)
    answer = b'"%s"' % (b"y" * 20_000)
    with server.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] + SPARE_BYTES)
    await shop.answer(100, lambda lease: Settlement(lease, "succeeded", 200, answer))
    with pytest.raises(StoreFull):
        await submit(queue, pool, "bob")
    await shop.work.tend()
    await submit(queue, pool, "bob")
    assert (await shop.view(batch)).completed == 100
    await queue.close()


async def test_a_batch_ends_while_a_server_is_full_of_others_work(server: Server, tmp_path: Path) -> None:
    clock = ManualClock()
    queue = Queue(connect(server.url), clock=clock)
    pool = await queue.pools.open("llama", Policy())
    await open_backend(queue, pool, "b1", 1000)
    shop = Shop(queue, pool, clock, tmp_path)
    batch = await shop.create(20)
    await shop.steps(1)
    leases = await take(queue, pool, 20)
    with server.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] + SPARE_BYTES)
    await fill(queue, pool)
    await queue.settle_many(pool, map(good, leases))
    with server.client() as client:
        client.config_set("maxmemory", 1)
    await shop.steps()
    assert (await shop.results(batch))[0].completed == 20
    await queue.close()
