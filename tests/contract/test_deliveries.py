"""Deliveries: added once, given out to one at a time, never lost; what their tenant sees of them and may do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import IllegalTransition, InvalidRequest, LeaseLost, NotFound, StoreFull
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.webhooks.delivery import BRIEF_MOST, EXCERPT_MOST, Counts, LaneRules, Own, Try
from fairlane.webhooks.values import Endpoint
from tests.contract.outgoing import ARRIVED, DAY_MS, HOUR_MS, LEASE_MS, Outgoing, broke, exhausted
from tests.contract.shop import Shop
from tests.servers import Server, ValkeyServer

ADHOC = "adhoc_1"
on_one_store = pytest.mark.parametrize("store", ["valkey"], indirect=True)


@pytest.fixture
def out(queue: Queue, clock: ManualClock) -> Outgoing:
    return Outgoing(queue, clock)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with request.param() as started:
        yield started


def account_key(queue: Queue, name: str) -> str:
    return f"{queue.store.namespace}:{{acct}}:{name}"


# --- on their way -----------------------------------------------------------------------------------------------------


async def test_a_delivery_brings_all_that_it_takes_to_send_it(out: Outgoing, clock: ManualClock) -> None:
    endpoint, secret = await out.webhooks.create("ann", "https://example.com/", headers={"x-b": "2"})
    (id_,) = await out.add(endpoint, payload=b'{"a":"\xc3\xa4"}')
    ((taken, token),) = await out.take()
    sending = await out.outbox.begin(taken, token, LEASE_MS)
    assert sending
    assert (sending.id, sending.tenant, sending.url, sending.endpoint_id) == (id_, "ann", endpoint.url, endpoint.id)
    assert (sending.headers, sending.secrets, sending.n) == ({"x-b": "2"}, (secret,), 1)
    assert (sending.payload, sending.created_at_ms) == (b'{"a":"\xc3\xa4"}', clock.now_ms())


async def test_an_own_hook_is_signed_with_its_own_secret_or_the_tenants(out: Outgoing) -> None:
    await out.add(ADHOC)
    (taken,) = await out.take()
    sending = await out.outbox.begin(*taken, LEASE_MS)
    assert sending
    assert (sending.url, sending.headers, sending.secrets) == ("https://example.com/own", {"x-a": "1"}, ("whsec_own",))
    assert sending.endpoint_id is None
    await out.outbox.add([replace(out.new(ADHOC, "msg_x"), own=Own("https://example.com/"))])
    (taken,) = await out.take()
    sending = await out.outbox.begin(*taken, LEASE_MS)
    assert sending
    default = await out.webhooks.secret("ann", "default")
    assert (sending.headers, sending.secrets) == ({}, (default,))
    new = await out.webhooks.rotate("ann", "default", overlap_s=60)
    again = await out.outbox.begin(*taken, LEASE_MS)
    assert again
    assert again.secrets == (new, default)
    out.clock.advance(LEASE_MS // 2 + 60_000)
    late = await out.outbox.begin(*taken, LEASE_MS)
    assert late
    assert late.secrets == (new,)


async def test_what_is_added_again_is_left_as_it_is(out: Outgoing) -> None:
    endpoint = await out.endpoint()
    new = [out.new(endpoint, f"msg_{n}") for n in range(250)]
    assert await out.outbox.add(new) == 250
    assert await out.outbox.add([*new, out.new(endpoint, "msg_x")]) == 1
    taken = await out.take()
    await out.attempt(taken[0])
    assert await out.outbox.add(new) == 0
    assert await out.state(taken[0][0]) == "delivered"
    assert (await out.outbox.counts()).pending == 250


async def test_nothing_is_given_out_twice_while_its_lease_lives(out: Outgoing, clock: ManualClock) -> None:
    (id_,) = await out.add(ADHOC)
    (taken,) = await out.take()
    clock.advance(LEASE_MS - 1)
    assert await out.take() == []
    assert await out.outbox.begin(*taken, LEASE_MS)
    clock.advance(LEASE_MS - 1)
    assert await out.take() == []
    clock.advance(1)
    assert [again for again, _ in await out.take()] == [id_]


async def test_a_lost_lease_costs_no_attempt_and_cannot_settle(out: Outgoing, clock: ManualClock) -> None:
    (id_,) = await out.add(ADHOC)
    (lost,) = await out.take()
    assert await out.outbox.begin(*lost, LEASE_MS)
    clock.advance(LEASE_MS)
    (now,) = await out.take()
    assert await out.outbox.begin(*lost, LEASE_MS) is None
    with pytest.raises(LeaseLost):
        await out.outbox.settle(*lost, ARRIVED)
    sending = await out.outbox.begin(*now, LEASE_MS)
    assert sending
    assert sending.n == 1
    assert await out.outbox.settle(*now, broke(1000)) is None
    clock.advance(1000)
    (taken,) = await out.take()
    sending = await out.outbox.begin(*taken, LEASE_MS)
    assert sending
    assert sending.n == 2
    assert len((await out.deliveries.get("ann", id_)).tries) == 1


async def test_a_settle_whose_reply_was_lost_is_repeated_without_harm(out: Outgoing) -> None:
    (id_,) = await out.add(ADHOC)
    (taken,) = await out.take()
    for _ in range(3):
        assert await out.outbox.settle(*taken, broke()) is None
    assert len((await out.deliveries.get("ann", id_)).tries) == 1
    assert (await out.outbox.counts()).retried == 1


async def test_an_attempt_comes_when_its_time_has_come(out: Outgoing, clock: ManualClock) -> None:
    (id_,) = await out.add(ADHOC)
    for delay_ms in (5_000, 300_000, 24 * HOUR_MS):
        assert await out.round(broke(delay_ms)) == [id_]
        assert (await out.deliveries.get("ann", id_)).next_at_ms == clock.now_ms() + delay_ms
        clock.advance(delay_ms - 1)
        assert await out.round() == []
        assert await out.outbox.waiting() == 0
        clock.advance(1)
        assert await out.outbox.waiting() == 1
    assert await out.round(exhausted()) == [id_]
    assert await out.state(id_) == "failed exhausted"
    assert await out.outbox.counts() == Counts(due=0, pending=0, delivered=0, failed=1, retried=3)


@pytest.mark.parametrize("how", ["waits", "shut", "out"])
async def test_a_delivery_of_96_hours_fails_however_its_lane_stands(
    out: Outgoing, clock: ManualClock, how: str
) -> None:
    (id_,) = await out.add(ADHOC)
    if how == "waits":
        clock.advance(4 * DAY_MS)
        assert await out.take() == []
    else:
        await out.round(broke(3 * DAY_MS))
        clock.advance(4 * DAY_MS - 100)
        (taken,) = await out.take()
        if how == "out":
            clock.advance(100)
            assert await out.take() == []
            await out.attempt(taken, broke())
        else:
            await out.outbox.settle(*taken, broke(99, pause_ms=HOUR_MS))
            assert await out.state(id_) == "pending"
            clock.advance(100)
            assert await out.take() == []
    assert await out.state(id_) == "failed too_old"
    assert (await out.outbox.counts()).pending == 0


# --- what is seen of them ---------------------------------------------------------------------------------------------


async def test_each_attempt_is_kept_with_its_answer_the_last_one_in_full(out: Outgoing, clock: ManualClock) -> None:
    (id_,) = await out.add(ADHOC)
    long = "ä\n\x00\ud800" + "x" * 20_000
    for _ in range(2):
        await out.round(broke(0, excerpt=long))
    first, last = (await out.deliveries.get("ann", id_)).tries
    assert (first.status, first.error, first.duration_ms) == (500, "answered 500", 5)
    assert first.excerpt.startswith("ä\n\x00?x")
    assert len(first.excerpt.encode()) == BRIEF_MOST
    assert last.excerpt.startswith("ä\n\x00?x")
    assert len(last.excerpt.encode()) == EXCERPT_MOST
    await out.round(exhausted())
    assert (await out.deliveries.get("ann", id_)).tries[-1] == Try(0, 5, None, "connection refused", "")


@on_one_store
async def test_of_very_many_attempts_the_last_thirty_are_kept(out: Outgoing) -> None:
    (id_,) = await out.add(ADHOC)
    for n in range(35):
        (taken,) = await out.take()
        outcome = broke(0)
        await out.attempt(taken, replace(outcome, attempt=replace(outcome.attempt, at_ms=n)))
        out.clock.advance(HOUR_MS)
    assert [one.at_ms for one in (await out.deliveries.get("ann", id_)).tries] == list(range(5, 35))


async def test_deliveries_are_listed_the_newest_first_page_by_page(out: Outgoing, clock: ManualClock) -> None:
    one, two = await out.endpoint(), await out.endpoint()
    made: list[str] = []
    for to in (one, two, ADHOC, one):
        made += await out.add(to, 3)
    clock.advance(1)
    made += await out.add(one)
    await out.add(ADHOC, 2, tenant="bob")
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page, cursor = await out.deliveries.list("ann", cursor=cursor, limit=4)
        seen += [delivery.id for delivery in page]
        if cursor is None:
            break
        assert len(page) == 4
    assert seen == made[::-1]
    page, cursor = await out.deliveries.list("ann", one.id, limit=7)
    assert ([delivery.id for delivery in page], cursor) == ([*made[-1:-5:-1], *made[2::-1]], None)
    assert {(delivery.url, delivery.endpoint_id, delivery.payload) for delivery in page} == {(one.url, one.id, None)}
    with pytest.raises(NotFound):
        await out.deliveries.list("bob", one.id)


async def test_a_list_may_be_of_one_state(out: Outgoing) -> None:
    ids = await out.add(ADHOC, 10)
    await out.round(most=6)
    await out.round(exhausted(), most=1)
    delivered, cursor = await out.deliveries.list("ann", state="delivered", limit=4)
    assert cursor is not None
    more, cursor = await out.deliveries.list("ann", state="delivered", cursor=cursor, limit=4)
    assert [one.id for one in (*delivered, *more)] == ids[5::-1]
    assert [one.id for one in (await out.deliveries.list("ann", state="failed"))[0]] == [ids[6]]
    assert [one.id for one in (await out.deliveries.list("ann", state="pending"))[0]] == ids[:6:-1]


async def test_what_is_no_list_of_deliveries_is_refused(out: Outgoing) -> None:
    wrong: list[dict[str, Any]] = [{"limit": 0}, {"limit": 101}, {"cursor": "x"}, {"cursor": "1.a b"}, {"state": "x"}]
    for options in wrong:
        with pytest.raises(InvalidRequest) as refusal:
            await out.deliveries.list("ann", **options)
        assert refusal.value.param == next(iter(options))
    (id_,) = await out.add(ADHOC)
    for act in (out.deliveries.get, out.deliveries.resend):
        for tenant, unknown in (("bob", id_), ("ann", "msg_none"), ("ann", "")):
            with pytest.raises(NotFound):
                await act(tenant, unknown)
    assert (await out.deliveries.get("ann", id_)).payload == b"{}"


@on_one_store
async def test_a_list_goes_back_for_ten_thousand_and_all_is_delivered(queue: Queue, out: Outgoing, client: Any) -> None:
    for lists in (account_key(queue, "deliveries:ann"), account_key(queue, f"deliveries_of:{ADHOC}")):
        await client.zadd(lists, {f"msg_old{n}": out.clock.now_ms() - 1 for n in range(10_001)})
    ids = await out.add(ADHOC, 5)
    for lists in (account_key(queue, "deliveries:ann"), account_key(queue, f"deliveries_of:{ADHOC}")):
        assert await client.zcard(lists) == 10_000
    page, cursor = await out.deliveries.list("ann", limit=100)
    assert ([one.id for one in page], cursor) == (ids[::-1], None)
    assert await out.round() == ids


# --- sent again -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["delivered", "failed", "waiting"])
async def test_whatever_became_of_a_delivery_it_can_be_sent_again(
    out: Outgoing, clock: ManualClock, before: str
) -> None:
    (id_,) = await out.add(ADHOC)
    await out.round({"delivered": ARRIVED, "failed": exhausted(), "waiting": broke(HOUR_MS)}[before])
    clock.advance(1000)
    delivery = await out.deliveries.resend("ann", id_)
    assert (delivery.state, delivery.reason, delivery.next_at_ms) == ("pending", None, clock.now_ms())
    assert len(delivery.tries) == 1
    (taken,) = await out.take()
    sending = await out.outbox.begin(*taken, LEASE_MS)
    assert sending
    assert (sending.id, sending.n) == (id_, 1)
    await out.attempt(taken)
    assert await out.state(id_) == "delivered"
    assert len((await out.deliveries.get("ann", id_)).tries) == 2
    clock.advance(2 * HOUR_MS)
    assert await out.take() == []


async def test_sent_again_while_it_is_out_it_is_not_given_out_twice(out: Outgoing) -> None:
    (id_,) = await out.add(ADHOC)
    (taken,) = await out.take()
    await out.deliveries.resend("ann", id_)
    assert await out.take() == []
    await out.outbox.settle(*taken, exhausted())
    assert await out.round() == [id_]
    assert await out.state(id_) == "delivered"


@on_one_store
async def test_all_that_failed_since_then_is_sent_again(queue: Queue, out: Outgoing, clock: ManualClock) -> None:
    wide = Outgoing(queue, clock, LaneRules(concurrency=500))
    endpoint, other = await out.endpoint(), await out.endpoint()
    await out.add(endpoint, 5)
    await fail_all(out, endpoint)
    clock.advance(1000)
    since = clock.now_ms()
    arrived, *failed = await out.add(endpoint, 450)
    assert await out.round(most=1) == [arrived]
    await out.add(other)
    await fail_all(out, endpoint)
    recovered, cursor = await out.deliveries.recover("ann", endpoint.id, since)
    while cursor is not None:
        assert recovered % 100 in (0, 99)
        count, cursor = await out.deliveries.recover("ann", endpoint.id, since, cursor)
        recovered += count
    assert recovered == 449
    assert (await out.deliveries.recover("ann", endpoint.id, since))[0] == 0
    assert sorted(await wide.round(most=500) + await wide.round(most=500)) == failed  # more than a tenant's share
    with pytest.raises(NotFound):
        await out.deliveries.recover("bob", endpoint.id, since)


async def fail_all(out: Outgoing, endpoint: Endpoint) -> None:
    """What waits for this endpoint."""
    await out.webhooks.disable(endpoint.tenant, endpoint.id)
    for _ in range(4):
        for taken in await out.take():
            await out.attempt(taken)
    await out.webhooks.enable(endpoint.tenant, endpoint.id)


async def test_nothing_is_sent_again_to_an_endpoint_that_is_disabled_or_gone(out: Outgoing) -> None:
    endpoint = await out.endpoint()
    (id_,) = await out.add(endpoint)
    await out.round(exhausted())
    await out.webhooks.disable("ann", endpoint.id)
    with pytest.raises(IllegalTransition, match="Enable"):
        await out.deliveries.resend("ann", id_)
    with pytest.raises(IllegalTransition, match="Enable"):
        await out.deliveries.recover("ann", endpoint.id, 0)
    assert await out.state(id_) == "failed exhausted"
    await out.webhooks.delete("ann", endpoint.id)
    with pytest.raises(IllegalTransition, match="deleted"):
        await out.deliveries.resend("ann", id_)
    with pytest.raises(NotFound):
        await out.deliveries.recover("ann", endpoint.id, 0)


# --- what is left of them ---------------------------------------------------------------------------------------------


async def test_what_has_arrived_is_kept_a_day_and_what_failed_a_week(queue: Queue, out: Outgoing, client: Any) -> None:
    arrives, fails, waits = await out.add(ADHOC, 3)
    outcomes = {arrives: ARRIVED, fails: exhausted(), waits: broke()}
    for taken in await out.take():
        await out.attempt(taken, outcomes[taken[0]])
    for id_, days in ((arrives, 1), (fails, 7), (waits, 7)):
        assert 0 <= days * DAY_MS - await client.pttl(account_key(queue, f"delivery:{id_}")) < 10_000
    for lists in ("deliveries:ann", f"deliveries_of:{ADHOC}"):
        assert 0 <= 11 * DAY_MS - await client.pttl(account_key(queue, lists)) < 10_000


async def test_when_all_has_arrived_nothing_stays_for_good(queue: Queue, out: Outgoing, client: Any) -> None:
    """Case 27."""
    await out.add(ADHOC, 20)
    await out.round(broke(1000), most=10)
    out.clock.advance(HOUR_MS)
    while await out.round():
        pass
    found = [key.decode().split("}:")[1] async for key in client.scan_iter(match=f"{queue.store.namespace}:*")]
    for_good = {name for name in found if await client.pttl(account_key(queue, name)) == -1}
    assert for_good <= {"schema", "hook_counts"}
    assert f"lane:{ADHOC}" not in found


async def test_a_delivery_whose_retention_has_passed_is_no_stumbling_block(
    queue: Queue, out: Outgoing, client: Any
) -> None:
    gone, there = await out.add(ADHOC, 2)
    await client.delete(account_key(queue, f"delivery:{gone}"))
    assert await out.round() == [there]
    assert [one.id for one in (await out.deliveries.list("ann"))[0]] == [there]
    out.clock.advance(4 * DAY_MS)
    await out.take()
    assert (await out.outbox.counts()).pending == 0


# --- where Redis is full, and batches ---------------------------------------------------------------------------------


@pytest.mark.parametrize("server", [ValkeyServer], indirect=True)
async def test_a_full_server_takes_nothing_new_and_delivers_what_it_has(server: Server) -> None:
    """Case 27."""
    clock = ManualClock()
    queue = Queue(connect(server.url), clock=clock)
    out = Outgoing(queue, clock)
    endpoint = await out.endpoint()
    ids = await out.add(endpoint, 40, payload=b"x" * 1000)
    with server.client() as client:
        client.config_set("maxmemory", 1)
    with pytest.raises(StoreFull):
        await out.add(endpoint)
    arrived: list[str] = []
    for n in range(200):
        for taken in await out.take():
            outcome = ARRIVED if n % 2 else broke(1, excerpt="x" * 20_000)
            await out.attempt(taken, outcome)
            arrived += [taken[0]] if outcome is ARRIVED else []
        clock.advance(HOUR_MS // 4)
    assert sorted(arrived) == ids
    await out.deliveries.list("ann")
    await queue.close()


async def test_a_batch_that_ends_is_noted_until_its_event_is_fanned_out(
    queue: Queue, pool: Pool, clock: ManualClock, tmp_path: Path
) -> None:
    """In the same step: an end without its event cannot exist."""
    shop, outbox = Shop(queue, pool, clock, tmp_path), Outgoing(queue, clock).outbox
    made = [await shop.create(lines) for lines in ([b"no"], 1, 1)]
    await shop.batches.cancel("ann", made[1].id)
    assert await outbox.batch_events(10) == []
    ended: dict[str, int] = {}
    for _ in range(60):
        await shop.step()
        await shop.answer()
        views = [await shop.view(batch) for batch in made]
        ended |= {view.id: clock.now_ms() for view in views if view.ended and view.id not in ended}
        assert dict(await outbox.batch_events(10)) == ended
        clock.advance(500)
    assert {view.status for view in views} == {"failed", "cancelled", "completed"}
    assert len(await outbox.batch_events(2)) == 2
    for id_ in (made[0].id, made[0].id, made[1].id):
        await outbox.done_batch(id_)
    assert [id_ for id_, _ in await outbox.batch_events(10)] == [made[2].id]
