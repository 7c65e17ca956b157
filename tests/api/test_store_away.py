"""Case 18: Redis freezes, or is gone. Nothing hangs, readiness tells the truth, and all recovers by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest

from fairlane.errors import StoreUnavailable
from fairlane.model import BackendSpec, Policy
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.inspection import Inspection
from fairlane.queue.pools import Pool
from fairlane.settings import Settings
from producer import waiting
from producer.api import app as door
from producer.api.app import create_app
from tests.api.door import ANN, CHAT, JOB, refused, submit
from tests.contract.acts import set_gate, take_one
from tests.dispatcher.scripted import until
from tests.servers import ValkeyServer

STORE_TIMEOUT_S = 0.5
WITHIN_S = STORE_TIMEOUT_S + 1.5  # on a busy machine


@pytest.fixture(scope="module")
def own() -> Iterator[ValkeyServer]:
    """A server that this module may freeze and kill."""
    with ValkeyServer() as server:
        yield server


@pytest.fixture
async def queue(own: ValkeyServer, namespace: str) -> AsyncIterator[Queue]:
    made = await Queue.open(own.url, namespace=namespace, timeout_s=10.0)
    yield made
    await made.close()


@pytest.fixture
async def pool(queue: Queue) -> Pool:
    made = await queue.pools.open("llama", Policy(stale_ms=3_600_000))
    await queue.set_backend(made, "b1", "add", spec=BackendSpec("http://scripted"))
    await set_gate(queue, made, "b1", 1000)
    return made


@pytest.fixture
async def http(
    own: ValkeyServer, namespace: str, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.setattr(door, "STORE_TIMEOUT_S", STORE_TIMEOUT_S)
    async with client_of(own, namespace) as made:
        yield made


@asynccontextmanager
async def client_of(server: ValkeyServer, namespace: str) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(redis_url=server.url, namespace=namespace, auth="open"))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://door", headers=ANN) as client,
    ):
        yield client


def thaw(server: ValkeyServer) -> None:
    os.kill(server.pid, signal.SIGCONT)


EVERY_CALL = [
    ("POST", "/v1/jobs", JOB),
    ("POST", "/v1/jobs", {"jobs": [JOB] * 100}),
    ("POST", "/v1/jobs", {"jobs": [JOB | {"model": f"m{n}"} for n in range(100)]}),
    ("GET", "/v1/jobs", None),
    ("GET", "/v1/jobs/{id}", None),
    ("GET", "/v1/jobs/{id}?wait=60", None),
    ("DELETE", "/v1/jobs/{id}", None),
    ("POST", "/v1/jobs/{id}/requeue", None),
    ("GET", "/v1/jobs/{id}/explain", None),
    ("POST", "/v1/chat/completions", CHAT),
    ("POST", "/v1/embeddings", CHAT),
    ("GET", "/v1/files", None),
    ("GET", "/v1/files/x/content", None),
    ("DELETE", "/v1/files/x", None),
    ("GET", "/v1/batches", None),
    ("GET", "/v1/batches/x", None),
    ("POST", "/v1/batches/x/cancel", None),
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/llama", None),
    ("GET", "/metrics", None),
]


async def every_call(http: httpx.AsyncClient, job_id: str) -> list[httpx.Response]:
    """All of them at once, many times."""
    asked = [http.request(m, path.format(id=job_id), json=body) for m, path, body in EVERY_CALL]
    asked += [http.post("/v1/jobs", json=JOB) for _ in range(100)]  # more than there are connections
    return list(await asyncio.gather(*asked))


async def ready(http: httpx.AsyncClient) -> bool:
    return (await http.get("/health/ready")).status_code == 200


async def test_while_redis_is_frozen_every_call_is_refused_in_time_and_afterwards_all_is_well(
    http: httpx.AsyncClient, own: ValkeyServer
) -> None:
    job = await submit(http)
    assert await ready(http)
    os.kill(own.pid, signal.SIGSTOP)
    try:
        for _ in range(2):  # the second time there is no connection left from before
            began = time.monotonic()
            for response in await every_call(http, job["id"]):
                refused(response, 503, "store_unavailable")
            assert time.monotonic() - began < WITHIN_S
        response = await http.get("/health/ready")
        assert response.status_code == 503
        assert response.json()["status"] == "not_ready"
        assert "store_unavailable" in response.json()["reasons"][0]
        assert int(response.headers["retry-after"]) >= 1
        assert (await http.get("/health/live")).json() == {"status": "live"}
    finally:
        thaw(own)
    await until(lambda: ready(http))
    assert (await http.delete(f"/v1/jobs/{job['id']}")).json()["state"] == "cancelled"
    assert (await http.post("/v1/jobs", json=JOB)).status_code == 202


async def test_who_waited_when_redis_froze_gets_the_outcome(
    http: httpx.AsyncClient, own: ValkeyServer, queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "REREAD_S", (0.1, 0.1))  # so that they do notice
    job = await submit(http)
    polls = [asyncio.create_task(http.get(f"/v1/jobs/{job['id']}", params={"wait": 60})) for _ in range(5)]
    chat = asyncio.create_task(http.post("/v1/chat/completions", json=CHAT))
    await subscribed(own, pool, 2)
    os.kill(own.pid, signal.SIGSTOP)
    await asyncio.sleep(3 * STORE_TIMEOUT_S)
    thaw(own)
    for _ in range(2):
        await queue.settle(pool, await take_one(queue, pool), "succeeded", status=200, result=b'{"a":1}')
    async with asyncio.timeout(10):
        for poll in polls:
            assert (await poll).json()["state"] == "succeeded"
        assert (await chat).json() == {"a": 1}
    later = await submit(http)  # the subscription has recovered as well
    poll = asyncio.create_task(http.get(f"/v1/jobs/{later['id']}", params={"wait": 60}))
    await subscribed(own, pool, 1)
    await queue.cancel(later["id"])
    async with asyncio.timeout(5):
        assert (await poll).json()["state"] == "cancelled"


async def test_a_long_poll_whose_time_is_up_while_redis_is_away_is_refused(
    http: httpx.AsyncClient, own: ValkeyServer, pool: Pool
) -> None:
    job = await submit(http)
    poll = asyncio.create_task(http.get(f"/v1/jobs/{job['id']}", params={"wait": 0.7}))
    await subscribed(own, pool, 1)
    os.kill(own.pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(0.7 + WITHIN_S):
            refused(await poll, 503, "store_unavailable")
    finally:
        thaw(own)


async def test_who_waits_is_told_when_redis_stays_away(
    http: httpx.AsyncClient, own: ValkeyServer, queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is told the job's id, since it goes on."""
    monkeypatch.setattr(waiting, "REREAD_S", (0.1, 0.1))
    monkeypatch.setattr(waiting, "OUTAGE_S", 1.0)
    chat = asyncio.create_task(http.post("/v1/chat/completions", json=CHAT))
    await subscribed(own, pool, 1)
    os.kill(own.pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(1.0 + 2 * WITHIN_S):
            response = await chat
    finally:
        thaw(own)
    refused(response, 503, "store_unavailable")
    job = (await http.get(f"/v1/jobs/{response.headers['x-fairlane-job-id']}")).json()
    assert job["state"] == "queued"


async def test_a_front_door_that_starts_before_redis_waits_for_it(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "STORE_TIMEOUT_S", STORE_TIMEOUT_S)
    with ValkeyServer() as server:
        os.kill(server.pid, signal.SIGSTOP)
        async with client_of(server, namespace) as http:
            assert not await ready(http)
            refused(await http.post("/v1/jobs", json=JOB), 503, "store_unavailable")
            thaw(server)
            await until(lambda: ready(http))
            refused(await http.post("/v1/jobs", json=JOB), 404, "model_not_found")


async def test_a_redis_that_is_gone_is_said_at_once(namespace: str) -> None:
    with ValkeyServer() as server:
        async with client_of(server, namespace) as http:
            assert await ready(http)
            server.kill()
            began = time.monotonic()
            refused(await http.post("/v1/jobs", json=JOB), 503, "store_unavailable")
            assert time.monotonic() - began < WITHIN_S
            assert not await ready(http)
            assert (await http.get("/health/live")).status_code == 200


async def test_what_was_taken_in_is_said_even_if_no_more_can_be_read(
    own: ValkeyServer, namespace: str, pool: Pool, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object) -> None:
        raise StoreUnavailable(retry_after=1)

    for name in ("outcome", "jobs", "explain"):
        with monkeypatch.context() as patched:
            patched.setattr(Inspection, name, silent)
            async with client_of(own, namespace) as http:
                one = await http.post("/v1/jobs", json=JOB)
                many = await http.post("/v1/jobs", json={"jobs": [JOB, JOB]})
        assert (one.status_code, many.status_code) == (202, 202)
        assert one.headers["location"] == f"/v1/jobs/{one.json()['id']}"
        for job in (one.json(), *many.json()["jobs"]):
            assert (await queue.inspect.job(job["id"])).state == "queued"


async def test_a_full_redis_refuses_what_is_new_and_shows_what_is_there(
    http: httpx.AsyncClient, own: ValkeyServer
) -> None:
    job = await submit(http)
    with own.client() as client:
        client.config_set("maxmemory", 1)
        try:
            refused(await http.post("/v1/jobs", json=JOB), 503, "store_full")
            refused(await http.post("/v1/jobs", json={"jobs": [JOB] * 3}), 503, "store_full")
            refused(await http.post("/v1/chat/completions", json=CHAT), 503, "store_full")
            assert "store_full" in (await http.get("/health/ready")).json()["reasons"][0]
            assert (await http.get(f"/v1/jobs/{job['id']}")).json()["state"] == "queued"
            assert (await http.delete(f"/v1/jobs/{job['id']}")).json()["state"] == "cancelled"
        finally:
            client.config_set("maxmemory", 0)
    assert await ready(http)
    assert (await http.post("/v1/jobs", json=JOB)).status_code == 202


async def test_data_of_another_schema_keeps_it_from_starting(own: ValkeyServer, queue: Queue, namespace: str) -> None:
    with own.client() as client:
        (key,) = client.keys(f"{namespace}:*schema*")  # type: ignore[misc]
        client.hset(key, "schema", "999")
    with pytest.raises(Exception, match="schema 999"):
        async with client_of(own, namespace):
            pass


async def subscribed(server: ValkeyServer, pool: Pool, n: int) -> None:
    client = connect(server.url)

    async def are() -> bool:
        return len(await client.pubsub_channels(pool.key("settled", "*"))) == n  # type: ignore[union-attr]

    await until(are)
    await client.aclose()
