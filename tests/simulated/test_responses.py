"""/v1/responses answers in vLLM's shapes, which the types of the `openai` package read without loss."""

from __future__ import annotations

import json

import httpx
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

PATH = "/v1/responses"
EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
ORDER = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


def body(**fields: object) -> dict[str, object]:
    return {"model": "sim", "input": "Say something.", "max_output_tokens": 4, "ignore_eos": True, **fields}


async def events(client: httpx.AsyncClient, **fields: object) -> list[ResponseStreamEvent]:
    answer = await client.post(PATH, json=body(stream=True, **fields))
    assert answer.headers["content-type"].startswith("text/event-stream")
    *parts, rest = answer.text.split("\n\n")
    assert rest == ""
    made: list[ResponseStreamEvent] = []
    for part in parts:
        kind, data = part.split("\n")
        event = EVENT.validate_json(data.removeprefix("data: "))
        assert kind == f"event: {event.type}"
        made.append(event)
    return made


async def test_a_response_is_shaped_as_vllm_shapes_it(client: httpx.AsyncClient) -> None:
    answer = await client.post(PATH, json=body(instructions="Be brief.", metadata={"a": "b"}))
    response = Response.model_validate_json(answer.content, strict=True)
    assert response.id.startswith("resp_")
    assert (response.status, response.model, response.object) == ("incomplete", "sim", "response")
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert (response.instructions, response.metadata) == ("Be brief.", {"a": "b"})
    assert len(response.output_text.split()) == 4
    assert response.usage is not None
    assert response.usage.output_tokens == 4
    assert response.usage.total_tokens == response.usage.input_tokens + 4


async def test_an_answer_that_ends_by_itself_is_completed(client: httpx.AsyncClient) -> None:
    answer = (await client.post(PATH, json={"model": "sim", "input": "Say something."})).json()
    assert (answer["status"], answer["incomplete_details"]) == ("completed", None)


async def test_a_stream_says_what_the_whole_answer_says(client: httpx.AsyncClient) -> None:
    whole = Response.model_validate_json((await client.post(PATH, json=body())).content)
    found = await events(client)
    assert list(dict.fromkeys(event.type for event in found)) == ORDER
    assert [event.sequence_number for event in found] == list(range(len(found)))
    assert "".join(event.delta for event in found if event.type == "response.output_text.delta") == whole.output_text
    last = found[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == whole.output_text
    assert last.response.usage == whole.usage
    first = found[0]
    assert first.type == "response.created"
    assert (first.response.id, first.response.status) == (last.response.id, "in_progress")


async def test_messages_as_input_are_the_prompt(client: httpx.AsyncClient) -> None:
    async def said(given: object) -> str:
        answer = await client.post(PATH, json=body(input=given))
        return Response.model_validate_json(answer.content).output_text

    parts = [{"type": "input_text", "text": "Say something."}]
    assert await said("Say something.") == await said([{"role": "user", "content": "Say something."}])
    assert await said("Say something.") == await said([{"type": "message", "role": "user", "content": parts}])
    assert await said("Say something.") != await said("Say nothing.")


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"model": "other"}, 404, "model"),
        ({"input": None}, 400, None),
        ({"max_output_tokens": 0}, 400, "max_tokens"),
        ({"background": True}, 400, "background"),
        ({"previous_response_id": "resp_1"}, 404, "response_id"),
        ({"input": "x" * 5000}, 400, "input_tokens"),
    ],
)
async def test_what_cannot_be_served_is_refused(
    client: httpx.AsyncClient, fields: dict[str, object], status: int, param: str | None
) -> None:
    answer = await client.post(PATH, json=body(**fields))
    error = json.loads(answer.text)["error"]
    assert (answer.status_code, error["code"]) == (status, status)
    assert param is None or error["param"] == param
