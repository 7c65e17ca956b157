"""The answers have vLLM's shapes, and so have the refusals."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from typing import Any

import httpx
import pytest

from tests.simulated.running import completion

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def chat(**fields: object) -> dict[str, object]:
    messages = [{"role": "user", "content": "Say something."}]
    return {"model": "sim", "messages": messages, "max_tokens": 4, "ignore_eos": True, **fields}


async def events(client: httpx.AsyncClient, path: str, body: dict[str, object]) -> list[Any]:
    """The data of each event, parsed; the last one as it is."""
    answer = await client.post(path, json={**body, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    parts = answer.text.split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") for part in parts)
    data = [part.removeprefix("data: ") for part in parts]
    return [*(json.loads(item) for item in data[:-1]), data[-1]]


async def test_the_models_are_listed(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/v1/models")).json()
    assert listed["object"] == "list"
    assert [(card["id"], card["object"], card["max_model_len"]) for card in listed["data"]] == [
        ("sim", "model", 1000),
        ("alias", "model", 1000),
    ]


async def test_a_completion_is_shaped_as_vllm_shapes_it(client: httpx.AsyncClient) -> None:
    answer = (await client.post(COMPLETIONS, json=completion())).json()
    assert answer["id"].startswith("cmpl-")
    assert (answer["object"], answer["model"]) == ("text_completion", "sim")
    (choice,) = answer["choices"]
    assert (choice["index"], choice["finish_reason"], choice["stop_reason"]) == (0, "length", None)
    assert len(choice["text"].split()) == 4
    used = answer["usage"]
    assert used["completion_tokens"] == 4
    assert used["total_tokens"] == used["prompt_tokens"] + 4


async def test_a_chat_completion_is_shaped_as_vllm_shapes_it(client: httpx.AsyncClient) -> None:
    answer = (await client.post(CHAT, json=chat(max_tokens=99, max_completion_tokens=3))).json()
    assert answer["id"].startswith("chatcmpl-")
    assert answer["object"] == "chat.completion"
    (choice,) = answer["choices"]
    assert choice["message"]["role"] == "assistant"
    assert len(choice["message"]["content"].split()) == 3
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize(("path", "body"), [(COMPLETIONS, completion()), (CHAT, chat())])
async def test_a_stream_says_what_the_whole_answer_says(
    client: httpx.AsyncClient, path: str, body: dict[str, object]
) -> None:
    whole = (await client.post(path, json=body)).json()
    options = {"stream_options": {"include_usage": True}}
    *chunks, total, done = await events(client, path, {**body, **options})
    choices = [chunk["choices"][0] for chunk in chunks]
    if path == CHAT:
        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        said = "".join(choice["delta"]["content"] for choice in choices)
        assert said == whole["choices"][0]["message"]["content"]
        assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    else:
        assert "".join(choice["text"] for choice in choices) == whole["choices"][0]["text"]
        assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert len({chunk["id"] for chunk in [*chunks, total]}) == 1
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["length"]
    assert all("usage" not in chunk for chunk in chunks)
    assert total["choices"] == []
    assert total["usage"] == {name: n for name, n in whole["usage"].items() if n is not None}
    assert done == "[DONE]"


async def test_a_stream_gives_the_usage_only_if_asked(client: httpx.AsyncClient) -> None:
    *chunks, _ = await events(client, COMPLETIONS, completion())
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, _ = await events(client, COMPLETIONS, completion(stream_options=options))
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 4


async def test_embeddings_are_unit_vectors_in_both_encodings(client: httpx.AsyncClient) -> None:
    body = {"model": "sim", "input": ["one", "two"], "dimensions": 8}
    plain = (await client.post("/v1/embeddings", json=body)).json()
    assert [item["index"] for item in plain["data"]] == [0, 1]
    assert plain["usage"]["prompt_tokens"] == plain["usage"]["total_tokens"] > 0
    packed = (await client.post("/v1/embeddings", json={**body, "encoding_format": "base64"})).json()
    for floats, text in zip(plain["data"], packed["data"], strict=True):
        assert sum(x * x for x in floats["embedding"]) == pytest.approx(1)
        unpacked = struct.unpack("<8f", base64.b64decode(text["embedding"]))
        assert list(unpacked) == pytest.approx(floats["embedding"], abs=1e-6)


async def test_the_same_prompt_gets_the_same_answer_and_others_others(client: httpx.AsyncClient) -> None:
    async def said(prompt: object) -> tuple[str, str]:
        body = {"prompt": prompt, "max_tokens": 500}
        (choice,) = (await client.post(COMPLETIONS, json=body)).json()["choices"]
        return choice["text"], choice["finish_reason"]

    assert await said("why?") == await said("why?")
    answers = await asyncio.gather(*(said(f"question {n}") for n in range(8)))
    assert len({len(text.split()) for text, _ in answers}) > 4
    assert "stop" in {finish for _, finish in answers}


async def test_an_answer_is_never_longer_than_allowed_nor_shorter_than_asked(client: httpx.AsyncClient) -> None:
    async def length(n: int) -> int:
        body = {"prompt": f"question {n}", "max_tokens": 30, "min_tokens": 20}
        return (await client.post(COMPLETIONS, json=body)).json()["usage"]["completion_tokens"]

    lengths = await asyncio.gather(*(length(n) for n in range(16)))
    assert {20, 30} <= set(lengths)
    assert all(20 <= found <= 30 for found in lengths)


async def test_prompts_may_be_token_ids(client: httpx.AsyncClient) -> None:
    answer = (await client.post(COMPLETIONS, json=completion(prompt=[1, 2, 3]))).json()
    assert answer["usage"]["prompt_tokens"] == 3


async def test_the_caller_may_name_the_request(client: httpx.AsyncClient) -> None:
    answer = await client.post(COMPLETIONS, json=completion(), headers={"x-request-id": "mine"})
    assert answer.json()["id"] == "cmpl-mine"


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "param"),
    [
        (COMPLETIONS, completion(model="other"), 404, "NotFoundError", "model"),
        (CHAT, chat(model="other"), 404, "NotFoundError", "model"),
        ("/v1/embeddings", {"model": "other", "input": "x"}, 404, "NotFoundError", "model"),
        (COMPLETIONS, completion(max_tokens="many"), 400, "Bad Request", "max_tokens"),
        (COMPLETIONS, completion(prompt={"no": "text"}), 400, "Bad Request", None),
        (COMPLETIONS, completion(max_tokens=0), 400, "BadRequestError", "max_tokens"),
        (COMPLETIONS, completion(max_tokens=1001), 400, "BadRequestError", "max_tokens"),
        (COMPLETIONS, completion(min_tokens=5), 400, "BadRequestError", None),
        (COMPLETIONS, completion(prompt=""), 400, "BadRequestError", "prompt"),
        (COMPLETIONS, completion(prompt=[1] * 1001), 400, "BadRequestError", "input_tokens"),
        (COMPLETIONS, completion(prompt=["a", "b"]), 400, "BadRequestError", "prompt"),
        (COMPLETIONS, completion(n=2), 400, "BadRequestError", "n"),
        (COMPLETIONS, completion(temperature=-1), 400, "BadRequestError", "temperature"),
        (COMPLETIONS, completion(stream_options={"include_usage": True}), 400, "BadRequestError", "stream_options"),
        (CHAT, {"model": "sim"}, 400, "Bad Request", "messages"),
        (CHAT, chat(messages="hello"), 400, "Bad Request", "messages"),
        ("/v1/embeddings", {"model": "sim"}, 400, "Bad Request", "input"),
        ("/v1/embeddings", {"model": "sim", "input": "x" * 5000}, 400, "BadRequestError", "input_tokens"),
        ("/v1/nothing", {}, 404, "Not Found", None),
    ],
)
async def test_what_cannot_be_served_is_refused_as_vllm_refuses_it(
    client: httpx.AsyncClient, path: str, body: dict[str, object], status: int, kind: str, param: str | None
) -> None:
    answer = await client.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (status, status, kind)
    assert param is None or error["param"] == param
    assert error["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"\xff\xfe", b"null"])
async def test_a_body_that_is_no_json_object_is_refused(client: httpx.AsyncClient, body: bytes) -> None:
    for path in (COMPLETIONS, CHAT, "/v1/embeddings"):
        answer = await client.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "Bad Request"


async def test_another_content_type_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post(COMPLETIONS, content=json.dumps(completion()), headers={"content-type": "text/plain"})
    assert answer.status_code == 400
    assert "application/json" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/health", "/ping", "/version", "/metrics"])
async def test_the_operators_paths_are_there(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 200
