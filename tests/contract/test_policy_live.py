"""A pool's policy changes while everything runs: checked as a whole, versioned, obeyed by the very next pop."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from fairlane.accounts import Caller
from fairlane.clock import ManualClock
from fairlane.errors import IllegalTransition, InvalidRequest
from fairlane.model import DEFAULT_TIERS, Limits, Policy
from fairlane.queue import pools
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.safe_url import Guard
from fairlane.standing import PolicyChange
from producer.intake import Intake, JobRequest
from tests.contract.acts import (
    another_process,
    drain,
    finish,
    open_backend,
    set_gate,
    state_of,
    submit,
    take,
    take_one,
    tenants_of,
)
from tests.contract.test_signals import Ear

pytestmark = pytest.mark.usefixtures("invariants")
WITH_NIGHT = (*DEFAULT_TIERS, "night")


# --- what a change is -------------------------------------------------------------------------------------------------


async def test_a_change_has_a_version_and_says_who_when_and_what(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    assert (pool.version, await queue.inspect.policy_history(pool)) == (0, [])
    first = await queue.set_policy(pool, {"theta": "4,2,1", "gamma": "0.5", "reserve": 0}, by="ops@example.com")
    clock.advance(1000)
    second = await queue.set_policy(pool, {"gamma": None, "valve_ms": 30_000, "affinity": "prefix"}, by="ann")
    assert first.policy == Policy(theta=(4, 2, 1), gamma=0.5, reserve=0.0)
    assert second.policy == replace(first.policy, gamma=None, valve_ms=30_000, affinity="prefix")
    assert (first.version, second.version) == (1, 2)
    latest = {"gamma": ("0.5", "auto"), "valve_ms": ("60000", "30000"), "affinity": ("none", "prefix")}
    earlier = {"theta": ("3,2,1", "4,2,1"), "gamma": ("auto", "0.5"), "reserve": ("0.2", "0.0")}
    assert await queue.inspect.policy_history(pool) == [
        PolicyChange(2, clock.now_ms(), "ann", latest),
        PolicyChange(1, clock.now_ms() - 1000, "ops@example.com", earlier),
    ]
    assert await another_process(queue).pools.by_name("llama") == second
    assert (await queue.inspect.load(pool)).version == 2


async def test_what_changes_nothing_is_no_change(queue: Queue, pool: Pool) -> None:
    assert await queue.set_policy(pool, {"valve_ms": "60000", "slow_ms": 150}, by="ops") == pool
    assert await queue.inspect.policy_history(pool) == []


WRONG = [
    ("tiers", ""), ("tiers", "a,a"), ("tiers", ["Upper"]), ("tiers", [f"t{n}" for n in range(11)]), ("tiers", 1),
    ("fairness", "luck"), ("affinity", "sticky"), ("lease_ms", "0"), ("lease_ms", "1.5"), ("lease_ms", True),
    ("valve_ms", -1), ("gamma", "fast"), ("gamma", -0.1), ("gamma", "nan"), ("gamma", 1e9), ("boost_max_ms", 3),
    ("theta", "1,2"), ("theta", "-1"), ("theta", []), ("theta", "3,x"), ("theta", [1.5]), ("theta", 3),
    ("reserve", "0.91"), ("reserve", "nan"), ("decay", -1), ("kv_most", 0), ("kv_most", 1.01), ("slow_ms", "inf"),
    ("slow_ms", 0), ("max_waiting_pool", None), ("speed", "1"), ("reserve", 10**400), ("lease_ms", 1),
    ("lease_ms", 3_600_001), ("result_ttl_ms", 999), ("dead_ttl_ms", "1"),
]  # fmt: skip


@pytest.mark.parametrize("store", ["fakeredis"], indirect=True)
@pytest.mark.parametrize(("name", "value"), WRONG)
async def test_what_makes_no_sense_is_refused_by_its_name(queue: Queue, pool: Pool, name: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=name) as refused:
        await queue.set_policy(pool, {"valve_ms": "5", name: value}, by="ops")
    assert refused.value.param == name
    assert await another_process(queue).pools.by_name("llama") == pool


@pytest.mark.parametrize("store", ["fakeredis"], indirect=True)
async def test_settings_are_judged_together(queue: Queue, pool: Pool) -> None:
    """A reserve that four tiers can afford leaves ten of them no room."""
    await queue.set_policy(pool, {"reserve": "0.5"}, by="ops")
    many = ",".join([*DEFAULT_TIERS, *(f"t{n}" for n in range(6))])
    with pytest.raises(InvalidRequest, match="lowest of 10 tiers"):
        await queue.set_policy(pool, {"tiers": many}, by="ops")
    await queue.set_policy(pool, {"tiers": many, "reserve": "0.2"}, by="ops")
    await queue.set_policy(pool, {"tiers": ",".join(DEFAULT_TIERS)}, by="ops")


@pytest.mark.parametrize("store", ["fakeredis"], indirect=True)
async def test_a_wrong_name_gets_the_right_one(queue: Queue, pool: Pool) -> None:
    with pytest.raises(InvalidRequest, match="Did you mean valve_ms"):
        await queue.set_policy(pool, {"valve": "5"}, by="ops")
    for nobody in ("", "a\nb", "x" * 129):
        with pytest.raises(InvalidRequest, match="who"):
            await queue.set_policy(pool, {"valve_ms": "5"}, by=nobody)


async def test_of_those_who_change_it_at_once_nobody_undoes_another(queue: Queue, pool: Pool) -> None:
    changes = [{"valve_ms": 5}, {"theta": "2"}, {"kv_most": 0.5}, {"slow_ms": 90}]
    others = [another_process(queue) for _ in changes]
    await asyncio.gather(*(o.set_policy(pool, c, by="ops") for o, c in zip(others, changes, strict=True)))
    now = await queue.pools.read(pool.code)
    assert now.policy == Policy(valve_ms=5, theta=(2,), kv_most=0.5, slow_ms=90.0)
    assert [change.version for change in await queue.inspect.policy_history(pool)] == [4, 3, 2, 1]


@pytest.mark.parametrize("store", ["valkey"], indirect=True)
async def test_the_last_hundred_changes_are_kept(queue: Queue, pool: Pool) -> None:
    for n in range(1, 104):
        await queue.set_policy(pool, {"valve_ms": n}, by="ops")
    history = await queue.inspect.policy_history(pool)
    assert [change.version for change in history] == list(range(103, 3, -1))


async def test_all_are_told(queue: Queue, pool: Pool) -> None:
    ear = Ear()
    async with queue.signals() as signals, signals.listen(pool.key("control"), ear):
        await queue.set_policy(pool, {"valve_ms": 5}, by="ops")
        assert await ear.next() == "policy"


# --- who obeys it, and when -------------------------------------------------------------------------------------------


async def test_the_next_pop_obeys_it_also_in_a_process_that_knows_the_old_one(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    await submit(queue, pool, n=2)
    assert (await take_one(queue, pool)).until_ms == clock.now_ms() + 30_000
    await another_process(queue).set_policy(pool, {"lease_ms": 5_000}, by="ops")
    assert (await take_one(queue, pool)).until_ms == clock.now_ms() + 5_000


async def test_the_next_pop_uses_the_new_valve(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool, tier="priority", n=40)
    await submit(queue, pool, tier="batch")
    clock.advance(30_000)
    before = await take(queue, pool, 16)
    assert {lease.tier for lease in before} == {"priority"}
    await queue.set_policy(pool, {"valve_ms": 10_000}, by="ops")
    assert "batch" in {lease.tier for lease in await take(queue, pool, 16)}


async def test_the_next_pop_uses_the_new_fairness(queue: Queue, pool: Pool) -> None:
    """By requests two tenants alternate; by tokens the one whose requests are short gets more of them."""
    await submit(queue, pool, "long", n=60, output_tokens=1000)
    await submit(queue, pool, "short", n=60, output_tokens=100)
    turns = Counter(tenants_of(await take(queue, pool, 20)))
    assert turns == {"long": 10, "short": 10}
    await queue.set_policy(pool, {"fairness": "tokens"}, by="ops")
    turns = Counter(tenants_of(await take(queue, pool, 33)))
    assert turns["short"] >= 8 * turns["long"]


async def test_the_next_pop_uses_the_new_weight(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "ann", n=60)
    await submit(queue, pool, "bob", n=60)
    assert Counter(tenants_of(await take(queue, pool, 20))) == {"ann": 10, "bob": 10}
    await queue.set_limits(pool, "bob", Limits(weight=3))
    turns = Counter(tenants_of(await take(queue, pool, 40)))
    assert abs(turns["bob"] - 30) <= 2


async def test_the_next_submit_uses_the_new_bound(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, n=2)
    await queue.set_policy(pool, {"max_waiting_tenant": 2}, by="ops")
    with pytest.raises(Exception, match="2 jobs of this tenant wait"):
        await submit(queue, pool)


async def test_a_process_knows_it_within_a_second(queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "CURRENT_S", 3600.0)
    other = another_process(queue)
    known = await other.pools.by_name("llama")
    new = await queue.set_policy(pool, {"tiers": ",".join(WITH_NIGHT)}, by="ops")
    assert await queue.pools.current(pool) == new, "who changed it knows it at once"
    assert await other.pools.current(known) == known, "not asked for again within the second"
    monkeypatch.setattr(pools, "CURRENT_S", 0.0)
    assert await other.pools.current(known) == new
    assert await other.pools.all() == [new]


async def test_a_front_door_learns_of_a_new_tier(queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "CURRENT_S", 0.0)
    intake = Intake(queue, guard=Guard.of("", "443"))
    await intake.pool("llama")
    await another_process(queue).set_policy(pool, {"tiers": ",".join(WITH_NIGHT)}, by="ops")
    now, asked = await intake.job(JobRequest("llama", "/v1/completions", {"prompt": "x"}, tier="night"), Caller("ann"))
    await queue.submit(now, asked)
    assert (await take_one(queue, pool)).tier == "night"


async def test_a_pool_of_an_older_version_has_the_defaults(queue: Queue, pool: Pool, client: Any) -> None:
    new = ("affinity", "theta", "reserve", "decay", "kv_most", "slow_ms")
    await client.hdel(pool.key("pool"), *new)
    await client.hset(pool.key("pool"), "gamma", "0.2")
    stranger = another_process(queue)
    assert (await stranger.pools.by_name("llama")).policy == Policy(gamma=0.2)
    await stranger.set_policy(pool, {"valve_ms": 5}, by="ops")
    assert [value is not None for value in await client.hmget(pool.key("pool"), new)] == [True] * len(new)


# --- tiers ------------------------------------------------------------------------------------------------------------


async def test_a_new_tier_takes_jobs_at_once(queue: Queue, pool: Pool) -> None:
    now = await queue.set_policy(pool, {"tiers": ",".join(WITH_NIGHT)}, by="ops")
    await submit(queue, now, tier="night", n=3)
    assert len(await take(queue, pool, 5)) == 1, "a backend takes one of a tier that it was not observed for"
    await set_gate(queue, now, "b1", 1000)
    assert [lease.tier for lease in await take(queue, pool, 5)] == ["night"] * 2
    assert [view.depth for view in (await queue.inspect.overview(now)).tiers] == [0] * 5


async def test_the_order_of_the_tiers_can_be_changed_under_load(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, tier="flex", n=3)
    await submit(queue, pool, tier="default", n=3)
    assert (await take_one(queue, pool)).tier == "default"
    await queue.set_policy(pool, {"tiers": "priority,flex,default,batch"}, by="ops")
    assert [lease.tier for lease in await drain(queue, pool)] == ["flex"] * 3 + ["default"] * 2


async def test_a_tier_that_is_paused_with_its_pool_runs_when_that_is_resumed(queue: Queue, pool: Pool) -> None:
    await queue.pause(pool)
    now = await queue.set_policy(pool, {"tiers": ",".join(WITH_NIGHT)}, by="ops")
    (id_,) = await submit(queue, now, tier="night")
    assert await take(queue, now) == []
    await queue.resume(now)
    await finish(queue, now, [await take_one(queue, now)])
    assert await state_of(queue, id_) == "succeeded"


@pytest.mark.parametrize("need", ["queued", "delayed", "leased", "cancelled while it runs"])
async def test_a_tier_that_a_job_needs_stays(queue: Queue, pool: Pool, clock: ManualClock, need: str) -> None:
    (id_,) = await submit(queue, pool, tier="flex", delay_ms=1000 if need == "delayed" else 0)
    leases = await take(queue, pool) if need not in ("queued", "delayed") else []
    if need.startswith("cancelled"):
        await queue.cancel(id_)
    without = {"tiers": "priority,default,batch", "valve_ms": 5}
    with pytest.raises(IllegalTransition, match="in flex"):
        await queue.set_policy(pool, without, by="ops")
    assert (await queue.pools.read(pool.code)).version == 0
    if need.startswith("cancelled"):
        await queue.release(pool, leases[0])
    else:
        clock.advance(1000)
        await queue.sweep(pool)
        await finish(queue, pool, leases or [await take_one(queue, pool)])
    assert (await queue.set_policy(pool, without, by="ops")).policy.tiers == ("priority", "default", "batch")


async def test_delayed_jobs_of_other_tiers_do_not_hold_a_tier(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, tier="batch", delay_ms=1000, n=20)
    assert "flex" not in (await queue.set_policy(pool, {"tiers": "priority,default,batch"}, by="ops")).policy.tiers


@pytest.mark.parametrize("store", ["valkey"], indirect=True)
async def test_more_delayed_jobs_than_can_be_looked_through_hold_every_tier(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, tier="batch", delay_ms=1000, n=1001)
    with pytest.raises(IllegalTransition, match="more than 1000 delayed"):
        await queue.set_policy(pool, {"tiers": "priority,default,batch"}, by="ops")
    await queue.set_policy(pool, {"tiers": ",".join(WITH_NIGHT)}, by="ops")


async def test_a_tier_that_comes_back_is_a_new_one(queue: Queue, pool: Pool, client: Any) -> None:
    await submit(queue, pool, tier="flex", n=5)
    await submit(queue, pool, tier="default")
    await drain(queue, pool)
    await set_gate(queue, pool, "b1", 0)
    await submit(queue, pool, tier="flex")
    assert await take(queue, pool) == []
    await set_gate(queue, pool, "b1", 1000)
    await drain(queue, pool)
    await queue.pause(pool, tier="flex")
    without = await queue.set_policy(pool, {"tiers": "priority,default,batch"}, by="ops")
    fields = {name.decode() for name in await client.hgetall(pool.key("pool"))}
    assert not [name for name in fields if name.endswith(":flex")]
    assert not await client.exists(pool.key("left", "flex"))
    view = await queue.inspect.backend(without, "b1")
    assert not [name for name in (*view.gates, *view.said, *view.decisions) if name.startswith("flex")]
    assert view.decisions["default:open"] == 1
    now = await queue.set_policy(without, {"tiers": ",".join(DEFAULT_TIERS)}, by="ops")
    await submit(queue, now, tier="flex")
    assert len(await drain(queue, now)) == 1


async def test_other_pools_keep_theirs(queue: Queue, pool: Pool, target: Pool) -> None:
    await queue.set_policy(pool, {"tiers": "one"}, by="ops")
    await open_backend(queue, target, "m2", 1)
    await submit(queue, target, tier="batch")
    assert (await take_one(queue, target)).tier == "batch"
    assert (await queue.pools.read(target.code)).version == 0
