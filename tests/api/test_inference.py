"""OpenAI's endpoints: the backend's answer comes back unchanged, or an error of ours says why there is none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from dispatcher.backends.answer import Answer, CallFailed
from fairlane.accounts import Caller
from fairlane.model import Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from producer.api.state import State
from producer.intake import JobRequest
from tests.api.door import BOB, CHAT, Served, refused, request_bytes
from tests.dispatcher.scripted import (
    Script,
    answer,
    fail,
    finished,
    hang,
    make_worker,
    until,
    working,
)

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")


@pytest.fixture
async def worker(queue: Queue, pool: Pool, signals: Signals, script: Script) -> AsyncIterator[None]:
    """Serves the pool."""
    async with working(make_worker(queue, pool, script, drain_s=0.0), signals):
        yield


@pytest.mark.usefixtures("worker")
class TestServed:
    @pytest.mark.parametrize("endpoint", ENDPOINTS)
    async def test_the_backends_answer_is_unchanged_and_says_where_it_came_from(
        self, http: httpx.AsyncClient, script: Script, queue: Queue, endpoint: str
    ) -> None:
        body = ' {"id": "x",\n "a": [1.50, "\\u00e9é"], "a": NaN, "s": "\\ud83d"}\n'.encode()
        script.then(answer(Answer(200, body)))
        response = await http.post(endpoint, json=CHAT)
        assert (response.status_code, response.content) == (200, body)
        assert response.headers["content-type"] == "application/json"
        assert response.headers["x-fairlane-job-id"] == script.calls[0]
        assert response.headers["x-fairlane-backend"] == "b1"
        assert 0 <= int(response.headers["x-fairlane-queued-ms"]) < 60_000
        job = await queue.inspect.job(script.calls[0])
        assert (job.tenant, job.tier, job.state) == ("ann", "default", "succeeded")
        assert json.loads(job.body or b"") == CHAT

    @pytest.mark.parametrize("status", [201, 204, 400, 401, 404, 413, 418, 422])
    async def test_a_backends_own_status_comes_back_at_once(
        self, http: httpx.AsyncClient, script: Script, status: int
    ) -> None:
        body = b"" if status == 204 else b'{"detail": "as the backend says it"}'
        script.then(answer(Answer(status, body)))
        response = await http.post(ENDPOINTS[0], json=CHAT)
        assert (response.status_code, response.content) == (status, body)
        assert len(script.calls) == 1

    @pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
    async def test_a_backends_failure_comes_back_after_its_attempts(
        self, http: httpx.AsyncClient, script: Script, status: int
    ) -> None:
        script.then(answer(Answer(status, b"<h1>Busy</h1>")))
        response = await http.post("/v1/jobs", json={"model": "llama", "body": {}, "max_attempts": 1})
        job = (await http.get(f"/v1/jobs/{response.json()['id']}", params={"wait": 20})).json()
        assert (job["state"], job["dead"]) == ("failed", True)
        assert job["result"] == {"status": status, "body": "<h1>Busy</h1>"}

    @pytest.mark.parametrize("body", [b"", b"<h1>Busy</h1>", b'{"a":1}', b"\xff\x00"])
    @pytest.mark.parametrize("settings", [{"max_attempts": 1}], indirect=True)
    async def test_whatever_its_body(self, http: httpx.AsyncClient, script: Script, body: bytes) -> None:
        for status in (400, 429, 500, 503):
            script.then(answer(Answer(status, body)))
            response = await http.post(ENDPOINTS[0], json=CHAT)
            assert (response.status_code, response.content) == (status, body)
            assert ("retry-after" in response.headers) == (status in (429, 503))
            assert response.headers["content-type"].startswith(
                "text/plain" if body[:1] in (b"<", b"\xff") else "application/json"
            )

    @pytest.mark.parametrize(
        ("fault", "status", "code"),
        [
            (CallFailed("reset", "It broke the connection."), 502, "backend_unreachable"),
            (CallFailed("timeout", "It did not answer."), 504, "timeout"),
            (CallFailed("idle_timeout", "It fell silent."), 504, "timeout"),
            (CallFailed("too_large", "Its answer is too large."), 502, "backend_unreachable"),
            (CallFailed("unsuitable", "It cannot be sent."), 400, "invalid_request"),
            (RuntimeError("a fault of our own"), 500, "internal"),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("settings", [{"max_attempts": 1}], indirect=True)
    async def test_no_answer_is_an_error_of_ours(
        self, http: httpx.AsyncClient, script: Script, fault: Exception, status: int, code: str
    ) -> None:
        script.then(fail(fault))
        response = await http.post(ENDPOINTS[0], json=CHAT)
        refused(response, status, code)
        assert response.headers["x-fairlane-job-id"] == script.calls[0]

    async def test_a_cancel_from_elsewhere_is_told_to_the_caller(self, http: httpx.AsyncClient, script: Script) -> None:
        script.then(hang)
        waiting = asyncio.create_task(http.post(ENDPOINTS[0], json=CHAT))
        await script.began.wait()
        assert (await http.delete(f"/v1/jobs/{script.calls[0]}")).json()["state"] == "cancelled"
        response = await waiting
        refused(response, 409, "job_cancelled")
        assert response.headers["x-fairlane-job-id"] == script.calls[0]

    async def test_a_caller_who_hangs_up_cancels_down_to_the_backend(
        self, door: Served, queue: Queue, script: Script
    ) -> None:
        """Case 17."""
        script.then(hang)
        _, writer = await door.connect()
        writer.write(request_bytes(ENDPOINTS[0], json.dumps(CHAT).encode()))
        await script.began.wait()
        writer.close()
        await until(lambda: _is(script.aborted == script.calls))
        assert (await finished(queue, script.calls[0])).state == "cancelled"

    async def test_with_an_idempotency_key_the_job_goes_on_and_is_joined_again(
        self, door: Served, queue: Queue, script: Script
    ) -> None:
        script.then(answer(Answer(200, b'{"n":1}'), after_s=0.3), answer(Answer(200, b'{"n":2}')))
        _, writer = await door.connect()
        writer.write(request_bytes(ENDPOINTS[0], json.dumps(CHAT).encode(), "idempotency-key: k1"))
        await script.began.wait()
        writer.close()
        await writer.wait_closed()
        async with door.client() as http:
            response = await http.post(ENDPOINTS[0], json=CHAT, headers={"idempotency-key": "k1"})
            other = await http.post(ENDPOINTS[0], json=CHAT | {"seed": 1}, headers={"idempotency-key": "k1"})
        assert (response.json(), len(script.calls)) == ({"n": 1}, 1)
        refused(other, 409, "idempotency_mismatch")

    async def test_the_tiers_header_goes_before_the_service_tier(self, http: httpx.AsyncClient, queue: Queue) -> None:
        asked = CHAT | {"service_tier": "flex"}
        for headers, tier in (({}, "flex"), ({"x-fairlane-tier": "batch"}, "batch")):
            response = await http.post(ENDPOINTS[0], json=asked, headers=headers)
            job = await queue.inspect.job(response.headers["x-fairlane-job-id"])
            assert job.tier == tier
            assert json.loads(job.body or b"") == CHAT


async def test_a_caller_who_hangs_up_while_it_waits_leaves_the_line(door: Served, queue: Queue, pool: Pool) -> None:
    _, writer = await door.connect()
    writer.write(request_bytes(ENDPOINTS[0], json.dumps(CHAT).encode()))
    await until(lambda: _depth_is(queue, pool, 1))
    writer.close()
    await until(lambda: _depth_is(queue, pool, 0))


async def test_a_job_that_expires_is_a_504(http: httpx.AsyncClient, queue: Queue, pool: Pool, state: State) -> None:
    """Case 4, for who waits on the connection. (A deadline is set by /v1/jobs; the same key joins that job.)"""
    asked = JobRequest("llama", ENDPOINTS[0], CHAT, idempotency_key="k", deadline_s=0.05)
    await queue.submit(pool, state.intake.spec(asked, pool, Caller("ann")))
    waiting = asyncio.create_task(http.post(ENDPOINTS[0], json=CHAT, headers={"idempotency-key": "k"}))

    async def expired() -> bool:
        return (await queue.sweep(pool)).expired == 1

    await until(expired)
    refused(await waiting, 504, "expired")


async def test_a_request_is_nobody_elses(http: httpx.AsyncClient, queue: Queue, pool: Pool) -> None:
    waiting = asyncio.create_task(http.post(ENDPOINTS[0], json=CHAT))
    await until(lambda: _depth_is(queue, pool, 1))
    (job,), _ = await queue.inspect.line(pool, "default", "ann")
    refused(await http.delete(f"/v1/jobs/{job.id}", headers=BOB), 404, "not_found")
    await http.delete(f"/v1/jobs/{job.id}")
    refused(await waiting, 409, "job_cancelled")


async def test_models_are_the_pools(http: httpx.AsyncClient, queue: Queue) -> None:
    await queue.set_backend(await queue.pools.open("org/model:7b {x}", Policy()), "b1", "add")
    await queue.pools.open("nobody works for it", Policy())
    listed = (await http.get("/v1/models")).json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["llama", "org/model:7b {x}"]
    assert (await http.get("/v1/models/org/model:7b {x}")).json() == listed["data"][1]
    assert listed["data"][1].keys() == {"id", "object", "created", "owned_by"}


async def _is(what: bool) -> bool:
    return what


async def _depth_is(queue: Queue, pool: Pool, n: int) -> bool:
    return sum(tier.depth for tier in (await queue.inspect.overview(pool)).tiers) == n
