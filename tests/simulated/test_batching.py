"""Requests run as the timing model says, in real time; who leaves frees the slot; the page tells it all."""

from __future__ import annotations

import asyncio
import json
import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dispatcher.backends.sequences import Sequence
from dispatcher.backends.simulated import Options
from dispatcher.backends.timing import Engine, Speed
from tests.simulated.running import completion, numbers, running, until

PATH = "/v1/completions"
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
ABORTED = "vllm:request_success_total/abort"
STEPS = "vllm:iteration_tokens_total_count"
NAMES = {
    "process_start_time_seconds": "gauge",
    "vllm:num_requests_running": "gauge",
    "vllm:num_requests_waiting": "gauge",
    "vllm:kv_cache_usage_perc": "gauge",
    "vllm:prompt_tokens": "counter",
    "vllm:generation_tokens": "counter",
    "vllm:num_preemptions": "counter",
    "vllm:request_success": "counter",
    "vllm:time_to_first_token_seconds": "histogram",
    "vllm:inter_token_latency_seconds": "histogram",
    "vllm:request_time_per_output_token_seconds": "histogram",
    "vllm:e2e_request_latency_seconds": "histogram",
    "vllm:request_queue_time_seconds": "histogram",
    "vllm:iteration_tokens_total": "histogram",
}


async def many(client: httpx.AsyncClient, n: int, **fields: object) -> list[httpx.Response]:
    return await asyncio.gather(*(client.post(PATH, json=completion(**fields)) for _ in range(n)))


async def test_the_page_has_vllms_names_types_and_labels(client: httpx.AsyncClient) -> None:
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert NAMES.items() <= {name: family.type for name, family in families.items()}.items()
    for name in NAMES.keys() - {"process_start_time_seconds"}:
        for sample in families[name].samples:
            assert (sample.labels["model_name"], sample.labels["engine"]) == ("sim", "0")
    reasons = {sample.labels["finished_reason"] for sample in families["vllm:request_success"].samples}
    assert {"stop", "length", "abort"} <= reasons


async def test_the_counters_add_up() -> None:
    async with running(Options(speed=Speed(step_ms=1))) as client:
        answers = [answer.json()["usage"] for answer in await many(client, 5, max_tokens=6)]
        page = await numbers(client)
        assert page["vllm:request_success_total/length"] == 5
        assert page["vllm:generation_tokens_total"] == sum(used["completion_tokens"] for used in answers) == 30
        assert page["vllm:prompt_tokens_total"] == sum(used["prompt_tokens"] for used in answers)
        assert page["vllm:time_to_first_token_seconds_count"] == 5
        assert page["vllm:inter_token_latency_seconds_count"] == 25
        assert page["vllm:e2e_request_latency_seconds_count"] == page["vllm:request_queue_time_seconds_count"] == 5
        assert page["vllm:e2e_request_latency_seconds_bucket/+Inf"] == 5
        assert page[RUNNING] == page[WAITING] == page["vllm:kv_cache_usage_perc"] == 0


async def test_never_more_run_than_there_are_slots_and_the_others_wait() -> None:
    async with running(Options(speed=Speed(slots=4, step_ms=5))) as client:
        flood = asyncio.create_task(many(client, 20, max_tokens=8))
        seen: list[tuple[float, float]] = []
        while not flood.done():
            page = await numbers(client)
            seen.append((page[RUNNING], page[WAITING]))
        assert max(ran for ran, _ in seen) == 4
        assert max(waited for _, waited in seen) >= 8
        assert all(answer.status_code == 200 for answer in await flood)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_caller_who_leaves_frees_the_slot_at_once(stream: bool) -> None:
    async with running(Options(speed=Speed(slots=1, step_ms=5))) as client:
        endless = completion(max_tokens=8000, stream=stream)
        for place in ("running", "waiting"):
            before = (await numbers(client))[ABORTED]
            call = asyncio.create_task(client.post(PATH, json=endless))
            await until(client, lambda page: page[RUNNING] == 1)
            if place == "waiting":
                behind = asyncio.create_task(client.post(PATH, json=endless))
                await until(client, lambda page: page[WAITING] == 1)
                behind.cancel()
                await until(client, lambda page: page[WAITING] == 0)
                assert (await numbers(client))[ABORTED] == before + 1
            call.cancel()
            await until(client, lambda page: page[RUNNING] == 0)
        assert (await numbers(client))[ABORTED] == 3
        assert (await client.post(PATH, json=completion())).status_code == 200


async def test_an_abandoned_embedding_counts_as_aborted() -> None:
    async with running(Options(speed=Speed(slots=1, step_tokens=1, step_ms=5))) as client:
        call = asyncio.create_task(client.post("/v1/embeddings", json={"input": ["a" * 4000, "b" * 4000]}))
        await until(client, lambda page: page[RUNNING] == 1 and page[WAITING] == 1)
        call.cancel()
        await until(client, lambda page: page[RUNNING] == page[WAITING] == 0)
        page = await numbers(client)
        assert (page[ABORTED], page["vllm:generation_tokens_total"]) == (2, 0)


async def test_a_full_cache_preempts_and_everyone_is_served_in_full() -> None:
    speed = Speed(slots=8, kv_tokens=150, step_ms=1)
    async with running(Options(speed=speed)) as client:
        bodies = [completion(max_tokens=40, stream=n % 2 == 0, prompt=f"question {n}") for n in range(8)]
        answers = await asyncio.gather(*(client.post(PATH, json=body) for body in bodies))
        page = await numbers(client)
        assert page["vllm:num_preemptions_total"] > 0
        assert page["vllm:generation_tokens_total"] == 8 * 40
        for body, answer in zip(bodies, answers, strict=True):
            alone = (await client.post(PATH, json={**body, "stream": False})).json()["choices"][0]["text"]
            if body["stream"]:
                said = [line for line in answer.text.splitlines() if line.startswith("data: {")]
                assert "".join(_text(line) for line in said) == alone
            else:
                assert answer.json()["choices"][0]["text"] == alone


def _text(line: str) -> str:
    return json.loads(line.removeprefix("data: "))["choices"][0]["text"]


async def _order(client: httpx.AsyncClient) -> list[int]:
    """One slot is taken; then calls of priority 2, 1 and 0 arrive in this order. In which order are they served?"""
    served: list[int] = []

    async def call(priority: int) -> None:
        (await client.post(PATH, json=completion(priority=priority))).raise_for_status()
        served.append(priority)

    first = asyncio.create_task(client.post(PATH, json=completion(max_tokens=8000)))
    await until(client, lambda page: page[RUNNING] == 1)
    calls: list[asyncio.Task[None]] = []
    for n, priority in enumerate((2, 1, 0), start=1):
        calls.append(asyncio.create_task(call(priority)))
        await until(client, lambda page, n=n: page[WAITING] == n)
    first.cancel()
    await asyncio.gather(*calls)
    return served


async def test_a_lower_priority_number_goes_first_where_it_is_obeyed() -> None:
    async with running(Options(speed=Speed(slots=1, step_ms=2), priority="obeyed")) as client:
        assert await _order(client) == [0, 1, 2]


async def test_priority_is_ignored_by_default_and_can_be_refused() -> None:
    async with running(Options(speed=Speed(slots=1, step_ms=2))) as client:
        assert await _order(client) == [2, 1, 0]
    async with running(Options(priority="refused")) as client:
        assert (await client.post(PATH, json=completion(priority=1))).status_code == 400
        assert (await client.post(PATH, json=completion(priority=0))).status_code == 200


@pytest.mark.parametrize("slots", [8, 64])
async def test_the_real_time_engine_keeps_the_pace_of_the_timing_model(slots: int) -> None:
    """On a busy machine single steps come late, but they are caught up: on the whole it is never slower."""
    speed = Speed(slots=slots, step_ms=15, sequence_ms=0.1)
    planned_s = _full_step_s(speed)
    pace: list[float] = []
    async with running(Options(speed=speed)) as client:
        flood = asyncio.create_task(many(client, slots, max_tokens=8000))
        await until(client, lambda page: page[RUNNING] == slots)
        before, began_s = (await numbers(client))[STEPS], time.monotonic()
        while not pace or (abs(pace[-1] - 1) > 0.05 and len(pace) < 6):  # the longer, the less a late reading weighs
            await asyncio.sleep(0.8)
            steps, took_s = (await numbers(client))[STEPS] - before, time.monotonic() - began_s
            pace.append(steps * planned_s / took_s)
        flood.cancel()
        await asyncio.wait([flood])
    assert pace[-1] == pytest.approx(1, abs=0.05), f"steps done, as a share of those planned: {pace}"


def _full_step_s(speed: Speed) -> float:
    """How long a step takes when every slot makes a token, by the timing model."""
    engine = Engine(speed)
    for _ in range(speed.slots):
        engine.add(Sequence(prompt=1, answer=10))
    engine.step()
    return engine.step().ms / 1000
