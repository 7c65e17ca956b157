"""Responses: created, streamed, left in the background, retrieved, cancelled."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from tests.sdk.both import Client, done, each, listed
from tests.sdk.stage import Recorder, Said, Stage

ASKED: dict[str, Any] = {"model": "sim", "input": "Hello", "max_output_tokens": 30, "temperature": 0}


async def test_a_response(client: Client) -> None:
    response = await done(client.responses.create(**ASKED, instructions="Be brief.", metadata={"a": "b"}))
    assert response.id.startswith("resp_job_")
    assert response.status in ("completed", "incomplete")
    assert response.output_text
    assert (response.instructions, response.metadata) == ("Be brief.", {"a": "b"})
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert await done(client.responses.retrieve(response.id)) == response


async def test_a_stream_has_every_event_in_order_under_our_id(client: Client) -> None:
    whole = await done(client.responses.create(**ASKED))
    stream = await done(client.responses.create(**ASKED, stream=True))
    events = await listed(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert events[-1].response.output_text == whole.output_text
    assert events[0].response.id == events[-1].response.id
    assert (await done(client.responses.retrieve(events[0].response.id))).output_text == whole.output_text


async def test_the_clients_own_stream_helper_puts_it_together(client: Client) -> None:
    whole = await done(client.responses.create(**ASKED))
    if isinstance(client, openai.OpenAI):
        with client.responses.stream(**ASKED) as stream:
            final = stream.get_final_response()
    else:
        async with client.responses.stream(**ASKED) as stream:
            final = await stream.get_final_response()
    assert final.output_text == whole.output_text


async def test_in_the_background_it_is_polled_until_it_is_done(client: Client) -> None:
    response = await done(client.responses.create(**ASKED, background=True))
    assert response.background is True
    async with asyncio.timeout(20):
        while response.status in ("queued", "in_progress"):
            response = await done(client.responses.retrieve(response.id))
    assert response.status in ("completed", "incomplete")
    assert response.output_text
    assert response.background is True


async def test_a_stream_in_the_background_goes_on_without_us_and_is_taken_up_where_we_left(client: Client) -> None:
    stream = await done(client.responses.create(**ASKED, background=True, stream=True))
    first: Any = await anext(each(stream))
    await done(stream.close())
    id_ = first.response.id
    rest = await listed(await done(client.responses.retrieve(id_, stream=True, starting_after=0)))
    assert [event.sequence_number for event in rest] == list(range(1, len(rest) + 1))
    assert rest[-1].type == "response.completed"
    said = "".join(event.delta for event in rest if event.type == "response.output_text.delta")
    assert said == rest[-1].response.output_text == (await done(client.responses.retrieve(id_))).output_text
    again = await listed(await done(client.responses.retrieve(id_, stream=True)))
    assert again == [first, *rest]


async def test_one_that_was_no_stream_cannot_be_followed(client: Client) -> None:
    response = await done(client.responses.create(**ASKED))
    with pytest.raises(openai.ConflictError):
        await done(client.responses.retrieve(response.id, stream=True))


async def test_a_cancel_reaches_the_backend(client: Client, recorder: Recorder) -> None:
    recorder.then(Said(after_s=30.0))
    response = await done(client.responses.create(model="recorded", input="Hello", background=True))
    async with asyncio.timeout(10):
        while response.status != "in_progress":
            response = await done(client.responses.retrieve(response.id))
        assert (await done(client.responses.cancel(response.id))).status == "cancelled"
        while not recorder.aborted.is_set():
            await asyncio.sleep(0.01)
    assert (await done(client.responses.retrieve(response.id))).status == "cancelled"


async def test_what_failed_in_the_background_says_why(client: Client, recorder: Recorder) -> None:
    recorder.then(Said(400, {"error": {"message": "Too long.", "type": "x", "param": "input", "code": "own_code"}}))
    response = await done(client.responses.create(model="recorded", input="Hello", background=True))
    async with asyncio.timeout(10):
        while response.status in ("queued", "in_progress"):
            response = await done(client.responses.retrieve(response.id))
    assert response.status == "failed"
    assert response.error is not None
    assert response.error.message == "Too long."


async def test_an_error_within_a_stream_is_raised_where_it_stands(client: Client, recorder: Recorder) -> None:
    """The backend breaks off: what tells of it is ours."""
    created = {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_own", "object": "response"}}
    text = f"event: response.created\ndata: {json.dumps(created)}\n\n"
    headers = {"content-type": "text/event-stream", "content-length": str(len(text) + 100)}  # uvicorn ends it early
    recorder.then(Said(200, text, headers))
    events = each(await done(client.responses.create(model="recorded", input="Hello", stream=True)))
    first: Any = await anext(events)
    assert first.response.id.startswith("resp_job_")
    with pytest.raises(openai.APIError) as caught:
        await anext(events)
    assert caught.value.code == "backend_unreachable"


async def test_anothers_response_is_not_found(client: Client) -> None:
    response = await done(client.responses.create(**ASKED))
    others = client.with_options(api_key="bob")
    for call in (others.responses.retrieve, others.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            await done(call(response.id))


async def test_what_would_need_a_store_is_refused(client: Client) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await done(client.responses.create(**ASKED, previous_response_id="resp_1"))
    assert caught.value.param == "previous_response_id"


async def test_its_tools_reach_the_backend_as_they_were_sent(client: Client, recorder: Recorder, played: Stage) -> None:
    answered = {"id": "resp_own", "object": "response", "status": "completed", "output": [], "own": 1.5}
    recorder.then(Said(body=answered))
    asked: dict[str, Any] = {
        "model": "recorded",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        "tools": [{"type": "function", "name": "f", "strict": True, "parameters": {"type": "object"}}],
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}},
        "store": False,
    }
    response = await done(client.responses.create(**asked))
    assert recorder.asked[0][0] == "/v1/responses"
    assert recorder.bodies == [asked]
    assert response.to_dict() == answered | {"id": response.id}
