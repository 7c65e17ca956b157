"""A pool's history, and its tenants side by side: kept small, added up where a step is longer, read in one go."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import InvalidRequest
from fairlane.model import Limits, TierGate
from fairlane.queue.engine import SERVED_MS, Queue
from fairlane.queue.pools import Pool
from fairlane.standing import Standing, gate_now
from fairlane.trend import STEPS, Point, Served, ServedTenant, ServiceGap, Span, TierPoint
from tests.contract.acts import another_process, set_gates, submit, take

pytestmark = pytest.mark.usefixtures("invariants")

SERVED = Served(
    5, 60.0, "tokens", 7, 90, (ServedTenant("ann", 7, 90, 7.0, 5.0),), (ServiceGap("flex", 4.0, "ann", "b"),)
)


def seen(depth: int, came: int = 0, **waits: int) -> Point:
    tier = TierPoint(
        depth=depth, oldest_ms=100 * depth, inflight=1, came=came, ended=came, tokens=10 * came, waits={3: 1}
    )
    return Point(0, 5.0, {"default": tier}, slots=8, busy=0.5, gamma=0.1 * depth, replicas=2)


def on_the_hour(clock: ManualClock) -> int:
    """Sets the clock to where a step of every length begins."""
    longest = max(step.s for step in STEPS.values()) * 1000
    clock.advance(longest - clock.now_ms() % longest)
    return clock.now_ms()


async def test_a_longer_step_holds_the_sum_or_the_largest_of_its_points(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    began = on_the_hour(clock)
    for depth, came in ((3, 10), (9, 20), (1, 30)):
        await queue.record(pool, seen(depth, came), SERVED)
        clock.advance(5_000)
    fine = await another_process(queue).inspect.trend(pool, "15m")
    assert [(point.at_ms, point.tiers["default"].depth) for point in fine] == [
        (began, 3),
        (began + 5_000, 9),
        (began + 10_000, 1),
    ]
    for span in ("6h", "7d"):
        (point,) = await queue.inspect.trend(pool, span)
        assert point.tiers["default"] == TierPoint(9, 900, 1, 60, 60, 600, {3: 3})
        assert (point.at_ms, point.took_s, point.busy, point.slots, point.replicas) == (began, 15.0, 0.5, 8, 2)
        assert point.gamma == pytest.approx(0.1), "the last"
        assert point.per_s(point.tiers["default"].came) == 4.0


async def test_the_history_is_bounded(queue: Queue, pool: Pool, clock: ManualClock, client: Any) -> None:
    """Whatever time passes, each step keeps so many points, the newest."""
    on_the_hour(clock)
    spans: tuple[Span, ...] = ("15m", "6h", "7d")
    for span in spans:
        step = STEPS[span]
        for n in range(step.kept + 3):
            await queue.record(pool, seen(n), SERVED)
            clock.advance(1000 * step.s)
        points = await queue.inspect.trend(pool, span)
        assert [point.tiers["default"].depth for point in points] == list(range(3, step.kept + 3))
    for step in STEPS.values():
        assert await client.zcard(pool.key("trend", str(step.s))) <= step.kept
    assert len(await queue.inspect.last_minute(pool)) == 12


async def test_without_an_observer_there_is_no_history(queue: Queue, pool: Pool) -> None:
    assert await queue.inspect.trend(pool, "7d") == await queue.inspect.last_minute(pool) == []
    assert await queue.inspect.served(pool) is None


async def test_who_was_served_is_said_until_nobody_says_so_any_more(queue: Queue, pool: Pool, client: Any) -> None:
    await queue.record(pool, seen(1), SERVED)
    assert await queue.inspect.served(pool) == SERVED
    assert 0 < await client.pttl(pool.key("served")) <= SERVED_MS


async def test_tenants_side_by_side_with_what_holds_each(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    began = clock.now_ms()
    slots, slow, tokens = Limits(2.0, max_inflight=1), Limits(requests_per_minute=6), Limits(tokens_per_minute=60)
    await queue.set_limits(pool, "slots", slots)
    await queue.set_limits(pool, "slow", slow)
    await queue.set_limits(pool, "tokens", tokens)
    for tenant in ("ann", "slots", "slow", "tokens"):
        await submit(queue, pool, tenant, n=3, input_tokens=50)
    clock.advance(10)
    await submit(queue, pool, "paused", "flex")
    await submit(queue, pool, "ann", "flex")
    await queue.pause(pool, tenant="paused")
    leases = await take(queue, pool, 6)
    assert {lease.tenant for lease in leases} == {"ann", "slots", "slow", "tokens"}
    ann, paused, slots_now, slow_now, tokens_now, nobody = await queue.inspect.standings(
        pool, ["ann", "paused", "slots", "slow", "tokens", "nobody"]
    )
    assert (ann.waiting, ann.inflight, ann.held_by, ann.oldest_ms) == (1, 3, None, {"flex": began + 10})
    assert paused == Standing("paused", Limits(), 1, 0, "paused", None, {"flex": began + 10})
    assert slots_now == Standing("slots", slots, 2, 1, "inflight", None, {"default": began})
    assert (slow_now.held_by, slow_now.held_until_ms) == ("requests", began + 10_010)
    assert tokens_now.held_by == "tokens"
    assert tokens_now.held_until_ms is not None
    assert tokens_now.held_until_ms > clock.now_ms()
    assert nobody == Standing("nobody", Limits(), 0, 0, None, None, {})


async def test_so_many_tenants_are_looked_at_at_once(queue: Queue, pool: Pool) -> None:
    assert len(await queue.inspect.standings(pool, [f"t{n}" for n in range(200)])) == 200
    assert await queue.inspect.standings(pool, []) == []
    with pytest.raises(InvalidRequest, match="200"):
        await queue.inspect.standings(pool, [f"t{n}" for n in range(201)])


async def test_the_tenants_to_look_at_are_those_that_wait_longest_in_each_tier_and_those_that_are_held(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    for tenant in ("a", "b", "c"):
        await submit(queue, pool, tenant)
        await submit(queue, pool, f"flex-{tenant}", "flex")
        clock.advance(1)
    await queue.pause(pool, tenant="idle")
    assert await queue.inspect.notable(pool, 3) == ["a", "flex-a", "b"]
    everybody = await queue.inspect.notable(pool, 100)
    assert everybody == ["a", "flex-a", "b", "flex-b", "c", "flex-c", "idle"]


@pytest.mark.parametrize("live", [0, 1, 2, 5])
@pytest.mark.parametrize("how", ["fresh", "stale", "down", "draining", "new"])
async def test_the_gate_now_is_what_a_pop_would_hear(
    queue: Queue, pool: Pool, clock: ManualClock, live: int, how: str
) -> None:
    job, *_ = await submit(queue, pool, "bob", "flex")
    await submit(queue, pool, n=live)
    assert len(await take(queue, pool, live)) == live if live else True
    if how != "new":
        await set_gates(queue, pool, "b1", {"flex": TierGate(2, 1, "kv")})
    clock.advance(pool.policy.stale_ms + 1 if how == "stale" else 0)
    if how in ("down", "draining"):
        await queue.set_backend(pool, "b1", "down" if how == "down" else "drain")
    glance = await queue.inspect.overview(pool)
    assert glance.now_ms == clock.now_ms()
    (told,) = (await queue.inspect.explain(job)).gates
    reason, limit = gate_now(glance.backends[0], "flex", pool.policy.stale_ms, glance.now_ms)
    assert (reason, limit, glance.backends[0].counts.live) == (told.reason, told.limit, told.live)
    assert math.isfinite(limit)
