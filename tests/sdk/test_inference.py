"""What the client sends reaches the backend, and what that answers reaches the client."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionStreamOptionsParam

from tests.sdk.both import Client, done, each
from tests.sdk.stage import REAL, Recorder, Said, Stage

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
WEATHER = {"name": "weather", "arguments": '{"place": "Köln"}'}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Wie wird das Wetter? ☂",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}, "days": {"type": "number", "maximum": 1.5e3}},
                "required": ["place"],
                "additionalProperties": False,
            },
        },
    }
]
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "answer",
        "strict": True,
        "schema": {"type": "object", "properties": {"n": {"const": None}}},
    },
}
CALLS = {
    "id": "chatcmpl-2",
    "object": "chat.completion",
    "created": 1,
    "model": "recorded",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call_1", "type": "function", "function": WEATHER}],
            },
        }
    ],
}


async def test_a_chat(client: Client) -> None:
    answer = await done(client.chat.completions.create(model="sim", messages=HELLO, max_tokens=5))
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_a_chat_as_a_stream_says_the_same(client: Client) -> None:
    asked: dict[str, Any] = {"model": "sim", "messages": HELLO, "max_tokens": 30, "temperature": 0}
    whole = await done(client.chat.completions.create(**asked))
    options: ChatCompletionStreamOptionsParam = {"include_usage": True}
    stream = await done(client.chat.completions.create(**asked, stream=True, stream_options=options))
    chunks = [chunk async for chunk in each(stream)]
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == whole.choices[0].message.content
    assert whole.usage is not None
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


async def test_a_completion_whole_and_as_a_stream(client: Client) -> None:
    asked: dict[str, Any] = {"model": "sim", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    whole = await done(client.completions.create(**asked))
    stream = await done(client.completions.create(stream=True, **asked))
    assert "".join([chunk.choices[0].text async for chunk in each(stream)]) == whole.choices[0].text != ""


@pytest.mark.skipif(REAL in os.environ, reason="a server that generates text has no embeddings")
async def test_embeddings_in_the_clients_own_encoding(client: Client) -> None:
    answer = await done(client.embeddings.create(model="sim", input=["one", "two"], dimensions=8))
    assert [len(item.embedding) for item in answer.data] == [8, 8]
    assert sum(x * x for x in answer.data[0].embedding) == pytest.approx(1, abs=1e-5)
    plain = await done(client.embeddings.create(model="sim", input="one", dimensions=8, encoding_format="float"))
    assert plain.data[0].embedding == pytest.approx(answer.data[0].embedding, abs=1e-6)


async def test_models_are_listed_and_found(client: Client) -> None:
    found = {model.id async for model in each(client.models.list())}
    assert found == {"sim", "recorded"}, "what no backend serves is not listed"
    for name in found:
        assert (await done(client.models.retrieve(name))).id == name


async def test_tools_and_schemas_reach_the_backend_as_they_were_sent(client: Client, recorder: Recorder) -> None:
    recorder.then(Said(body=CALLS))
    asked: dict[str, Any] = {
        "model": "recorded",
        "messages": HELLO,
        "tools": TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": False,
        "response_format": SCHEMA,
        "logit_bias": {"50256": -100},
        "temperature": 0.7,
    }
    own = {"guided_choice": ["a", "b"]}
    answer = await done(client.chat.completions.create(**asked, extra_body=own))
    ((path, body),) = recorder.asked
    assert path == "/v1/chat/completions"
    assert json.loads(body) == asked | own
    assert json.dumps(json.loads(body)["tools"]) == json.dumps(TOOLS)  # in this order: it is part of the prompt
    assert answer.choices[0].message.tool_calls is not None
    (call,) = answer.choices[0].message.tool_calls
    assert call.to_dict()["function"] == WEATHER


async def test_the_answer_is_the_backends_to_the_byte(client: Client, recorder: Recorder) -> None:
    text = ' {"id": "x", "object": "chat.completion",\n "temperature": 1.50, "choices": [], "own_field": "\\u00e9é"}\n'
    recorder.then(Said(body=text))
    raw = await done(client.chat.completions.with_raw_response.create(model="recorded", messages=HELLO))
    assert raw.text == text


@pytest.mark.parametrize(
    ("asked", "tier"), [("auto", "default"), ("default", "default"), ("flex", "flex"), ("priority", "priority")]
)
async def test_the_service_tier_is_the_tier(
    client: Client, played: Stage, recorder: Recorder, asked: str, tier: str
) -> None:
    create = client.chat.completions.with_raw_response.create
    raw = await done(create(model="recorded", messages=HELLO, service_tier=asked))  # pyright: ignore[reportArgumentType]
    job = played.run(played.queue.inspect.job(raw.headers["x-fairlane-job-id"]))
    assert job.tier == tier
    assert "service_tier" not in recorder.bodies[0]


async def test_the_headers_say_where_it_ran(client: Client) -> None:
    raw = await done(client.completions.with_raw_response.create(model="sim", prompt="Hi", max_tokens=1))
    assert raw.headers["x-fairlane-job-id"].startswith("job_")
    assert raw.headers["x-fairlane-backend"] == "b1"
    assert int(raw.headers["x-fairlane-queued-ms"]) >= 0
    assert (await done(raw.parse())).choices[0].finish_reason == "length"


async def test_a_key_makes_a_repeated_request_one(
    client: Client, recorder: Recorder, request: pytest.FixtureRequest
) -> None:
    key = {"idempotency-key": request.node.name}
    ids = list[str]()
    for _ in range(2):
        create = client.chat.completions.with_raw_response.create
        raw = await done(create(model="recorded", messages=HELLO, extra_headers=key))
        ids.append(raw.headers["x-fairlane-job-id"])
    assert ids[0] == ids[1]
    assert len(recorder.asked) == 1
