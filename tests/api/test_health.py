"""What those who run it look at, and what keeps it from starting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.process import PortInUse
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.settings import Settings
from producer.api.app import create_app
from producer.api.state import State
from producer.serve import ApiOptions, start
from tests.api.door import submit
from tests.servers import ValkeyServer


@pytest.fixture
async def under_up(settings: Settings, queue: Queue) -> AsyncIterator[httpx.AsyncClient]:
    """A front door that needs a dispatcher, and no pool yet."""
    app = create_app(settings, needs_dispatcher=True)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://door") as client,
    ):
        yield client


async def test_ready_says_so(http: httpx.AsyncClient) -> None:
    response = await http.get("/health/ready")
    assert (response.status_code, response.json()) == (200, {"status": "ready"})


async def test_under_up_each_pool_needs_a_dispatcher_and_a_backend_that_was_seen(
    under_up: httpx.AsyncClient, queue: Queue
) -> None:
    assert (await under_up.get("/health/ready")).status_code == 200
    pool = await queue.pools.open("llama", Settings().policy)
    await queue.set_backend(pool, "b1", "add")

    async def reasons() -> list[str]:
        response = await under_up.get("/health/ready")
        assert response.status_code == 503
        assert response.json()["status"] == "not_ready"
        assert int(response.headers["retry-after"]) >= 1
        return [reason.partition(":")[0] for reason in response.json()["reasons"]]

    assert await reasons() == ["no_dispatcher"]
    await queue.beat(pool, "d1", "{}")
    assert await reasons() == ["no_scrape"]
    await queue.observe(pool, "b1", {}, counted=(await queue.inspect.backend(pool, "b1")).counts)
    assert (await under_up.get("/health/ready")).status_code == 200
    await queue.set_backend(pool, "b1", "down")  # a dead backend does not unready a queue
    assert (await under_up.get("/health/ready")).status_code == 200
    await queue.set_backend(pool, "b1", "remove")  # nor a pool that nobody needs any more
    assert (await under_up.get("/health/ready")).status_code == 200


async def test_it_is_not_ready_while_it_drains(http: httpx.AsyncClient, state: State) -> None:
    state.closing.set()
    response = await http.get("/health/ready")
    assert (response.status_code, response.json()["reasons"]) == (503, ["draining"])
    assert (await http.get("/health/live")).status_code == 200


async def test_metrics_are_prometheus_text(http: httpx.AsyncClient, pool: Pool) -> None:
    await submit(http)
    response = await http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    depth = {sample.labels["tier"]: sample.value for sample in families["fairlane_queue_depth"].samples}
    assert depth == {"priority": 0, "default": 1, "flex": 0, "batch": 0}
    assert "fairlane_oldest_waiting_seconds" in families
    assert families["fairlane_backend_inflight"].samples[0].labels == {"pool": "llama", "backend": "b1"}
    webhooks = {sample.labels["state"]: sample.value for sample in families["fairlane_webhooks_waiting"].samples}
    assert webhooks == {"due": 0, "pending": 0}
    assert {sample.labels["outcome"] for sample in families["fairlane_webhooks"].samples} == {
        "delivered", "failed", "retried",
    }  # fmt: skip


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::"],
)
def test_it_does_not_start_where_anyone_could_be_anyone(valkey: ValkeyServer, host: str) -> None:
    with pytest.raises(InvalidRequest, match="loopback only"):
        start(ApiOptions(host=host), redis_url=valkey.url, namespace=None, auth="open")


async def test_with_keys_it_may_be_reached_from_everywhere(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLANE_AUTH", "keys")
    taken = await asyncio.start_server(lambda *_: None, "0.0.0.0", 0)
    options = ApiOptions(host="0.0.0.0", port=taken.sockets[0].getsockname()[1])
    with pytest.raises(PortInUse):  # which is looked at last
        await asyncio.to_thread(start, options, redis_url=valkey.url, namespace=None, auth=None)
    taken.close()
    await taken.wait_closed()


def test_it_does_not_start_without_a_redis_to_go_to() -> None:
    with pytest.raises(InvalidRequest, match="--redis"):
        start(ApiOptions(), redis_url=None, namespace=None, auth="open")


async def test_it_says_so_when_its_port_is_taken(valkey: ValkeyServer) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    with pytest.raises(FairlaneError, match=f"Port {port} is in use"):
        await asyncio.to_thread(start, ApiOptions(port=port), redis_url=valkey.url, namespace=None, auth="open")
    taken.close()
    await taken.wait_closed()


async def test_a_fault_of_our_own_is_an_error_in_the_same_shape(
    http: httpx.AsyncClient, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(model: str, caller: object) -> None:
        raise RuntimeError("a bug")

    state: State = app.state.fairlane
    monkeypatch.setattr(state.intake, "pool", breaks)
    response = await http.post("/v1/jobs", json={"model": "llama", "body": {}})
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal")
    assert "a bug" not in response.text
