"""Lanes: no receiver delays another one, each gets as much as it can take, and who takes nothing for days no more."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import LeaseLost
from fairlane.queue.engine import Queue
from fairlane.webhooks.delivery import LaneRules
from fairlane.webhooks.outbox import TAKE_MOST
from tests.contract.outgoing import (
    ARRIVED,
    BUSY,
    DAY_MS,
    GONE,
    HOUR_MS,
    LEASE_MS,
    Outgoing,
    Taken,
    broke,
    exhausted,
)

ADHOC = "adhoc_1"
on_one_store = pytest.mark.parametrize("store", ["valkey"], indirect=True)


@pytest.fixture
def out(queue: Queue, clock: ManualClock) -> Outgoing:
    return Outgoing(queue, clock)


def lanes_of(taken: list[Taken], lanes: dict[str, list[str]]) -> list[str]:
    """Whose deliveries were given out, in that order."""
    names = {id_: name for name, ids in lanes.items() for id_ in ids}
    return [names[id_] for id_, _ in taken]


# --- turns ------------------------------------------------------------------------------------------------------------


async def test_lanes_take_turns(out: Outgoing, clock: ManualClock) -> None:
    lanes: dict[str, list[str]] = {}
    for name, n in (("adhoc_b", 6), ("adhoc_a", 2), ("adhoc_c", 4)):
        lanes[name] = await out.add(name, n)
        clock.advance(1)
    order = ["adhoc_b", "adhoc_a", "adhoc_c"]
    taken = await out.take(10)
    assert lanes_of(taken, lanes) == [*order, *order, "adhoc_b", "adhoc_c", "adhoc_b", "adhoc_c"]
    for name, ids in lanes.items():
        mine = [id_ for id_, _ in taken if id_ in ids]
        assert mine == ids[: len(mine)], f"in their order: {name}"


async def test_a_long_line_makes_no_other_wait(out: Outgoing, clock: ManualClock) -> None:
    """The lane that has waited longest has its turn first, in the next call too."""
    lanes = {f"adhoc_{n}": await out.add(f"adhoc_{n}", 60 if n == 0 else 4) for n in range(20)}
    turns: Counter[str] = Counter()
    for call in range(1, 17):
        clock.advance(1)
        taken = await out.take(5)
        for one in taken:
            await out.attempt(one)
        turns.update(lanes_of(taken, lanes))
        assert all(call // 4 <= turns[name] <= call // 4 + 1 for name in lanes), call
    assert set(turns.values()) == {4}


async def test_a_lane_whose_time_comes_is_behind_those_that_wait_already(out: Outgoing, clock: ManualClock) -> None:
    await out.add("adhoc_late")
    await out.round(broke(50))
    lanes = {"adhoc_first": await out.add("adhoc_first", 3)}
    clock.advance(50)
    taken = await out.take(2)
    assert lanes_of(taken[:1], lanes) == ["adhoc_first"]
    assert taken[1][0] not in lanes["adhoc_first"]


@on_one_store
async def test_dead_and_slow_lanes_delay_nobody(out: Outgoing, clock: ManualClock) -> None:
    lanes = {name: await out.add(name, 200) for name in ("adhoc_dead", "adhoc_slow")}
    healthy = 0
    for _ in range(40):
        lanes.setdefault("adhoc_good", []).extend(await out.add("adhoc_good", 5))
        for one in await out.take(30):
            (name,) = lanes_of([one], lanes)
            if name == "adhoc_dead":
                await out.attempt(one, broke(HOUR_MS))
            elif name == "adhoc_good":
                await out.attempt(one)
                healthy += 1
            # what is slow just holds its lease
        assert healthy == len(lanes["adhoc_good"])
        clock.advance(500)


@on_one_store
async def test_a_call_gives_out_as_much_as_it_may(out: Outgoing) -> None:
    for n in range(70):
        await out.add(f"adhoc_{n}", 10, tenant=f"t{n % 10}")
    assert len(await out.take(10_000)) == TAKE_MOST
    assert len(await out.take(10_000)) == 700 - TAKE_MOST


@on_one_store
async def test_lanes_that_give_nothing_keep_a_call_no_longer_than_one(out: Outgoing, clock: ManualClock) -> None:
    """However many there are, the others have their turn in time."""
    for n in range(300):
        await out.add(f"whe_{n:03}")  # there are no such endpoints
    clock.advance(1)
    (id_,) = await out.add(ADHOC)
    given: list[Taken] = []
    for _ in range(3):
        given += await out.take(50)
    assert [taken for taken, _ in given] == [id_]
    assert (await out.outbox.counts()).failed == 300


# --- how many at once -------------------------------------------------------------------------------------------------


async def test_so_many_of_a_lane_are_out_at_once(out: Outgoing, clock: ManualClock) -> None:
    ids = await out.add(ADHOC, 25)
    taken = await out.take()
    assert len(taken) == 10
    assert await out.take() == []
    assert await out.outbox.waiting() == 0
    for one in taken[:3]:
        await out.attempt(one)
    assert await out.outbox.waiting() == 15
    assert [id_ for id_, _ in await out.take()] == ids[10:13]
    clock.advance(LEASE_MS)
    assert len(await out.take()) == 10


async def test_who_has_too_much_to_do_gets_half_as_much_and_grows_again(out: Outgoing) -> None:
    await out.add(ADHOC, 150)
    for limit in (10, 5, 2, 1):
        *well, busy = await out.take()
        assert len(well) + 1 == limit
        for one in well:
            await out.attempt(one)
        await out.attempt(busy, BUSY)
    for limit in range(1, 11):
        assert len(await out.round()) == limit
        for _ in range(10 - limit):
            await out.round(most=1)
    assert len(await out.take()) == 10


async def test_a_lower_limit_holds_at_once(queue: Queue, out: Outgoing, clock: ManualClock) -> None:
    await out.add(ADHOC, 5)
    narrow = Outgoing(queue, clock, LaneRules(concurrency=2))
    assert len(await narrow.take()) == 2


# --- shut -------------------------------------------------------------------------------------------------------------


async def test_a_lane_is_shut_after_five_failures_probed_and_shut_for_longer(out: Outgoing, clock: ManualClock) -> None:
    await out.add(ADHOC, 50)
    for _ in range(4):
        assert len(await out.round(broke(DAY_MS), most=1)) == 1
    assert len(await out.round(broke(DAY_MS), most=1)) == 1
    for seconds in (30, 60, 120, 240, 480, 600, 600):
        clock.advance(1000 * seconds - 1)
        assert await out.take() == []
        assert await out.outbox.waiting() == 0
        clock.advance(1)
        (probe,) = await out.take()
        assert await out.take() == [], "exactly one"
        await out.attempt(probe, broke(DAY_MS))
    clock.advance(600_000)
    (probe,) = await out.take()
    await out.attempt(probe)
    assert len(await out.take()) == 10
    (failing,) = await out.add("adhoc_2")
    assert [id_ for id_, _ in await out.take()] == [failing]


@pytest.mark.parametrize("change", ["enable", "url"])
async def test_a_receiver_that_was_mended_or_moved_gets_all_that_waits_at_once(out: Outgoing, change: str) -> None:
    endpoint = await out.endpoint()
    ids = await out.add(endpoint, 6)
    for one in (await out.take())[:5]:
        await out.attempt(one, broke(0))
    late = await out.add(endpoint)
    assert await out.take() == [], "it is shut"
    if change == "enable":
        await out.webhooks.disable("ann", endpoint.id)
        await out.webhooks.enable("ann", endpoint.id)
    else:
        await out.webhooks.set("ann", endpoint.id, url="https://example.com/moved")
    taken = {id_ for id_, _ in await out.take()}
    assert {*ids[:5], *late} <= taken


# --- a tenant's share -------------------------------------------------------------------------------------------------

SHARE = 250


@on_one_store
async def test_a_tenant_with_many_receivers_leaves_room_for_others(out: Outgoing, clock: ManualClock) -> None:
    """Found by attack: a thousand origins that hang had all couriers for themselves."""
    mine: list[str] = []
    for n in range(2 * SHARE + 20):
        mine += await out.add(f"adhoc_{n}", tenant="bob")
    taken = await out.take(500) + await out.take(500)
    assert len(taken) == SHARE
    clock.advance(1)
    (id_,) = await out.add(ADHOC)
    assert [one for one, _ in await out.take(500)] == [id_]
    for one in taken[:10]:
        await out.attempt(one, exhausted())
    assert len(await out.take(500)) == 10, "as many as came home"
    clock.advance(LEASE_MS + 1)  # all that is out was lost with its courier
    again: list[Taken] = []
    for _ in range(20):
        clock.advance(1)
        for one in await out.take(500):
            again.append(one)
            if await out.outbox.begin(*one, LEASE_MS):
                await out.outbox.settle(*one, ARRIVED)
    assert {one for one, _ in again} == {*mine, id_} - {one for one, _ in taken[:10]}


async def test_failures_that_are_not_in_a_row_shut_nothing(out: Outgoing) -> None:
    await out.add(ADHOC, 40)
    for n in range(20):
        assert len(await out.round(ARRIVED if n % 5 == 4 else broke(DAY_MS), most=1)) == 1


async def test_what_was_out_before_the_lane_was_shut_does_not_lengthen_it(out: Outgoing, clock: ManualClock) -> None:
    await out.add(ADHOC, 20)
    for one in await out.take():
        await out.attempt(one, broke(DAY_MS))
    clock.advance(30_000)
    assert len(await out.take()) == 1


async def test_an_arrival_from_before_opens_a_shut_lane(out: Outgoing) -> None:
    await out.add(ADHOC, 20)
    *failing, last = await out.take()
    for one in failing:
        await out.attempt(one, broke(DAY_MS))
    assert await out.take() == []
    await out.attempt(last)
    assert len(await out.take()) == 10


async def test_a_probe_that_is_lost_is_sent_again(out: Outgoing, clock: ManualClock) -> None:
    await out.add(ADHOC, 10)
    await out.round(broke(DAY_MS), most=5)
    clock.advance(30_000)
    (probe,) = await out.take()
    clock.advance(LEASE_MS)
    (again,) = await out.take()
    assert (again[0], again[1]) == (probe[0], probe[1] + 1)
    await out.attempt(again)
    assert len(await out.take()) == 4


@pytest.mark.parametrize(("asked_ms", "obeyed_ms"), [(7_000, 7_000), (10 * HOUR_MS, HOUR_MS)])
async def test_a_lane_that_asks_for_a_pause_has_it(
    out: Outgoing, clock: ManualClock, asked_ms: int, obeyed_ms: int
) -> None:
    await out.add(ADHOC, 3)
    await out.round(broke(DAY_MS, pause_ms=asked_ms), most=1)
    (other,) = await out.add("adhoc_2")
    assert await out.round() == [other]
    await out.add(ADHOC)
    clock.advance(obeyed_ms - 1)
    assert await out.take() == []
    assert await out.outbox.waiting() == 0
    clock.advance(1)
    assert len(await out.take()) == 3


async def test_a_lane_that_is_shut_costs_nothing_until_it_opens(queue: Queue, out: Outgoing, client: Any) -> None:
    """What is to be looked at is in `lanes_due`, and that alone is read."""
    await out.add(ADHOC, 100)
    await out.round(broke(DAY_MS), most=5)
    await out.add(ADHOC)
    score = await client.zscore(f"{queue.store.namespace}:{{acct}}:lanes_due", ADHOC)
    assert score == out.clock.now_ms() + 30_000


# --- endpoints --------------------------------------------------------------------------------------------------------


async def test_an_endpoint_that_is_gone_is_disabled_and_what_waits_fails_and_can_be_recovered(out: Outgoing) -> None:
    endpoint, other = await out.endpoint(), await out.endpoint()
    first, *rest = await out.add(endpoint, 12)
    assert (await out.outbox.endpoints_for("ann", "job.failed")) == [endpoint, other]
    (taken,) = await out.take(1)
    assert await out.attempt(taken, GONE) == "gone"
    assert await out.outbox.settle(*taken, GONE) == "gone", "as often as it is asked"
    assert (await out.outbox.endpoints_for("ann", "job.failed")) == [other]
    assert await out.take() == []
    assert await out.state(first) == "failed gone"
    assert {await out.state(id_) for id_ in rest} == {"failed disabled"}
    shown = await out.webhooks.get("ann", endpoint.id)
    assert (shown.enabled, shown.disabled_reason, shown.last_status) == (False, "gone", 410)
    await out.webhooks.enable("ann", endpoint.id)
    assert await out.deliveries.recover("ann", endpoint.id, 0) == (12, None)
    while await out.round():
        pass
    assert {await out.state(id_) for id_ in (first, *rest)} == {"delivered"}


async def test_a_hook_that_is_gone_concerns_no_other(out: Outgoing) -> None:
    first, second = await out.add(ADHOC, 2)
    one, two = await out.take()
    assert await out.attempt(one, GONE) is None
    await out.attempt(two)
    assert (await out.state(first), await out.state(second)) == ("failed gone", "delivered")


async def test_an_endpoint_that_has_only_failed_for_five_days_is_disabled(out: Outgoing, clock: ManualClock) -> None:
    endpoint = await out.endpoint()
    began, said = clock.now_ms(), []
    for _ in range(11):
        await out.add(endpoint)
        (taken,) = await out.take()
        said.append(await out.attempt(taken, exhausted()))
        shown = await out.webhooks.get("ann", endpoint.id)
        assert (shown.failing_since_ms, shown.last_attempt_at_ms) == (began, clock.now_ms())
        assert shown.last_status is None
        clock.advance(DAY_MS // 2)
    assert said == [*[None] * 10, "failing"]
    assert (shown.enabled, shown.disabled_reason) == (False, "failing")


async def test_an_arrival_ends_the_days_of_failing(out: Outgoing, clock: ManualClock) -> None:
    endpoint = await out.endpoint()
    for n in range(14):
        await out.add(endpoint)
        (taken,) = await out.take()
        assert await out.attempt(taken, ARRIVED if n == 7 else exhausted()) is None
        clock.advance(DAY_MS // 2)
    assert (await out.webhooks.get("ann", endpoint.id)).enabled


async def test_what_waits_for_an_endpoint_that_is_deleted_or_disabled_fails_as_it_comes_up(
    out: Outgoing, clock: ManualClock
) -> None:
    deleted, disabled = await out.endpoint(), await out.endpoint()
    ids = [(await out.add(to))[0] for to in (deleted, disabled)]
    await out.round(broke(1000))
    taken_ids = [(await out.add(to))[0] for to in (deleted, disabled)]
    taken = await out.take()
    await out.webhooks.delete("ann", deleted.id)
    await out.webhooks.disable("ann", disabled.id)
    assert [await out.outbox.begin(*one, LEASE_MS) for one in taken] == [None, None]
    assert [await out.state(id_) for id_ in taken_ids] == ["failed deleted", "failed disabled"]
    assert await out.take() == []
    assert {await out.state(id_) for id_ in ids} == {"pending"}
    clock.advance(1000)
    assert await out.take() == []
    assert [await out.state(id_) for id_ in ids] == ["failed deleted", "failed disabled"]
    with pytest.raises(LeaseLost):
        await out.outbox.settle(*taken[0], ARRIVED)


async def test_what_is_being_sent_while_its_endpoint_is_deleted_is_noted(out: Outgoing) -> None:
    endpoint = await out.endpoint()
    (id_,) = await out.add(endpoint)
    (taken,) = await out.take()
    assert await out.outbox.begin(*taken, LEASE_MS)
    await out.webhooks.delete("ann", endpoint.id)
    assert await out.outbox.settle(*taken, replace(exhausted(), verdict="gone")) is None
    assert await out.state(id_) == "failed gone"


async def test_endpoints_hear_of_what_they_want(out: Outgoing) -> None:
    made = {
        filter_: (await out.webhooks.create("ann", f"https://example.com/{n}", [filter_]))[0]
        for n, filter_ in enumerate(("*", "job.*", "job.failed", "batch.*"))
    }
    for event, wanted in (("job.failed", ("*", "job.*", "job.failed")), ("batch.failed", ("*", "batch.*"))):
        found = await out.outbox.endpoints_for("ann", event)
        assert {endpoint.id for endpoint in found} == {made[filter_].id for filter_ in wanted}
    assert await out.outbox.endpoints_for("bob", "job.failed") == []
