"""Streams through the real queue, over HTTP and straight to Redis."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dispatcher.backends.answer import Answer
from fairlane import AsyncClient, JobFailed
from fairlane.errors import IllegalTransition, NotFound
from tests.client.conftest import Reach
from tests.dispatcher.scripted import Script, answer, speak

ASK: dict[str, Any] = {"model": "llama", "prompt": "x"}
CHUNKS = [{"choices": [{"text": text}]} for text in ("Hel", "lo\u2028", "!")]
EVENTS = [*(b"data: " + json.dumps(one, ensure_ascii=False).encode() + b"\n\n" for one in CHUNKS), b"data: [DONE]\n\n"]
SOON_S = 10.0


async def all_of(stream: Any) -> list[Any]:
    async with asyncio.timeout(SOON_S):
        return [one async for one in stream]


@pytest.mark.usefixtures("worker")
async def test_chunks_come_through_and_again_for_whoever_follows(client: AsyncClient, script: Script) -> None:
    script.then(speak(script, *EVENTS, every_s=0.02))
    stream = client.stream(**ASK)
    assert await all_of(stream) == CHUNKS
    handle = client.get(str(stream.id))
    assert await all_of(handle.stream()) == CHUNKS
    first = handle.stream()
    await anext(first)
    assert await all_of(handle.stream(after=first.last_event_id)) == CHUNKS[1:]
    await first.aclose()
    assert (await handle.wait(SOON_S)).state == "succeeded"


@pytest.mark.usefixtures("worker")
async def test_a_stream_without_done_ends(client: AsyncClient, script: Script) -> None:
    script.then(speak(script, *EVENTS[:-1]))
    assert await all_of(client.stream(**ASK)) == CHUNKS


@pytest.mark.usefixtures("worker")
async def test_an_answer_that_is_no_stream_is_one_chunk(client: AsyncClient, script: Script) -> None:
    script.then(answer(Answer(200, json.dumps(CHUNKS[0]).encode())))
    assert await all_of(client.stream(**ASK)) == CHUNKS[:1]


@pytest.mark.usefixtures("worker")
async def test_a_refusal_of_the_backend_is_the_jobs(client: AsyncClient, script: Script) -> None:
    script.then(answer(Answer(422, b'{"error": {"message": "Too odd.", "code": "odd"}}')))
    with pytest.raises(JobFailed, match="Too odd") as raised:
        await all_of(client.stream(**ASK))
    assert raised.value.status == 422


@pytest.mark.usefixtures("worker")
async def test_whoever_leaves_early_stops_the_backends_work(client: AsyncClient, script: Script) -> None:
    script.then(speak(script, *EVENTS[:1], *EVENTS * 500, every_s=0.02))
    async with client.stream(**ASK) as stream:
        await anext(stream)
    assert (await client.get(str(stream.id)).wait(SOON_S)).state == "cancelled"


async def test_what_is_no_stream_is_not_followed(client: AsyncClient) -> None:
    handle = await client.submit(**ASK)
    with pytest.raises(IllegalTransition):
        await all_of(handle.stream())
    with pytest.raises(NotFound):
        await all_of(client.get("job_0").stream())


@pytest.mark.usefixtures("worker")
async def test_many_stream_at_once(reach: Reach, script: Script) -> None:
    script.then(speak(script, *EVENTS, every_s=0.01))
    async with reach.client() as client:
        assert await asyncio.gather(*(all_of(client.stream(**ASK)) for _ in range(30))) == [CHUNKS] * 30
