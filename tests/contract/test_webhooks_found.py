"""Endpoints and deliveries of all tenants, as an operator finds them; and receivers that are left alone for a while."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import InvalidRequest, NotFound
from fairlane.queue import keys
from fairlane.queue.engine import Queue
from fairlane.webhooks.finding import EndpointSearch
from tests.contract.outgoing import ARRIVED, GONE, Outgoing, broke, exhausted

BREAKER_MS = 30_000


@pytest.fixture
def out(queue: Queue, clock: ManualClock) -> Outgoing:
    return Outgoing(queue, clock)


@pytest.fixture
def search(queue: Queue) -> EndpointSearch:
    return EndpointSearch(queue)


# --- endpoints --------------------------------------------------------------------------------------------------------


async def test_all_tenants_endpoints_come_the_newest_first_page_by_page(out: Outgoing, search: EndpointSearch) -> None:
    ids = [(await out.endpoint(tenant)).id for tenant in ("ann", "bob", "ann")][::-1]
    first = await search.find(most=2)
    second = await search.find(after=first.after, most=2)
    assert [[one.endpoint.id for one in page.endpoints] for page in (first, second)] == [ids[:2], ids[2:]]
    assert second.after is None


async def test_whose_tenants_are_named_sees_no_others_endpoints(out: Outgoing, search: EndpointSearch) -> None:
    ann, bob, cho = [(await out.endpoint(tenant)).id for tenant in ("ann", "bob", "cho")]
    assert [one.endpoint.id for one in (await search.find(["ann"])).endpoints] == [ann]
    assert [one.endpoint.id for one in (await search.find(["bob", "cho"])).endpoints] == [cho, bob]
    assert (await search.find([])).endpoints == ()
    assert await search.tenant_of(bob) == "bob"


async def test_endpoints_are_found_by_how_they_are(out: Outgoing, search: EndpointSearch) -> None:
    well, failing, shut, gone, off = [await out.endpoint() for _ in range(5)]
    for endpoint, outcomes in ((well, [ARRIVED]), (failing, [broke()]), (shut, [broke(1)] * 5), (gone, [GONE])):
        for outcome in outcomes:
            await out.add(endpoint)
            (taken,) = await out.take(1)
            await out.attempt(taken, outcome)
    await out.webhooks.disable("ann", off.id)
    found = {
        state: [one.endpoint.id for one in (await search.find(state=state)).endpoints]
        for state in ("well", "failing", "shut", "disabled")
    }
    assert found == {
        "well": [well.id],
        "failing": [shut.id, failing.id],
        "shut": [shut.id],
        "disabled": [off.id, gone.id],
    }


async def test_what_waits_for_an_endpoint_and_what_has_failed_is_counted(out: Outgoing, search: EndpointSearch) -> None:
    endpoint = await out.endpoint()
    await out.add(endpoint, 4)
    first, second, _ = await out.take(3)
    await out.attempt(first, exhausted())
    await out.attempt(second)
    (one,) = (await search.find()).endpoints
    assert (one.waiting, one.failed) == (2, 1), "one waits, one is on its way"


async def test_one_that_was_deleted_is_listed_no_more(out: Outgoing, search: EndpointSearch) -> None:
    endpoint = await out.endpoint()
    await out.webhooks.delete("ann", endpoint.id)
    assert (await search.find()).endpoints == ()
    with pytest.raises(NotFound):
        await search.tenant_of(endpoint.id)
    for wrong in ({"after": "x"}, {"most": 0}):
        with pytest.raises(InvalidRequest):
            await search.find(**wrong)  # pyright: ignore[reportArgumentType]


# --- left alone -------------------------------------------------------------------------------------------------------


async def test_an_endpoint_says_until_when_it_is_left_alone_and_so_does_what_waits_for_it(
    out: Outgoing, clock: ManualClock
) -> None:
    endpoint = await out.endpoint()
    assert (await out.webhooks.get("ann", endpoint.id)).shut_until_ms is None
    await out.add(endpoint, 5)
    await out.round(broke(1_000))
    until = clock.now_ms() + BREAKER_MS
    assert (await out.webhooks.get("ann", endpoint.id)).shut_until_ms == until
    assert [one.shut_until_ms for one in await out.webhooks.list("ann")] == [until]
    listed, _ = await out.deliveries.list("ann")
    assert {one.next_at_ms for one in listed} == {until}
    assert (await out.deliveries.get("ann", listed[0].id)).next_at_ms == until
    clock.advance(BREAKER_MS)
    assert (await out.webhooks.get("ann", endpoint.id)).shut_until_ms is None
    (probe,) = await out.take()
    await out.attempt(probe)
    assert {one.next_at_ms for one in (await out.deliveries.list("ann", state="pending"))[0]} == {until - 29_000}


async def test_a_pause_that_the_receiver_asked_for_is_shown_too(out: Outgoing, clock: ManualClock) -> None:
    endpoint = await out.endpoint()
    await out.add(endpoint)
    await out.round(broke(1_000, pause_ms=60_000))
    assert (await out.webhooks.get("ann", endpoint.id)).shut_until_ms == clock.now_ms() + 60_000
    await out.webhooks.enable("ann", endpoint.id)
    assert (await out.webhooks.get("ann", endpoint.id)).shut_until_ms is None


# --- deliveries -------------------------------------------------------------------------------------------------------


async def test_all_tenants_deliveries_come_the_newest_first(out: Outgoing, clock: ManualClock) -> None:
    ids: list[str] = []
    for tenant in ("ann", "bob", "cho"):
        clock.advance(1)
        ids += await out.add(await out.endpoint(tenant))
    ids.reverse()
    assert [one.id for one in (await out.deliveries.find(None))[0]] == ids
    page, cursor = await out.deliveries.find(None, limit=2)
    assert [one.id for one in page] == ids[:2]
    assert [one.id for one in (await out.deliveries.find(None, cursor=cursor))[0]] == ids[2:]
    assert [one.id for one in (await out.deliveries.find(["ann", "bob"]))[0]] == ids[1:]
    assert (await out.deliveries.find([]))[0] == []


async def test_an_operator_sees_anyones_delivery_without_what_it_says(out: Outgoing) -> None:
    (id_,) = await out.add(await out.endpoint("bob"), payload=b'{"secret": 1}')
    shown = await out.deliveries.get(None, id_, payload=False)
    assert (shown.tenant, shown.payload) == ("bob", None)
    assert (await out.deliveries.get("bob", id_)).payload == b'{"secret": 1}'
    with pytest.raises(NotFound):
        await out.deliveries.get("ann", id_)


async def test_deliveries_to_an_endpoint_that_is_not_there_are_not_found(out: Outgoing) -> None:
    mine, bobs = await out.endpoint(), await out.endpoint("bob")
    assert await out.deliveries.list("ann", mine.id) == ([], None), "nothing was sent there yet"
    for unknown in (bobs.id, "whe_1", "x"):
        with pytest.raises(NotFound):
            await out.deliveries.list("ann", unknown)
        with pytest.raises(NotFound):
            await out.deliveries.find(["ann", "cho"], unknown)
    assert await out.deliveries.find(None, bobs.id) == ([], None)


async def test_what_was_sent_to_a_deleted_endpoint_is_still_shown(out: Outgoing) -> None:
    endpoint = await out.endpoint()
    (id_,) = await out.add(endpoint)
    await out.webhooks.delete("ann", endpoint.id)
    assert [one.id for one in (await out.deliveries.list("ann", endpoint.id))[0]] == [id_]


async def test_the_list_of_all_is_bounded(out: Outgoing, queue: Queue, client: Any, clock: ManualClock) -> None:
    """Case 22."""
    key = keys.account(queue.store.namespace, "all_deliveries")
    await client.zadd(key, {f"msg_{n}": clock.now_ms() - 20_000 + n for n in range(10_000)})
    (id_,) = await out.add(await out.endpoint())
    assert await client.zcard(key) == 10_000
    assert [one.id for one in (await out.deliveries.find(None))[0]] == [id_]


async def test_what_has_failed_is_found_at_once_among_however_many(
    out: Outgoing, queue: Queue, client: Any, clock: ManualClock
) -> None:
    endpoint = await out.endpoint("bob")
    (id_,) = await out.add(endpoint)
    await out.round(exhausted())
    clock.advance(5_000)
    forgotten = {f"msg_{n}": clock.now_ms() - n for n in range(4_000)}  # of which there is nothing but their ids
    await client.zadd(keys.account(queue.store.namespace, "all_deliveries"), forgotten)
    for tenants in (None, ["ann", "bob"], ["bob"]):
        assert [one.id for one in (await out.deliveries.find(tenants, state="failed", looks=1))[0]] == [id_]
    assert [one.id for one in (await out.deliveries.find(None, endpoint.id, "failed", looks=1))[0]] == [id_]
    assert (await out.deliveries.find(["ann", "cho"], state="failed"))[0] == []
    await out.deliveries.resend("bob", id_)
    assert (await out.deliveries.find(None, state="failed"))[0] == []
