"""Many jobs in: in order, in bounded chunks, each on its own, none doubled and none lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fairlane import AsyncClient, Client, FairlaneError, JobRequest
from fairlane.errors import ConnectionFailed, InvalidRequest, ModelNotFound, PayloadTooLarge, QueueFull, Refused
from fairlane.model import Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.client.conftest import Reach
from tests.client.doors import CUT, Said, Stub, refusal, serving
from tests.servers import ValkeyServer


def prompts(n: int) -> list[dict[str, Any]]:
    return [{"model": "llama", "prompt": str(i), "metadata": {"i": i}} for i in range(n)]


async def test_the_handles_are_in_the_order_of_the_jobs(client: AsyncClient) -> None:
    handles = await client.submit_many(prompts(120), chunk=50)
    assert [(await handle.job()).metadata["i"] for handle in handles] == list(range(120))
    assert len({handle.id for handle in handles}) == 120


async def test_a_request_object_is_a_job_too(client: AsyncClient) -> None:
    request = JobRequest("llama", "/v1/completions", {"prompt": "x"}, tier="flex")
    first, second = await client.submit_many([request, request])
    assert first.id != second.id
    assert (await first.job()).tier == "flex"


async def test_a_refused_job_does_not_hinder_the_others(client: AsyncClient) -> None:
    items: list[Any] = [*prompts(1), {"model": "none", "prompt": "x"}, {"model": "llama"}, "no job", *prompts(1)]
    handles = await client.submit_many(items)
    assert [type(handle.error) for handle in handles] == [
        type(None), ModelNotFound, InvalidRequest, InvalidRequest, type(None),
    ]  # fmt: skip
    for act in (handles[1].wait, handles[1].result, handles[1].status, handles[1].cancel):
        with pytest.raises(ModelNotFound):
            await act()
    with pytest.raises(ModelNotFound):
        assert handles[1].id
    assert await handles[0].status() == await handles[4].status() == "queued"


async def test_progress_is_told_after_each_chunk(client: AsyncClient) -> None:
    told: list[tuple[int, int | None]] = []
    await client.submit_many(prompts(25), chunk=10, progress=lambda done, total: told.append((done, total)))
    assert told == [(10, 25), (20, 25), (25, 25)]
    told.clear()
    await client.submit_many(iter(prompts(3)), progress=lambda done, total: told.append((done, total)))
    assert told == [(3, None)]
    assert await client.submit_many([]) == []


@pytest.mark.parametrize("chunk", [0, 1001])
async def test_a_chunk_has_bounds(client: AsyncClient, chunk: int) -> None:
    with pytest.raises(InvalidRequest, match="1000"):
        await client.submit_many(prompts(1), chunk=chunk)


@pytest.mark.parametrize("policy", [Policy(max_waiting_tenant=20, stale_ms=3_600_000)], indirect=True)
@pytest.mark.usefixtures("worker")
async def test_a_full_queue_is_waited_out(
    client: AsyncClient, queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producer.client.bulk.pause_s", lambda *_: 0.02)  # not the 5 s that the queue asks for
    handles = await client.submit_many(prompts(60), chunk=30)
    assert [handle.error for handle in handles] == [None] * 60
    assert len({(await handle.wait(10)).metadata["i"] for handle in handles}) == 60
    jobs, _ = await queue.inspect.index(pool, "done", limit=1000)
    assert len(jobs) == 60


@pytest.mark.parametrize("policy", [Policy(max_waiting_tenant=20)], indirect=True)
async def test_what_stays_full_refuses_the_rest(reach: Reach) -> None:
    async with reach.client(retry_for_s=0.05) as client:
        handles = await client.submit_many(prompts(40), chunk=10)
    assert [handle.error is None for handle in handles] == [True] * 20 + [False] * 20
    assert {type(handle.error) for handle in handles[20:]} == {QueueFull}


# --- what only HTTP can do to a chunk ---------------------------------------------------------------------------------


async def test_jobs_are_taken_as_they_are_sent_in_chunks_of_bounded_bytes() -> None:
    stub, taken = Stub(), 0

    def items() -> Iterator[dict[str, Any]]:
        nonlocal taken
        for _ in range(12):
            taken += 1
            yield {"model": "llama", "prompt": "x" * (1 << 20)}

    ahead: list[int] = []
    async with serving(stub.app()) as url, AsyncClient(url) as client:
        await client.submit_many(items(), progress=lambda done, _: ahead.append(taken - done))
    assert [len(asked["jobs"]) for asked in stub.asked] == [3, 3, 3, 3]
    assert max(ahead) <= 3 + 1


async def test_a_chunk_that_is_refused_for_now_is_sent_again_with_the_same_keys() -> None:
    stub = Stub()
    stub.answers = [refusal(503, "store_unavailable"), CUT, refusal(429, "queue_full"), Said(502, "<html>")]
    async with serving(stub.app()) as url, AsyncClient(url) as client:
        handles = await client.submit_many(prompts(5))
    assert [handle.id for handle in handles] == [f"job_{n}" for n in range(1, 6)]
    assert len(stub.asked) == 5
    assert all(asked == stub.asked[0] for asked in stub.asked)


async def test_only_the_refused_jobs_of_a_chunk_are_sent_again() -> None:
    stub = Stub()
    full = {"error": {"message": "Full.", "code": "queue_full", "retry_after": 0.01}}
    busy = {"error": {"message": "Slow.", "code": "rate_limited", "retry_after": 0.01}}
    bad = {"error": {"message": "Bad.", "code": "odd", "param": "x"}}
    stub.answers = [lambda asked: Said(202, {"jobs": [stub.took(asked["jobs"][0]), full, bad, busy]})]
    async with serving(stub.app()) as url, AsyncClient(url) as client:
        handles = await client.submit_many(prompts(4))
    assert isinstance(handles[2].error, Refused)
    assert (handles[2].error.code, handles[2].error.param) == ("odd", "x")
    assert [handles[n].id for n in (0, 1, 3)] == ["job_1", "job_2", "job_3"]
    assert [job["prompt"] for job in (one["body"] for one in stub.asked[1]["jobs"])] == ["1", "3"]


async def test_a_chunk_that_is_too_large_for_a_proxy_is_halved() -> None:
    stub = Stub()

    def narrow(asked: Any) -> Said:
        stub.answers.append(narrow)
        return Said(413, "<html>") if len(asked["jobs"]) > 2 else stub.take_in(asked)

    stub.answers = [narrow]
    async with serving(stub.app()) as url, AsyncClient(url) as client:
        handles = await client.submit_many(prompts(5))
        assert len({handle.id for handle in handles}) == 5
        stub.answers = [refusal(413, "payload_too_large")]
        (one,) = await client.submit_many(prompts(1))
    assert isinstance(one.error, PayloadTooLarge)


@pytest.mark.parametrize("said", [refusal(401, "invalid_key"), Said(404, "<html>")])
async def test_what_refuses_all_is_not_asked_again_for_each_chunk(said: Said) -> None:
    stub = Stub()
    stub.answers = [said, said]
    async with serving(stub.app()) as url, AsyncClient(url) as client:
        handles = await client.submit_many(prompts(10), chunk=1)
    assert {handle.error.status for handle in handles if handle.error} == {said.status}
    assert len(stub.asked) == 1


async def test_an_answer_of_another_length_is_no_answer() -> None:
    stub = Stub()
    stub.answers = [Said(202, {"jobs": []})]
    async with serving(stub.app()) as url, AsyncClient(url, retry_for_s=0) as client:
        (one,) = await client.submit_many(prompts(1))
    assert isinstance(one.error, FairlaneError)
    assert one.error.code == "unexpected_answer"


async def test_a_front_door_that_stays_away_refuses_all() -> None:
    async with AsyncClient("http://127.0.0.1:1", retry_for_s=0.2) as client:
        handles = await client.submit_many(prompts(3), chunk=1)
    assert {type(handle.error) for handle in handles} == {ConnectionFailed}


async def test_an_error_of_the_callers_own_ends_it(client: AsyncClient) -> None:
    def items() -> Iterator[dict[str, Any]]:
        yield from prompts(2)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await client.submit_many(items(), chunk=1)


def test_the_sync_client_stays_in_the_callers_thread(valkey: ValkeyServer, namespace: str) -> None:
    seen: set[int] = set()

    def items() -> Iterator[dict[str, Any]]:
        seen.add(threading.get_ident())
        yield from prompts(3)

    with Client(valkey.url, namespace=namespace) as client:
        handles = client.submit_many(items(), chunk=1, progress=lambda *_: seen.add(threading.get_ident()))
    assert {type(handle.error) for handle in handles} == {ModelNotFound}
    assert seen == {threading.get_ident()}
