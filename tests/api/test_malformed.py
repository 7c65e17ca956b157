"""Requests of every malformed kind get a clear 4xx, and nothing of them reaches the queue."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.api.door import CHAT, JOB, refused, submit

JSON = {"content-type": "application/json"}
PATHS = ("/v1/jobs", "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
LIMIT = 100_000
pytestmark = pytest.mark.parametrize("settings", [{"max_body_bytes": LIMIT}], indirect=True)


def deep(n: int, opening: str = "[", closing: str = "]") -> bytes:
    return f'{{"model":"llama","body":{{"x":{opening * n}1{closing * n}}},"x":{opening * n}1{closing * n}}}'.encode()


NO_JSON = {
    "empty": b"",
    "blank": b"  \n",
    "cut short": b'{"model":"llama","body":{',
    "two values": b"{}{}",
    "not UTF-8": b'{"model":"\xff\xfe","body":{}}',
    "latin-1": '{"model":"é","body":{}}'.encode("latin-1"),
    "UTF-16": json.dumps(JOB).encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + json.dumps(JOB).encode(),
    "NaN": b'{"model":"llama","body":{"temperature":NaN}}',
    "Infinity": b'{"model":"llama","body":{"temperature":-Infinity}}',
    "beyond a double": b'{"model":"llama","body":{"temperature":1e999}}',
    "a number of 5,000 digits": b'{"model":"llama","body":{"seed":' + b"9" * 5000 + b"}}",
    "half a pair": rb'{"model":"llama","body":{"x":"\ud83d"}}',
    "the other half": rb'{"model":"llama","body":{"x":"\udE00 \\ud83d"}}',
    "half a pair in a name": rb'{"model":"llama","body":{"\ud83d":1}}',
    "a name twice": b'{"model":"llama","model":"other","body":{}}',
    "a name twice within": b'{"model":"llama","body":{"a":[{"b":1,"b":2}]}}',
    "nested 200 deep": deep(200),
    "nested without end": b"[" * 90_000,
    "objects within objects": deep(140, '{"a":', "}"),
    "a list": b"[]",
    "a text": b'"llama"',
    "a number": b"1",
    "null": b"null",
    "single quotes": b"{'model':'llama'}",
    "a comment": b'{"model":"llama","body":{}} // please',
    "a form": b"model=llama&body=1",
}


@pytest.fixture(autouse=True)
async def nothing_reaches_the_queue(queue: Queue, pool: Pool) -> AsyncIterator[None]:
    """Whatever came was refused before."""
    yield
    overview = await queue.inspect.overview(pool)
    assert (sum(tier.depth for tier in overview.tiers), overview.delayed, overview.leased) == (0, 0, 0)


@pytest.mark.parametrize("path", PATHS)
async def test_what_is_no_json_object_is_refused(http: httpx.AsyncClient, path: str) -> None:
    for kind, content in NO_JSON.items():
        response = await http.post(path, content=content, headers=JSON)
        assert response.status_code == 400, kind
        assert refused(response, 400, "invalid_request")["type"] == "invalid_request_error"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json", ""])
async def test_another_content_type_is_refused_and_the_right_one_named(http: httpx.AsyncClient, kind: str) -> None:
    headers = {"content-type": kind} if kind else {}
    for path in PATHS:
        response = await http.post(path, content=json.dumps(CHAT).encode(), headers=headers)
        assert "application/json" in refused(response, 400, "invalid_request")["message"]


WRONG_FIELDS: list[dict[str, Any]] = [
    {"model": None}, {"model": 7}, {"model": ""}, {"model": "x" * 257}, {"model": "a\nb"}, {"model": ["llama"]},
    {"endpoint": "/v1/nothing"}, {"endpoint": "/v1/chat/completions?x"}, {"endpoint": "../secret"}, {"endpoint": 1},
    {"body": None}, {"body": []}, {"body": "x"}, {"body": {"model": "other"}}, {"body": {"model": None}},
    {"body": {"stream": 1}}, {"body": {"stream": "yes"}},
    {"tier": 1}, {"tenant": "a b"}, {"tenant": ""}, {"tenant": 1}, {"tenant": "ann\n"},
    {"idempotency_key": ""}, {"idempotency_key": "k" * 513}, {"idempotency_key": 1},
    {"delay_s": -1}, {"delay_s": "1"}, {"delay_s": True}, {"delay_s": 1e12}, {"delay_s": 10**400},
    {"deadline_s": 0}, {"deadline_s": -1}, {"deadline_s": "soon"}, {"timeout_s": 0}, {"timeout_s": -0.5},
    {"max_attempts": 0}, {"max_attempts": 101}, {"max_attempts": 1.5}, {"max_attempts": "3"}, {"max_attempts": 10**40},
    {"metadata": []}, {"metadata": "x"}, {"webhook": "http://x"}, {"webhook": {}}, {"webhook": {"url": 1}},
    {"webhook": {"url": "http://x", "more": 1}}, {"priority": 1}, {"job": []},
]  # fmt: skip


async def test_a_field_that_is_wrong_is_named(http: httpx.AsyncClient) -> None:
    for wrong in WRONG_FIELDS:
        response = await http.post("/v1/jobs", json=JOB | wrong)
        error = response.json()["error"]
        assert (response.status_code, error["code"]) in ((400, "invalid_request"), (403, "tenant_forbidden")), wrong
        refused(response, response.status_code, error["code"])
        (name,) = wrong
        assert error["param"].split(".")[0] in (name, "stream"), (wrong, error)
        alone = await http.post("/v1/jobs", json={"jobs": [JOB | wrong]})
        assert alone.json()["jobs"][0]["error"] == error


async def test_what_is_missing_is_named(http: httpx.AsyncClient) -> None:
    for name in ("model", "body"):
        job = {key: value for key, value in JOB.items() if key != name}
        assert refused(await http.post("/v1/jobs", json=job), 400, "invalid_request")["param"] == name
    for path in PATHS[1:]:
        assert refused(await http.post(path, json={"messages": []}), 400, "invalid_request")["param"] == "model"


async def test_a_model_that_nobody_serves_is_not_found(http: httpx.AsyncClient) -> None:
    for name in ("nobody's", "pool:{x}", "*", "é", "a" * 256):
        refused(await http.post("/v1/jobs", json=JOB | {"model": name}), 404, "model_not_found")
        refused(await http.post("/v1/chat/completions", json=CHAT | {"model": name}), 404, "model_not_found")
        refused(await http.get(f"/v1/models/{name}"), 404, "model_not_found")


QUERIES = [
    "limit=0", "limit=101", "limit=x", "limit=1e3", "limit=", "limit=99999999999999999999999",
    "state=nothing", "state=",
    "cursor=x", "cursor=1", "cursor=1.x", "cursor=-1.0", "cursor=..", "cursor=99999999999.0", "cursor=²",
    f"cursor={'1' * 201}",
]  # fmt: skip


async def test_a_query_that_is_wrong_is_refused(http: httpx.AsyncClient) -> None:
    for query in QUERIES:
        error = refused(await http.get(f"/v1/jobs?{query}"), 400, "invalid_request")
        assert error["param"] == query.partition("=")[0]


async def test_a_cursor_beyond_the_end_is_an_empty_page(http: httpx.AsyncClient) -> None:
    for cursor in ("99999.0", "0.9999999999999999", "4.9999999999999999"):
        assert (await http.get("/v1/jobs", params={"cursor": cursor})).json()["data"] == []


async def test_a_wait_that_is_wrong_is_refused(http: httpx.AsyncClient) -> None:
    for wait in ("-1", "61", "nan", "inf", "x", "", "1e9"):
        error = refused(await http.get("/v1/jobs/job_x", params={"wait": wait}), 400, "invalid_request")
        assert error["param"] == "wait"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("GET", "/v2/jobs", 404, "not_found"),
        ("POST", "/v1/images/generations", 404, "not_found"),
        ("GET", "/v1/jobs/", 404, "not_found"),
        ("PUT", "/v1/jobs", 405, "method_not_allowed"),
        ("PATCH", "/v1/jobs/job_x", 405, "method_not_allowed"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("POST", "/health/live", 405, "method_not_allowed"),
    ],
)
async def test_what_is_not_there_is_said_in_the_same_shape(
    http: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    response = await http.request(method, path)
    refused(response, status, code)
    assert ("allow" in response.headers) == (status == 405)


async def test_a_body_above_the_limit_is_refused_and_one_at_the_limit_is_not(http: httpx.AsyncClient) -> None:
    def chat(size: int) -> bytes:
        packed = json.dumps({"model": "llama", "user": ""}, separators=(",", ":")).encode()
        return packed.replace(b'""', b'"%b"' % (b"x" * (size - len(packed))))

    for path in PATHS[1:]:
        refused(await http.post(path, content=chat(LIMIT + 1), headers=JSON), 413, "payload_too_large")
    job = {"model": "llama", "body": json.loads(chat(LIMIT))}
    taken = await submit(http, **job)
    await http.delete(f"/v1/jobs/{taken['id']}")
    job["body"]["user"] += "x"
    refused(await http.post("/v1/jobs", json=job), 413, "payload_too_large")
    answers = (await http.post("/v1/jobs", json={"jobs": [job, JOB]})).json()["jobs"]
    assert answers[0]["error"]["code"] == "payload_too_large"
    await http.delete(f"/v1/jobs/{answers[1]['id']}")


async def test_a_body_without_a_length_is_counted_while_it_comes(http: httpx.AsyncClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b'{"model":"llama","x":"'
        for _ in range(20):
            yield b"x" * LIMIT

    for path in PATHS:
        response = await http.post(path, content=endless(), headers=JSON)
        refused(response, 413, "payload_too_large")
        assert response.headers["connection"] == "close"


async def test_metadata_is_bounded_by_itself(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/jobs", json=JOB | {"metadata": {"x": "x" * 70_000}})
    assert refused(response, 413, "payload_too_large")["param"] == "metadata"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-fairlane-tier", "é"),
        ("x-fairlane-tier", "default, priority"),
        ("idempotency-key", ""),
        ("idempotency-key", "k" * 513),
        ("authorization", "Bearer é"),
    ],
)
async def test_headers_that_are_wrong_are_refused(http: httpx.AsyncClient, name: str, value: str) -> None:
    response = await http.post("/v1/chat/completions", json=CHAT, headers={name.encode(): value.encode()})
    refused(response, 400, "unknown_tier" if name == "x-fairlane-tier" else "invalid_request")
