"""What the client builds on top: parsed answers, its stream helper, streams that wait, raw streams."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel

from tests.sdk.both import Client, done, each
from tests.sdk.stage import CHAT, Recorder, Said, Stage

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
EVENTS = {"content-type": "text/event-stream"}


class Weather(BaseModel):
    place: str
    degrees: float


def chunk(text: str, finish: str | None = None) -> str:
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "recorded", "choices": [choice]}
    return f"data: {json.dumps(body)}\n\n"


async def test_an_answer_is_parsed_into_its_model(client: Client, recorder: Recorder) -> None:
    message = {"role": "assistant", "content": '{"place": "Köln", "degrees": 21.5}'}
    recorder.then(Said(body=CHAT | {"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}))
    answer = await done(client.chat.completions.parse(model="recorded", messages=HELLO, response_format=Weather))
    assert answer.choices[0].message.parsed == Weather(place="Köln", degrees=21.5)
    schema = recorder.bodies[0]["response_format"]["json_schema"]
    assert (schema["name"], schema["strict"]) == ("Weather", True)
    assert schema["schema"]["required"] == ["place", "degrees"]


async def test_the_stream_helper_puts_a_chat_together(client: Client) -> None:
    asked: dict[str, Any] = {"model": "sim", "messages": HELLO, "max_tokens": 20, "temperature": 0}
    whole = await done(client.chat.completions.create(**asked))
    if isinstance(client, openai.OpenAI):
        with client.chat.completions.stream(**asked) as stream:
            stream.until_done()
    else:
        async with client.chat.completions.stream(**asked) as stream:
            await stream.until_done()
    assert stream.current_completion_snapshot.choices[0].message.content == whole.choices[0].message.content


async def test_a_raw_stream_has_our_headers_before_its_first_line(client: Client) -> None:
    asked: dict[str, Any] = {"model": "sim", "messages": HELLO, "max_tokens": 3, "stream": True}
    create = client.chat.completions.with_streaming_response.create
    if isinstance(client, openai.OpenAI):
        with create(**asked) as response:  # pyright: ignore[reportGeneralTypeIssues]
            job_id = response.headers["x-fairlane-job-id"]
            lines = list(response.iter_lines())
    else:
        async with create(**asked) as response:  # pyright: ignore[reportGeneralTypeIssues]
            job_id = response.headers["x-fairlane-job-id"]
            lines = [line async for line in response.iter_lines()]
    assert job_id.startswith("job_")
    assert "data: [DONE]" in lines
    assert [line for line in lines if line.startswith("id:")]  # where to go on after a broken connection


@pytest.mark.parametrize("face", ["async"], indirect=True)  # it waits for some seconds
async def test_a_stream_that_waits_is_kept_alive_and_answered(client: Client, recorder: Recorder) -> None:
    recorder.then(Said(200, chunk("Hi") + chunk("", "stop") + "data: [DONE]\n\n", EVENTS, after_s=4.0))
    impatient = client.with_options(timeout=3.5)  # between two bytes
    stream = await done(impatient.chat.completions.create(model="recorded", messages=HELLO, stream=True))
    assert [one.choices[0].delta.content async for one in each(stream)] == ["Hi", ""]


@pytest.mark.parametrize("face", ["async"], indirect=True)
async def test_a_refusal_after_the_headers_is_raised_from_the_stream(client: Client, recorder: Recorder) -> None:
    recorder.then(Said(422, {"error": {"message": "No.", "type": "x", "param": "p", "code": "own_code"}}, after_s=2.5))
    stream = await done(client.chat.completions.create(model="recorded", messages=HELLO, stream=True))
    with pytest.raises(openai.APIError, match="No") as caught:
        await anext(each(stream))
    assert (caught.value.code, caught.value.param) == ("own_code", "p")


async def test_who_leaves_a_stream_cancels_its_job(client: Client, played: Stage) -> None:
    asked: dict[str, Any] = {"model": "sim", "messages": HELLO, "max_tokens": 1500, "extra_body": {"ignore_eos": True}}
    stream = await done(client.chat.completions.create(**asked, stream=True))
    assert await anext(each(stream))
    await done(stream.close())
    job_id = stream.response.headers["x-fairlane-job-id"]
    async with asyncio.timeout(10):
        while (state := played.run(played.queue.inspect.job(job_id)).state) == "leased":
            await asyncio.sleep(0.02)
    assert state == "cancelled"
