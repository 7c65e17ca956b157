"""Refusals are the client's typed errors: the backend's own, unchanged, and ours."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.sdk.both import Client, done, each, opened
from tests.sdk.stage import BODY_MOST, Recorder, Said, Stage

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
BY_STATUS = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    409: openai.ConflictError,
    413: openai.APIStatusError,
    422: openai.UnprocessableEntityError,
    429: openai.RateLimitError,
    500: openai.InternalServerError,
    503: openai.InternalServerError,
}


async def refusal(client: Client, kind: type[openai.APIStatusError], code: str, **asked: Any) -> Any:
    """The error that a chat is answered with."""
    given = {"model": "sim", "messages": HELLO, "max_tokens": 1} | asked
    with pytest.raises(kind) as caught:
        await done(client.chat.completions.create(**given))
    error = caught.value
    assert type(error) is kind
    assert error.code == code
    return error


@pytest.mark.parametrize("status", BY_STATUS)
async def test_the_backends_own_error_passes_unchanged(client: Client, recorder: Recorder, status: int) -> None:
    inner = {"message": f"This is {status}.", "type": "OwnError", "param": "own", "code": "own_code", "more": [1.50]}
    body = json.dumps({"error": inner}, indent=1)
    recorder.then(Said(status, body))
    error = await refusal(client, BY_STATUS[status], "own_code", model="recorded")
    assert (error.status_code, error.response.text, error.body) == (status, body, inner)
    assert (error.type, error.param) == ("OwnError", "own")
    assert len(recorder.asked) == 1


async def test_what_vllm_refuses_is_a_bad_request_in_its_words(client: Client) -> None:
    error = await refusal(client, openai.BadRequestError, "400", max_tokens=5001)
    assert (error.body["type"], error.body["code"], error.param) == ("BadRequestError", 400, "max_tokens")


async def test_400_for_a_tier_that_there_is_not(client: Client) -> None:
    error = await refusal(client, openai.BadRequestError, "unknown_tier", service_tier="platinum")
    assert (error.param, error.type) == ("service_tier", "invalid_request_error")


async def test_401_for_a_key_that_there_is_not(played: Stage, face: type[Client]) -> None:
    async with opened(face(base_url=played.keys_url, api_key="fl-nobodyskey-x", max_retries=0)) as client:
        await refusal(client, openai.AuthenticationError, "invalid_key")


async def test_403_for_a_tier_that_the_key_may_not_use(played: Stage, face: type[Client]) -> None:
    secret = played.key("ann", tiers=["flex"])
    async with opened(face(base_url=played.keys_url, api_key=secret, max_retries=0)) as client:
        answer = await done(client.completions.create(model="sim", prompt="Hi", extra_body={"service_tier": "flex"}))
        assert answer.choices
        await refusal(client, openai.PermissionDeniedError, "tier_forbidden", service_tier="priority")


async def test_404_for_a_model_that_there_is_not(client: Client) -> None:
    await refusal(client, openai.NotFoundError, "model_not_found", model="gpt-9")
    with pytest.raises(openai.NotFoundError):
        await done(client.models.retrieve("gpt-9"))


async def test_409_for_a_key_that_was_another_requests(client: Client, request: pytest.FixtureRequest) -> None:
    key = {"idempotency-key": request.node.name}
    await done(client.chat.completions.create(model="sim", messages=HELLO, max_tokens=1, extra_headers=key))
    await refusal(client, openai.ConflictError, "idempotency_mismatch", extra_headers=key, seed=1)


async def test_a_conflict_is_not_tried_again(played: Stage, client: Client, request: pytest.FixtureRequest) -> None:
    """By itself the client would: it takes 409 for a lock that is about to go."""
    key = {"idempotency-key": request.node.name}
    await done(client.chat.completions.create(model="sim", messages=HELLO, max_tokens=1, extra_headers=key))
    before = len(played.door.seen)
    insistent = client.with_options(max_retries=3)
    await refusal(insistent, openai.ConflictError, "idempotency_mismatch", extra_headers=key, seed=1)
    assert len(played.door.seen) == before + 1


async def test_413_for_a_body_beyond_the_limit(client: Client) -> None:
    much: list[ChatCompletionMessageParam] = [{"role": "user", "content": "x" * BODY_MOST}]
    error = await refusal(client, openai.APIStatusError, "payload_too_large", messages=much)
    assert error.status_code == 413


async def test_429_for_a_full_queue(client: Client) -> None:
    waiting = await done(client.responses.create(model="org/no-backend", input="Hello", background=True))
    error = await refusal(client, openai.RateLimitError, "queue_full", model="org/no-backend")
    assert int(error.response.headers["retry-after"]) >= 1
    assert error.response.headers["x-fairlane-queue-position"] == "1"
    await done(client.responses.cancel(waiting.id))


async def test_503_for_a_process_that_is_about_to_end(played: Stage, face: type[Client]) -> None:
    async with opened(face(base_url=played.closing_url, api_key="ann", max_retries=0)) as client:
        error = await refusal(client, openai.InternalServerError, "draining")
        assert error.status_code == 503
        assert int(error.response.headers["retry-after"]) >= 1


async def test_an_error_before_the_first_token_of_a_stream_is_typed_as_well(client: Client, recorder: Recorder) -> None:
    recorder.then(Said(422, {"error": {"message": "No.", "type": "x", "param": None, "code": "own_code"}}))
    await refusal(client, openai.UnprocessableEntityError, "own_code", model="recorded", stream=True)
    await refusal(client, openai.NotFoundError, "model_not_found", model="gpt-9", stream=True)


async def test_an_error_within_a_stream_is_raised_where_it_stands(client: Client, recorder: Recorder) -> None:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "recorded"}
    chunk |= {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]}
    error = {"error": {"message": "The engine died.", "type": "InternalServerError", "code": 500}}
    text = f"data: {json.dumps(chunk)}\n\ndata: {json.dumps(error)}\n\ndata: [DONE]\n\n"
    recorder.then(Said(200, text, {"content-type": "text/event-stream"}))
    stream = await done(client.chat.completions.create(model="recorded", messages=HELLO, stream=True))
    chunks = each(stream)
    assert (await anext(chunks)).choices[0].delta.content == "Hi"
    with pytest.raises(openai.APIError, match="The engine died"):
        await anext(chunks)
