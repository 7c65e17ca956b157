"""What dispatchers agree on among themselves: who observes, who sweeps, and who is there at all."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from itertools import repeat
from typing import Any, get_args

import anyio
import pytest

from fairlane.clock import ManualClock, RedisClock
from fairlane.errors import InvalidRequest
from fairlane.model import Role
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.standing import DispatcherView
from tests.contract.acts import another_process

pytestmark = pytest.mark.usefixtures("invariants")


@pytest.mark.parametrize("role", get_args(Role))
async def test_one_at_a_time_has_a_role(queue: Queue, pool: Pool, clock: ManualClock, role: Role) -> None:
    assert await queue.elect(pool, role, "d1", 2_000)
    assert not await queue.elect(pool, role, "d2", 2_000)
    clock.advance(1_900)
    assert await queue.elect(pool, role, "d1", 2_000), "its holder prolongs it"
    clock.advance(1_900)
    assert not await queue.elect(pool, role, "d2", 2_000)
    clock.advance(100)
    assert await queue.elect(pool, role, "d2", 2_000), "its holder fell silent"
    assert not await queue.elect(pool, role, "d1", 2_000)


async def test_the_roles_and_the_pools_are_apart(queue: Queue, pool: Pool, target: Pool) -> None:
    assert await queue.elect(pool, "observer", "d1", 2_000)
    assert await queue.elect(pool, "sweeper", "d2", 2_000)
    assert await queue.elect(target, "observer", "d3", 2_000)


async def test_who_resigns_can_be_followed_at_once(queue: Queue, pool: Pool) -> None:
    await queue.elect(pool, "observer", "d1", 2_000)
    await queue.resign(pool, "observer", "d2")
    assert not await queue.elect(pool, "observer", "d3", 2_000), "only its holder can give it up"
    await queue.resign(pool, "observer", "d1")
    await queue.resign(pool, "observer", "d1")
    assert await queue.elect(pool, "observer", "d3", 2_000)


async def test_of_twenty_who_ask_at_once_one_is_elected(queue: Queue, pool: Pool) -> None:
    elected = await asyncio.gather(*(queue.elect(pool, "observer", f"d{n}", 2_000) for n in range(20)))
    assert elected.count(True) == 1


async def test_a_role_ends_by_the_time_of_redis(queue: Queue, pool: Pool) -> None:
    real = another_process(queue, RedisClock())
    began = time.monotonic()
    assert await real.elect(pool, "observer", "d1", 30)
    with anyio.fail_after(5):
        for _ in repeat(None):
            if await real.elect(pool, "observer", "d2", 60_000):
                break
            await anyio.sleep(0.001)
    assert time.monotonic() - began > 0.028  # a millisecond may be cut off at both ends


@pytest.mark.parametrize("ttl_ms", [0, -1, 3_600_001, True])
async def test_a_role_is_held_for_a_while_only(queue: Queue, pool: Pool, ttl_ms: Any) -> None:
    with pytest.raises(InvalidRequest):
        await queue.elect(pool, "observer", "d1", ttl_ms)


async def test_who_was_heard_lately_is_listed(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    assert await queue.inspect.dispatchers(pool) == []
    await queue.beat(pool, "d1", '{"leases": 1}')
    await queue.beat(pool, "d2", "{}")
    clock.advance(20_000)
    await queue.beat(pool, "d1", '{"leases": 2}')
    now = clock.now_ms()
    d1, d2 = DispatcherView("d1", now, '{"leases": 2}', 0), DispatcherView("d2", now - 20_000, "{}", 20_000)
    assert await queue.inspect.dispatchers(pool) == [d2, d1]
    clock.advance(10_000)
    assert await queue.inspect.dispatchers(pool) == [replace(d1, silent_ms=10_000)], "the other fell silent"
    clock.advance(20_000)
    assert await queue.inspect.dispatchers(pool) == []


async def test_who_fell_silent_is_forgotten(queue: Queue, pool: Pool, clock: ManualClock, client: Any) -> None:
    for n in range(40):
        await queue.beat(pool, f"old{n}", "{}")
    clock.advance(30_000)
    for _ in range(3):
        await queue.beat(pool, "new", "{}")
    assert await client.hkeys(pool.key("dispatchers")) == [b"new"]
    assert await client.zcard(pool.key("beats")) == 1


@pytest.mark.parametrize("info", ["", "no JSON", '"' + "x" * 1023 + '"', '"\ud800"'])
async def test_what_a_dispatcher_says_is_small_json(queue: Queue, pool: Pool, info: str) -> None:
    with pytest.raises(InvalidRequest):
        await queue.beat(pool, "d1", info)


async def test_a_dispatcher_has_a_proper_name(queue: Queue, pool: Pool) -> None:
    with pytest.raises(InvalidRequest):
        await queue.beat(pool, "d 1", "{}")
    with pytest.raises(InvalidRequest):
        await queue.elect(pool, "sweeper", "", 1000)
