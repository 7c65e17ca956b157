"""Each fault on demand is what it says, from the start and live."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import anyio
import httpx
import pytest

from dispatcher.backends.simulated import Faults, Options
from dispatcher.backends.timing import Speed
from tests.simulated.running import completion, numbers, running, until

PATH = "/v1/completions"
QUICK = Speed(step_ms=1)


async def test_the_faults_are_shown_and_replaced(client: httpx.AsyncClient) -> None:
    given = {"error_share": 0.5, "error_status": 503}
    assert (await client.post("/faults", json=given)).json() == (await client.get("/faults")).json()
    assert (await client.get("/faults")).json()["error_share"] == 0.5
    assert (await client.post("/faults", json={})).json()["error_share"] == 0


@pytest.mark.parametrize(
    "wrong",
    [{"error_share": 2}, {"error_share": "often"}, {"typo": 1}, {"hang_share": 0.6, "reset_share": 0.6}, []],
)
async def test_faults_that_make_no_sense_are_refused_and_change_nothing(
    client: httpx.AsyncClient, wrong: object
) -> None:
    before = (await client.get("/faults")).json()
    assert (await client.post("/faults", json=wrong)).status_code == 400
    assert (await client.get("/faults")).json() == before


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_errors_come_with_their_status_and_retry_after(client: httpx.AsyncClient, status: int) -> None:
    await client.post("/faults", json={"error_share": 1, "error_status": status, "retry_after_s": 7})
    answer = await client.post(PATH, json=completion())
    assert answer.status_code == answer.json()["error"]["code"] == status
    assert answer.headers["retry-after"] == "7"
    assert (await client.get("/health")).status_code == 200


async def test_a_share_of_the_requests_is_hit(client: httpx.AsyncClient) -> None:
    await client.post("/faults", json={"error_share": 0.5})
    statuses = [(await client.post(PATH, json=completion(max_tokens=1))).status_code for _ in range(40)]
    assert 8 < statuses.count(500) < 32
    assert statuses.count(500) + statuses.count(200) == 40


async def test_a_hanging_request_is_never_answered(client: httpx.AsyncClient) -> None:
    await client.post("/faults", json={"hang_share": 1})
    with pytest.raises(httpx.ReadTimeout):
        await client.post(PATH, json=completion(), timeout=0.3)
    await client.post("/faults", json={})
    assert (await client.post(PATH, json=completion())).status_code == 200


async def test_a_reset_closes_the_connection_without_an_answer(client: httpx.AsyncClient) -> None:
    await client.post("/faults", json={"reset_share": 1})
    for stream in (False, True):
        with pytest.raises(httpx.ReadError):
            await client.post(PATH, json=completion(stream=stream))


async def test_a_stream_is_reset_in_its_middle(client: httpx.AsyncClient) -> None:
    before = (await numbers(client))["vllm:request_success_total/abort"]
    await client.post("/faults", json={"stream_reset_share": 1, "stream_reset_tokens": 2})
    received: list[str] = []

    async def receive() -> None:
        async with client.stream("POST", PATH, json=completion(stream=True, max_tokens=900)) as answer:
            async for line in answer.aiter_lines():
                received.extend([line] if line else [])

    with pytest.raises(httpx.ReadError):
        await receive()
    assert 1 <= len(received) <= 2
    await until(client, lambda page: page["vllm:request_success_total/abort"] == before + 1)
    assert (await client.post(PATH, json=completion())).status_code == 200  # it is not a stream


async def test_a_frozen_page_stays_as_it_was(client: httpx.AsyncClient) -> None:
    before = (await client.get("/metrics")).content
    await client.post("/faults", json={"metrics": "frozen"})
    await client.post(PATH, json=completion())
    assert (await client.get("/metrics")).content == before
    await client.post("/faults", json={"metrics": "frozen", "error_share": 1})
    assert (await client.get("/metrics")).content == before
    await client.post("/faults", json={})
    assert (await client.get("/metrics")).content != before


async def test_the_page_can_be_missing(client: httpx.AsyncClient) -> None:
    await client.post("/faults", json={"metrics": "off"})
    assert (await client.get("/metrics")).status_code == 404
    assert (await client.post(PATH, json=completion())).status_code == 200


async def test_a_slow_start_answers_503_until_it_is_ready() -> None:
    async with running(Options(speed=QUICK, faults=Faults(start_s=0.4))) as client:
        assert {(await client.get(path)).status_code for path in ("/health", "/v1/models", "/metrics")} == {503}
        assert (await client.post(PATH, json=completion())).status_code == 503
        with anyio.fail_after(5):
            while (await client.get("/health")).status_code != 200:
                await anyio.sleep(0.01)
        assert (await client.post(PATH, json=completion())).status_code == 200
        await client.post("/faults", json={"start_s": 100})
        assert (await client.get("/health")).status_code == 503


async def test_a_slow_start_can_refuse_connections() -> None:
    refused = 0
    async with running(Options(speed=QUICK, faults=Faults(start_s=0.4, start_refused=True))) as client:
        with anyio.fail_after(5):
            while True:
                with suppress(httpx.ConnectError):
                    assert (await client.get("/health")).status_code == 200
                    break
                refused += 1
                await asyncio.sleep(0.01)
    assert refused > 0


async def test_the_same_seed_hits_the_same_requests() -> None:
    async def hit() -> list[int]:
        async with running(Options(speed=QUICK, seed=3, faults=Faults(error_share=0.5))) as client:
            return [(await client.post(PATH, json=completion(max_tokens=1))).status_code for _ in range(10)]

    assert await hit() == await hit()


async def test_who_hangs_up_in_the_middle_of_a_request_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with running(Options()) as client:
        for path in (PATH, "/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/faults"):
            _, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
            head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{{"
            writer.write(head.encode())
            await writer.drain()
            await client.get("/health")
            writer.transport.abort()
            await client.get("/health")
        assert (await client.post(PATH, json=completion(max_tokens=1))).status_code == 200
    assert "Exception" not in caplog.text
