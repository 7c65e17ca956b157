"""`/v1/webhook_endpoints`: each tenant's own; secrets are shown where they must be; whatever is wrong is named."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from fairlane.webhooks.endpoints import ENDPOINTS_MOST
from fairlane.webhooks.values import check_secret
from producer.api.state import State
from tests.api.door import BOB, refused
from tests.api.webhooks import DELIVERIES, ENDPOINTS, SECRET, URL, attempt, register, send_test

JSON = {"content-type": "application/json"}
GONE = "whe_1700000000000000000000000"
ACTS = [
    ("GET", ""), ("POST", ""), ("DELETE", ""), ("POST", "/enable"), ("POST", "/disable"), ("GET", "/secret"),
    ("POST", "/rotate"), ("POST", "/test"), ("POST", "/recover"),
]  # fmt: skip
BODIES: dict[str, Any] = {"": {"description": "mine"}, "/recover": {"since": 0}}


async def call(http: httpx.AsyncClient, method: str, id_: str, act: str, **more: Any) -> httpx.Response:
    """Any of ACTS, with the body that it wants."""
    body = BODIES.get(act) if method == "POST" else None
    return await http.request(method, f"{ENDPOINTS}/{id_}{act}", json=body, **more)


async def listed(http: httpx.AsyncClient, **more: Any) -> list[str]:
    return [one["id"] for one in (await http.get(ENDPOINTS, **more)).json()["data"]]


# --- what one does with them ------------------------------------------------------------------------------------------


async def test_an_endpoint_is_made_and_looked_at(http: httpx.AsyncClient) -> None:
    asked = {"url": URL, "events": ["batch.*", "job.failed"], "description": "mine", "headers": {"x-a": "b"}}
    response = await http.post(ENDPOINTS, json=asked)
    assert response.status_code == 201
    made = response.json()
    secret = made.pop("secret")
    check_secret(secret)
    assert response.headers["location"] == f"{ENDPOINTS}/{made['id']}"
    shown = await http.get(response.headers["location"])
    assert shown.json() == made
    assert made.pop("id").startswith("whe_")
    assert made.pop("created_at") > 1_700_000_000
    nothing_yet = dict.fromkeys(("disabled_reason", "failing_since", "last_attempt_at", "last_status", "shut_until"))
    assert made == asked | {"object": "webhook_endpoint", "tenant": "ann", "enabled": True} | nothing_yet


async def test_what_is_left_out_or_null_means_all_events(http: httpx.AsyncClient) -> None:
    for nulls in ((), ("events", "description", "headers", "secret")):
        made = await register(http, URL, **dict.fromkeys(nulls))
        assert (made["events"], made["description"], made["headers"]) == (["*"], "", {})


async def test_one_may_ask_for_the_same_endpoint_twice(http: httpx.AsyncClient) -> None:
    first = await register(http, secret=SECRET)
    assert first["secret"] == SECRET
    assert await register(http) == first
    assert await listed(http) == [first["id"]]
    error = refused(await http.post(ENDPOINTS, json={"url": URL, "description": "x"}), 409, "illegal_transition")
    assert first["id"] in error["message"]


async def test_a_secret_is_only_where_it_must_be_and_no_cache_keeps_it(http: httpx.AsyncClient) -> None:
    made = await register(http)
    path = f"{ENDPOINTS}/{made['id']}"
    shown = [await http.get(path), await http.get(ENDPOINTS), await http.post(path, json={"description": "x"})]
    shown += [await http.post(f"{path}/{act}") for act in ("test", "disable", "enable")]
    assert all(made["secret"] not in answer.text for answer in shown)
    told = [
        await http.post(ENDPOINTS, json={"url": URL + "/2"}), await http.get(f"{path}/secret"),
        await http.post(f"{path}/rotate"), await http.get(f"{ENDPOINTS}/default/secret"),
        await http.post(f"{ENDPOINTS}/default/rotate"),
    ]  # fmt: skip
    for answer in told:
        assert answer.is_success
        check_secret(answer.json()["secret"])
        assert answer.headers["cache-control"] == "no-store"
    assert told[1].json() == {"object": "webhook_secret", "id": made["id"], "secret": made["secret"]}


async def test_endpoints_come_page_by_page_the_oldest_first(http: httpx.AsyncClient) -> None:
    made = [(await register(http, f"{URL}/{n}"))["id"] for n in range(5)]
    everything = (await http.get(ENDPOINTS)).json()
    assert everything["next_cursor"] is None
    ids = [one["id"] for one in everything["data"]]
    assert sorted(ids) == sorted(made)
    seen: list[str] = []
    query: dict[str, str] = {"limit": "2"}
    for _ in range(3):
        page = (await http.get(ENDPOINTS, params=query)).json()
        seen += [one["id"] for one in page["data"]]
        await http.delete(f"{ENDPOINTS}/{seen[-1]}")  # also if the last one of a page is gone by then
        query["cursor"] = page["next_cursor"] or ""
    assert (seen, query["cursor"]) == (ids, "")
    assert (await http.get(ENDPOINTS, headers=BOB)).json() == {"data": [], "next_cursor": None}


async def test_a_change_changes_what_is_named_and_nothing_else(http: httpx.AsyncClient) -> None:
    made = await register(http, events=["job.*"], headers={"x-a": "b"})
    del made["secret"]
    changes: list[dict[str, Any]] = [
        {"description": "other"}, {"events": ["*"]}, {"headers": {}}, {"url": URL + "/2", "description": ""},
    ]  # fmt: skip
    for change in changes:
        nulls = dict.fromkeys(("url", "events", "description", "headers"))
        made |= change
        assert (await http.post(f"{ENDPOINTS}/{made['id']}", json=nulls | change)).json() == made
    assert (await http.get(f"{ENDPOINTS}/{made['id']}")).json() == made


async def test_disable_and_enable_may_be_repeated(http: httpx.AsyncClient) -> None:
    id_ = (await register(http))["id"]
    for act, state in (("disable", (False, "asked")), ("enable", (True, None))):
        for _ in range(2):
            answer = (await http.post(f"{ENDPOINTS}/{id_}/{act}")).json()
            assert (answer["enabled"], answer["disabled_reason"]) == state


async def test_to_a_disabled_endpoint_nothing_is_sent(http: httpx.AsyncClient) -> None:
    id_ = (await register(http))["id"]
    await http.post(f"{ENDPOINTS}/{id_}/disable")
    for act in ("/test", "/recover"):
        error = refused(await call(http, "POST", id_, act), 409, "illegal_transition")
        assert "Enable it" in error["message"]


async def test_a_deleted_endpoint_is_gone(http: httpx.AsyncClient) -> None:
    id_ = (await register(http))["id"]
    answer = await http.delete(f"{ENDPOINTS}/{id_}")
    assert answer.json() == {"id": id_, "object": "webhook_endpoint", "deleted": True}
    for method, act in ACTS:
        refused(await call(http, method, id_, act), 404, "not_found")
    assert await listed(http) == []


@pytest.mark.parametrize("id_", ["default", ""])
async def test_a_secret_is_rotated_to_one_of_ones_own_or_a_new_one(http: httpx.AsyncClient, id_: str) -> None:
    path = f"{ENDPOINTS}/{id_ or (await register(http))['id']}"
    seen = [(await http.get(f"{path}/secret")).json()["secret"]]
    for body in (None, {}, {"overlap_s": None, "secret": None}, {"overlap_s": 0}, {"overlap_s": 604_800.0}):
        answer = await (http.post(f"{path}/rotate", json=body) if body is not None else http.post(f"{path}/rotate"))
        assert answer.status_code == 200, answer.text
        seen.append(answer.json()["secret"])
        assert (await http.get(f"{path}/secret")).json()["secret"] == seen[-1]
    assert len(set(seen)) == 6
    assert (await http.post(f"{path}/rotate", json={"secret": SECRET})).json()["secret"] == SECRET


async def test_each_tenant_has_a_default_secret_and_no_endpoint_of_that_name(http: httpx.AsyncClient) -> None:
    mine, theirs = [(await http.get(f"{ENDPOINTS}/default/secret", headers=who)).json() for who in ({}, BOB)]
    assert mine["secret"] != theirs["secret"]
    for method, act in ACTS:
        if act not in ("/secret", "/rotate"):
            refused(await call(http, method, "default", act), 404, "not_found")


async def test_what_failed_is_recovered_since_a_time(http: httpx.AsyncClient, state: State) -> None:
    id_ = (await register(http))["id"]
    sent = [await send_test(http, id_) for _ in range(3)]
    await attempt(state, "failed", 500, reason="exhausted")
    path = f"{ENDPOINTS}/{id_}/recover"
    later = sent[-1]["created_at"] + 1000
    assert (await http.post(path, json={"since": later})).json() == {"recovered": 0}
    assert (await http.post(path, json={"since": sent[0]["created_at"] - 1})).json() == {"recovered": 3}
    assert (await http.post(path, json={"since": 0})).json() == {"recovered": 0}
    states = {one["state"] for one in (await http.get(DELIVERIES)).json()["data"]}
    assert states == {"pending"}


# --- what is not theirs -----------------------------------------------------------------------------------------------


async def test_another_tenants_endpoint_is_not_found_and_stays_as_it_is(http: httpx.AsyncClient) -> None:
    made = await register(http)
    for method, act in ACTS:
        refused(await call(http, method, made["id"], act, headers=BOB), 404, "not_found")
    secret = made.pop("secret")
    assert (await http.get(f"{ENDPOINTS}/{made['id']}")).json() == made
    assert (await http.get(f"{ENDPOINTS}/{made['id']}/secret")).json()["secret"] == secret


@pytest.mark.parametrize("id_", ["x", "whe_", GONE, "..%2f..", "%00", "%ff", "*", "whe_" + "1" * 5000, "Default"])
async def test_an_id_that_was_never_given_out_is_not_found(http: httpx.AsyncClient, id_: str) -> None:
    for method, act in ACTS:
        refused(await call(http, method, id_, act), 404, "not_found")


# --- what cannot be ---------------------------------------------------------------------------------------------------

BAD: list[tuple[str, dict[str, Any]]] = [
    ("url", {"url": ...}), ("url", {"url": None}), ("url", {"url": ""}), ("url", {"url": 7}), ("url", {"url": [URL]}),
    ("url", {"url": URL + "x" * 2048}), ("url", {"url": "hooks.example.com"}), ("url", {"url": "ftp://example.com/"}),
    ("url", {"url": "http://127.0.0.1/"}), ("url", {"url": "http://[::1]/"}), ("url", {"url": "http://localhost/"}),
    ("url", {"url": "http://169.254.169.254/latest/meta-data"}), ("url", {"url": "http://0x7f000001/"}),
    ("url", {"url": "http://2130706433/"}), ("url", {"url": "http://user:pw@example.com/"}),
    ("url", {"url": "http://example.com:22/"}), ("url", {"url": "http://example.com/\r\nx: y"}),
    ("url", {"url": "http://exa mple.com/"}), ("url", {"url": "//example.com/"}), ("url", {"url": "file:///etc/passwd"}),
    ("url", {"url": "http://[::ffff:10.0.0.1]/"}), ("url", {"url": "javascript:alert(1)"}),
    ("events", {"events": []}), ("events", {"events": "*"}), ("events", {"events": ["job.exploded"]}),
    ("events", {"events": [None]}), ("events", {"events": ["*"] * 1000}), ("events", {"events": {"*": 1}}),
    ("events", {"events": ["job.* batch.*"]}),
    ("description", {"description": 1}), ("description", {"description": "x" * 201}),
    ("description", {"description": "a\nb"}), ("description", {"description": "\x1b[2J"}),
    ("headers", {"headers": []}), ("headers", {"headers": {"a": 1}}), ("headers", {"headers": {"a": None}}),
    ("headers", {"headers": {"webhook-id": "x"}}), ("headers", {"headers": {"Host": "inside"}}),
    ("headers", {"headers": {"Content-Length": "0"}}), ("headers", {"headers": {"transfer-encoding": "chunked"}}),
    ("headers", {"headers": {"x y": "z"}}), ("headers", {"headers": {"": "z"}}), ("headers", {"headers": {"é": "z"}}),
    ("headers", {"headers": {"x": "a\r\nb: c"}}), ("headers", {"headers": {"x": "é"}}),
    ("headers", {"headers": {str(n): "" for n in range(21)}}), ("headers", {"headers": {"x": "y" * 5000}}),
    ("headers", {"headers": {"x": "1", "X": "2"}}),
    ("secret", {"secret": ""}), ("secret", {"secret": "geheim"}), ("secret", {"secret": "whsec_" + "A" * 8}),
    ("secret", {"secret": "whsec_" + "A" * 4000}), ("secret", {"secret": "whsec_é"}), ("secret", {"secret": 1}),
    ("id", {"id": GONE}), ("tenant", {"tenant": "bob"}), ("enabled", {"enabled": False}),
]  # fmt: skip


async def test_what_cannot_be_an_endpoint_is_refused_and_named(http: httpx.AsyncClient) -> None:
    for name, change in BAD:
        asked = {key: value for key, value in ({"url": URL} | change).items() if value is not ...}
        error = refused(await http.post(ENDPOINTS, json=asked), 400, "invalid_request")
        assert (error["param"] or "").split(".")[0] == name, (change, error)
    assert await listed(http) == []


async def test_nor_is_an_endpoint_changed_to_that(http: httpx.AsyncClient) -> None:
    made = await register(http, events=["job.*"], description="mine", headers={"x": "y"})
    del made["secret"]
    for name, change in BAD:
        if ... not in change.values() and None not in change.values():
            error = refused(await http.post(f"{ENDPOINTS}/{made['id']}", json=change), 400, "invalid_request")
            assert (error["param"] or "").split(".")[0] == name, (change, error)
    assert (await http.get(f"{ENDPOINTS}/{made['id']}")).json() == made


NO_JSON = (b"", b"[]", b"null", b"{", b"\xff", b'{"url": NaN}', b'{"url": "a", "url": "b"}', b"1")


async def test_what_is_no_json_object_is_refused(http: httpx.AsyncClient) -> None:
    made = await register(http)
    for content in NO_JSON:
        for path in ("", f"/{made['id']}", f"/{made['id']}/recover"):
            refused(await http.post(ENDPOINTS + path, content=content, headers=JSON), 400, "invalid_request")
        if content:
            path = f"{ENDPOINTS}/{made['id']}/rotate"
            refused(await http.post(path, content=content, headers=JSON), 400, "invalid_request")
    refused(await http.post(ENDPOINTS, data={"url": URL}), 400, "invalid_request")
    refused(await http.post(f"{ENDPOINTS}/{made['id']}/rotate", data={"overlap_s": "0"}), 400, "invalid_request")
    refused(await http.post(ENDPOINTS, json={"url": URL, "description": "x" * 70_000}), 413, "payload_too_large")
    assert (await http.get(f"{ENDPOINTS}/{made['id']}/secret")).json()["secret"] == made["secret"]


@pytest.mark.parametrize(
    ("act", "name", "values"),
    [
        ("rotate", "overlap_s", [-1, 604_801, "1", True, 1e300, []]),
        ("rotate", "secret", ["", "geheim", 1, "whsec_" + "A" * 4000]),
        ("recover", "since", [-1, "now", None, True, 1e300, 10**30, 1_700_000_000_000]),
    ],
)
async def test_what_is_wrong_in_an_act_is_named(
    http: httpx.AsyncClient, act: str, name: str, values: list[object]
) -> None:
    id_ = (await register(http))["id"]
    for value in values:
        error = refused(await http.post(f"{ENDPOINTS}/{id_}/{act}", json={name: value}), 400, "invalid_request")
        assert error["param"] == name, (value, error)
    refused(await http.post(f"{ENDPOINTS}/{id_}/{act}", json={"since": 0, "more": 1}), 400, "invalid_request")


async def test_a_refusal_repeats_no_secret(http: httpx.AsyncClient) -> None:
    for wrong in ({"secret": "whsec_very!secret"}, {"headers": {"authorization": "very!secret\r\n"}}, {"secret": 7}):
        response = await http.post(ENDPOINTS, json={"url": URL} | wrong)
        refused(response, 400, "invalid_request")
        assert "very" not in response.text


@pytest.mark.parametrize("query", ["limit=0", "limit=51", "limit=x", "cursor=x", "cursor=" + "x" * 201])
async def test_a_list_that_cannot_be_given_is_refused(http: httpx.AsyncClient, query: str) -> None:
    error = refused(await http.get(f"{ENDPOINTS}?{query}"), 400, "invalid_request")
    assert error["param"] == query.partition("=")[0]


async def test_a_tenant_has_so_many_and_no_more(http: httpx.AsyncClient) -> None:
    for n in range(ENDPOINTS_MOST):
        await register(http, f"{URL}/{n}")
    error = refused(await http.post(ENDPOINTS, json={"url": URL}), 409, "illegal_transition")
    assert str(ENDPOINTS_MOST) in error["message"]
    await register(http, f"{URL}/0")
    response = await http.post(ENDPOINTS, json={"url": URL}, headers=BOB)
    assert response.status_code == 201


# --- the guard --------------------------------------------------------------------------------------------------------


async def test_who_names_an_inside_address_is_told_what_would_allow_it(http: httpx.AsyncClient) -> None:
    error = refused(await http.post(ENDPOINTS, json={"url": "http://10.1.2.3/hook"}), 400, "invalid_request")
    assert "FAIRLANE_WEBHOOK_ALLOW" in error["message"]


@pytest.mark.parametrize("settings", [{"webhook_allow": "10.0.0.0/8,*.internal:9000"}], indirect=True)
async def test_what_the_settings_allow_is_allowed(http: httpx.AsyncClient) -> None:
    for url in ("http://10.1.2.3/hook", "http://hooks.internal:9000/"):
        assert (await register(http, url))["url"] == url
    for url in ("http://192.168.1.1/hook", "http://hooks.internal:9001/"):
        refused(await http.post(ENDPOINTS, json={"url": url}), 400, "invalid_request")


# --- when something is away -------------------------------------------------------------------------------------------


async def test_without_redis_it_is_said(http: httpx.AsyncClient, state: State) -> None:
    made = await register(http)
    await state.queue.store.close()
    for method, act in ACTS:
        refused(await call(http, method, made["id"], act), 503, "store_unavailable")
    refused(await http.post(ENDPOINTS, json={"url": URL}), 503, "store_unavailable")
    refused(await http.get(ENDPOINTS), 503, "store_unavailable")


async def test_a_front_door_that_is_about_to_end_takes_no_more_work(http: httpx.AsyncClient, state: State) -> None:
    made = await register(http)
    state.closing.set()
    refused(await http.post(ENDPOINTS, json={"url": URL}), 503, "draining")
    for act in ("/test", "/recover"):
        refused(await call(http, "POST", made["id"], act), 503, "draining")
    assert (await http.get(f"{ENDPOINTS}/{made['id']}")).status_code == 200
