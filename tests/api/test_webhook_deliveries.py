"""`/v1/webhook_deliveries`: what was sent to a tenant, each attempt at it, and sending it again."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from producer.api.state import State
from tests.api.door import BOB, refused
from tests.api.webhooks import DELIVERIES, ENDPOINTS, URL, add_own, attempt, register, send_test


async def test_a_test_event_is_a_delivery_whose_attempts_can_be_read(http: httpx.AsyncClient, state: State) -> None:
    id_ = (await register(http))["id"]
    sent = await send_test(http, id_)
    assert sent["id"].startswith("msg_")
    assert sent["payload"]["type"] == "webhook.test"
    wanted = {"object": "webhook_delivery", "tenant": "ann", "endpoint_id": id_, "url": URL, "event": "webhook.test"}
    assert {name: sent[name] for name in wanted} == wanted
    assert (sent["state"], sent["reason"], sent["attempts"]) == ("pending", None, [])
    await attempt(state, "again", 503, "too <busy>\x00", delay_ms=5000)
    tried = (await http.get(f"{DELIVERIES}/{sent['id']}")).json()
    assert tried["state"] == "pending"
    (made,) = tried["attempts"]
    at = made.pop("at")
    assert made == {"duration_ms": 25, "status": 503, "error": "It answered 503.", "excerpt": "too <busy>\x00"}
    assert tried["created_at"] <= at < tried["next_attempt_at"]
    endpoint = (await http.get(f"{ENDPOINTS}/{id_}")).json()
    assert endpoint["last_status"] == 503
    assert sent["created_at"] <= endpoint["last_attempt_at"] <= endpoint["failing_since"] + 1


async def test_what_has_arrived_has_no_next_attempt(http: httpx.AsyncClient, state: State) -> None:
    sent = await send_test(http, (await register(http))["id"])
    await attempt(state, "delivered", 204)
    read = (await http.get(f"{DELIVERIES}/{sent['id']}")).json()
    assert (read["state"], read["next_attempt_at"], read["attempts"][0]["error"]) == ("delivered", None, None)


async def test_any_delivery_is_sent_again_under_the_same_id(http: httpx.AsyncClient, state: State) -> None:
    sent = await send_test(http, (await register(http))["id"])
    for verdict in ("delivered", "failed"):
        await attempt(state, verdict, 200 if verdict == "delivered" else 500, reason="exhausted")
        assert (await http.get(f"{DELIVERIES}/{sent['id']}")).json()["state"] == verdict
        again = (await http.post(f"{DELIVERIES}/{sent['id']}/resend")).json()
        assert (again["id"], again["state"], again["reason"]) == (sent["id"], "pending", None)
    await attempt(state, "delivered", 200)
    statuses = [one["status"] for one in (await http.get(f"{DELIVERIES}/{sent['id']}")).json()["attempts"]]
    assert statuses == [200, 500, 200]


@pytest.mark.parametrize("act", ["disable", "delete"])
async def test_to_an_endpoint_that_gets_nothing_it_is_not_sent_again(http: httpx.AsyncClient, act: str) -> None:
    id_ = (await register(http))["id"]
    sent = await send_test(http, id_)
    path = f"{ENDPOINTS}/{id_}"
    await (http.delete(path) if act == "delete" else http.post(f"{path}/disable"))
    error = refused(await http.post(f"{DELIVERIES}/{sent['id']}/resend"), 409, "illegal_transition")
    assert "endpoint" in error["message"]
    assert (await http.get(f"{DELIVERIES}/{sent['id']}")).json()["payload"] == sent["payload"]


async def test_deliveries_come_page_by_page_the_newest_first_without_their_payloads(
    http: httpx.AsyncClient, state: State
) -> None:
    first, second = [(await register(http, f"{URL}/{n}"))["id"] for n in range(2)]
    sent = [(await send_test(http, first))["id"] for _ in range(3)]
    await attempt(state, "failed", 500, reason="exhausted")
    sent += [(await send_test(http, second))["id"] for _ in range(2)]

    async def pages(**query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = ""
        while cursor is not None:
            asked = query | {"limit": "2"} | ({"cursor": cursor} if cursor else {})
            page = (await http.get(DELIVERIES, params=asked)).json()
            assert page.keys() == {"data", "next_cursor"}
            found += page["data"]
            cursor = page["next_cursor"]
        return found

    everything = await pages()
    assert all("payload" not in one for one in everything)
    assert {one["id"] for one in everything} == set(sent)
    assert len(everything) == 5
    made = [one["created_at"] for one in everything]
    assert made == sorted(made, reverse=True)
    assert {one["id"] for one in await pages(endpoint=first)} == set(sent[:3])
    assert {one["id"] for one in await pages(state="failed")} == set(sent[:3])
    assert {one["id"] for one in await pages(state="pending", endpoint=second)} == set(sent[3:])
    assert await pages(state="delivered") == []
    assert (await http.get(DELIVERIES, headers=BOB)).json() == {"data": [], "next_cursor": None}
    refused(await http.get(DELIVERIES, params={"endpoint": first}, headers=BOB), 404, "not_found")


@pytest.mark.parametrize("payload", [b'{"type": "job.succeeded", "data": {"x": "\\ud83d"}}', b'{"data": "\xc3\xa9"}'])
async def test_a_payload_is_shown_as_it_is_sent(http: httpx.AsyncClient, state: State, payload: bytes) -> None:
    await add_own(state, payload)
    read = (await http.get(f"{DELIVERIES}/msg_own")).json()
    assert read["payload"] == json.loads(payload)
    assert (read["endpoint_id"], read["url"], read["object_id"]) == (None, URL, "job_1")


async def test_another_tenants_delivery_is_not_found(http: httpx.AsyncClient, state: State) -> None:
    id_ = (await send_test(http, (await register(http))["id"]))["id"]
    await add_own(state, b"{}")
    for theirs in (id_, "msg_own"):
        refused(await http.get(f"{DELIVERIES}/{theirs}", headers=BOB), 404, "not_found")
        refused(await http.post(f"{DELIVERIES}/{theirs}/resend", headers=BOB), 404, "not_found")


@pytest.mark.parametrize("id_", ["x", "msg_", "..%2f..", "%00", "%ff", "*", "msg_" + "a" * 5000, "msg_" + "0" * 32])
async def test_an_id_that_was_never_given_out_is_not_found(http: httpx.AsyncClient, id_: str) -> None:
    refused(await http.get(f"{DELIVERIES}/{id_}"), 404, "not_found")
    refused(await http.post(f"{DELIVERIES}/{id_}/resend"), 404, "not_found")


QUERIES = [
    "limit=0", "limit=101", "limit=x", "state=lost", "state=", "cursor=x", "cursor=1", "cursor=-1.x",
    "cursor=" + "1" * 201, "endpoint=" + "x" * 101,
]  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
async def test_a_list_that_cannot_be_given_is_refused(http: httpx.AsyncClient, query: str) -> None:
    error = refused(await http.get(f"{DELIVERIES}?{query}"), 400, "invalid_request")
    assert error["param"] == query.partition("=")[0]


async def test_deliveries_of_an_endpoint_that_never_was_are_not_found(http: httpx.AsyncClient) -> None:
    for endpoint in ("x", "*", "whe_", "é", "a\nb"):
        error = refused(await http.get(DELIVERIES, params={"endpoint": endpoint}), 404, "not_found")
        assert error["param"] == "endpoint"


async def test_without_redis_it_is_said(http: httpx.AsyncClient, state: State) -> None:
    await state.queue.store.close()
    for method, path in (("GET", ""), ("GET", "/msg_x"), ("POST", "/msg_x/resend")):
        refused(await http.request(method, DELIVERIES + path), 503, "store_unavailable")


async def test_a_front_door_that_is_about_to_end_sends_nothing_again(http: httpx.AsyncClient, state: State) -> None:
    await add_own(state, b"{}")
    state.closing.set()
    refused(await http.post(f"{DELIVERIES}/msg_own/resend"), 503, "draining")
    assert (await http.get(f"{DELIVERIES}/msg_own")).status_code == 200
