"""The dispatchers as an operator sees them, and how one of them is drained."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import InvalidRequest, NotFound
from fairlane.queue.engine import Queue
from fairlane.queue.fleet import Dispatcher, Fleet, Post
from fairlane.queue.inspection import SILENT_MS
from fairlane.queue.pools import Pool
from tests.contract.acts import spec

pytestmark = pytest.mark.usefixtures("invariants")


@pytest.fixture
def fleet(queue: Queue) -> Fleet:
    return Fleet(queue)


def info(inflight: int, *roles: str) -> str:
    return json.dumps({"host": "box", "pid": 7, "inflight": inflight, "roles": roles})


async def test_a_process_that_serves_two_pools_is_one_dispatcher(
    queue: Queue, pool: Pool, target: Pool, clock: ManualClock, fleet: Fleet
) -> None:
    await queue.beat(pool, "d1", info(3, "sweeper"))
    clock.advance(1_000)
    await queue.beat(target, "d1", info(1))
    await queue.beat(pool, "d2", info(0, "observer"))
    first, second = await fleet.dispatchers()
    posts = Post("llama", 1_000, 3, ("sweeper",)), Post("mistral", 0, 1, ())
    assert first == Dispatcher("d1", "box", 7, False, posts)
    assert (first.inflight, first.silent_ms, first.roles) == (4, 0, ("sweeper",))
    assert second.name == "d2"
    assert await fleet.get("d2") == second


async def test_a_dispatcher_that_is_to_drain_hears_of_it_with_its_next_beat(
    queue: Queue, pool: Pool, fleet: Fleet
) -> None:
    for name in ("d1", "d2"):
        assert not await queue.beat(pool, name, info(0))
    await fleet.drain("d1")
    await fleet.drain("d1")
    assert [one.draining for one in await fleet.dispatchers()] == [True, False]
    for _ in range(2):
        assert await queue.beat(pool, "d1", info(0)), "said again, should an answer be lost"
        assert not await queue.beat(pool, "d2", info(0))


async def test_of_two_pools_both_tell_it(queue: Queue, pool: Pool, target: Pool, fleet: Fleet) -> None:
    for served in (pool, target):
        await queue.beat(served, "d1", info(0))
    await fleet.drain("d1")
    assert [await queue.beat(served, "d1", info(0)) for served in (pool, target)] == [True, True]


async def test_only_what_was_heard_lately_can_be_drained(
    queue: Queue, pool: Pool, clock: ManualClock, fleet: Fleet
) -> None:
    await queue.beat(pool, "d1", info(0))
    clock.advance(SILENT_MS)
    for name in ("d1", "d9"):
        with pytest.raises(NotFound):
            await fleet.drain(name)
    with pytest.raises(NotFound):
        await fleet.get("d1")
    with pytest.raises(InvalidRequest):
        await fleet.drain("d 1")


async def test_nothing_is_kept_of_one_that_has_ended(
    queue: Queue, pool: Pool, clock: ManualClock, fleet: Fleet, client: Any
) -> None:
    await queue.beat(pool, "d1", info(0))
    await fleet.drain("d1")
    clock.advance(SILENT_MS)
    await queue.beat(pool, "d2", info(0))
    assert not await client.exists(pool.key("drains"))


async def test_what_a_dispatcher_holds_is_listed_those_first_whose_lease_ends_first(
    queue: Queue, pool: Pool, clock: ManualClock, fleet: Fleet
) -> None:
    await queue.submit_many(pool, [spec("ann"), spec("bob"), spec("ann"), spec("bob")])
    (first,) = await queue.acquire(pool, "d1", 1, 1)
    clock.advance(1_000)
    rest = await queue.acquire(pool, "d2", 1, 3)
    held = await fleet.held(pool)
    assert [job.id for job in held.jobs] == [first.id, *(lease.id for lease in rest)]
    assert (held.looked, held.leases) == (4, 4)
    (one,) = (await fleet.held(pool, "d1")).jobs
    assert (one.tenant, one.tier, one.backend, one.dispatcher, one.pool) == ("ann", "default", "b1", "d1", "llama")
    assert (one.since_ms, one.until_ms) == (clock.now_ms() - 1_000, first.until_ms)
    assert len((await fleet.held(pool, "d2", most=2)).jobs) == 2


async def test_whose_tenants_are_named_sees_no_others(queue: Queue, pool: Pool, fleet: Fleet) -> None:
    await queue.submit_many(pool, [spec("ann"), spec("bob"), spec("cho")])
    await queue.acquire(pool, "d1", 1, 3)
    assert {job.tenant for job in (await fleet.held(pool, "d1", ["bob", "cho"])).jobs} == {"bob", "cho"}
    assert (await fleet.held(pool, "d1", [])).jobs == ()


@pytest.mark.parametrize("said", ["1", "[]", "{}", '"d"'])
async def test_a_dispatcher_of_another_make_is_shown_too(queue: Queue, pool: Pool, fleet: Fleet, said: str) -> None:
    await queue.beat(pool, "d1", said)
    (one,) = await fleet.dispatchers()
    assert (one.host, one.pid, one.inflight) == ("", None, 0)
