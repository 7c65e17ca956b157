"""`fairlane profile` against servers that mean no good: it ends, in bounds, and repeats no key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from dispatcher.simulator.profiling import asking, run
from dispatcher.simulator.profiling.asking import Answer, Asker
from dispatcher.simulator.profiling.course import Course, Plan
from dispatcher.simulator.profiling.refusing import BODY_MOST, CannotProfile
from dispatcher.simulator.profiling.run import find
from fairlane.errors import InvalidRequest

DONE = b"data: [DONE]\n\n"
KEY = "sk-0123456789"
HEADERS = {"authorization": f"Bearer {KEY}"}
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'


class Parts(httpx.AsyncByteStream):
    """What comes, as it comes."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            yield part


class Endless(httpx.AsyncByteStream):
    """The same part, over and over; it fails if more is read than anyone should."""

    def __init__(self, part: bytes, most: int) -> None:
        self.part, self.left = part, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.left -= len(self.part)
            assert self.left > 0, "too much was read"
            yield self.part


def answering(
    status: int, content: bytes | httpx.AsyncByteStream, kind: str = "text/event-stream"
) -> httpx.AsyncClient:
    def answer(request: httpx.Request) -> httpx.Response:
        stream = Parts(content) if isinstance(content, bytes) else content
        return httpx.Response(status, stream=stream, headers={"content-type": kind})

    return httpx.AsyncClient(transport=httpx.MockTransport(answer))


async def asked(status: int, content: bytes | httpx.AsyncByteStream) -> Answer:
    async with answering(status, content) as client:
        return await Asker(client, "http://server", "m", HEADERS).ask("word " * 20, 12)


@pytest.mark.parametrize(
    "usage",
    [
        '"many"',
        "[1]",
        "{}",
        '{"prompt_tokens": "20", "completion_tokens": [1]}',
        '{"prompt_tokens": -5, "completion_tokens": -7}',
        '{"prompt_tokens": 1e308, "completion_tokens": 1e300}',
        '{"prompt_tokens": Infinity, "completion_tokens": NaN}',
        f'{{"prompt_tokens": {10**30}, "completion_tokens": {10**30}}}',
    ],
)
async def test_a_count_that_is_none_is_not_used(usage: str) -> None:
    said = f'data: {{"choices":[],"usage":{usage}}}\n\n'.encode()
    found = await asked(200, TOKEN * 5 + said + DONE)
    assert (found.prompt, found.answer, len(found.tokens)) == (25, 5, 5)


async def test_a_stream_that_breaks_off_is_not_taken_for_a_quick_answer() -> None:
    with pytest.raises(CannotProfile, match="broke off"):
        await asked(200, TOKEN * 5)
    reason = TOKEN.replace(b"}]}", b',"finish_reason":"length"}]}')
    assert len((await asked(200, TOKEN * 4 + reason)).tokens) == 5, "some say only why it ended"


@pytest.mark.parametrize("status", [401, 500])
async def test_a_key_that_the_server_repeats_is_not_shown(status: int) -> None:
    for body in (f"<p>{KEY}</p>", json.dumps({"error": {"message": f"bad key {KEY}"}}), "x" * 295 + KEY):
        with pytest.raises(CannotProfile) as told:
            await asked(status, body.encode())
        assert KEY[:6] not in told.value.message
        async with answering(500, body.encode()) as client:
            with pytest.raises(CannotProfile) as told:
                await find(client, "http://server", HEADERS, None)
        assert KEY[:6] not in told.value.message
    with pytest.raises(CannotProfile) as told:
        await asked(200, f'data: {{"error":"bad key {KEY}"}}\n\n'.encode())
    assert "bad key" in told.value.message
    assert KEY not in told.value.message


async def test_no_word_of_a_server_steers_the_terminal() -> None:
    with pytest.raises(CannotProfile) as told:
        await asked(500, b"\x1b[31mboom\x07")
    assert told.value.message.isprintable()
    async with answering(200, b'{"data":[{"id":"a\\u001b[31m"},{"id":"b"}]}') as client:
        with pytest.raises(InvalidRequest) as refused:
            await find(client, "http://server", {}, None)
    assert refused.value.message.isprintable()


async def test_no_more_of_an_error_is_read_than_is_shown() -> None:
    with pytest.raises(CannotProfile, match="answered 500"):
        await asked(500, Endless(b"z" * 10_000, 2 * BODY_MOST))


async def test_an_event_without_an_end_is_given_up() -> None:
    with pytest.raises(CannotProfile, match="without an end"):
        await asked(200, Endless(b"x" * 10_000, 2 * asking.EVENT_MOST))


async def test_a_list_of_models_without_an_end_is_given_up() -> None:
    async with answering(200, Endless(b" " * 100_000, 2 * run.LIST_MOST), "application/json") as client:
        with pytest.raises(CannotProfile, match="no list of models"):
            await find(client, "http://server", {}, None)


@pytest.mark.parametrize("body", [b"[" * 100_000, b"[1,2]", b'{"data":7}', b"\xff", b""])
async def test_what_is_no_list_of_models_is_told(body: bytes) -> None:
    async with answering(200, body, "application/json") as client:
        with pytest.raises(CannotProfile, match="no list of models"):
            await find(client, "http://server", {}, None)


@pytest.mark.parametrize("body", [b'{"data":[]}', b'{"data":[1,{"x":2},{"id":["m"]}]}'])
async def test_a_list_without_a_model_serves_none(body: bytes) -> None:
    async with answering(200, body, "application/json") as client:
        with pytest.raises(InvalidRequest, match="It serves none"):
            await find(client, "http://server", {}, None)


@pytest.mark.parametrize("tokens", [lambda asked: 1, lambda asked: 3, lambda asked: asked])  # cut off, or all at once
async def test_tokens_that_cannot_be_timed_are_told(tokens: Callable[[int], int]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(404)
        many = tokens(json.loads(request.content)["max_tokens"])
        return httpx.Response(200, stream=Parts(TOKEN * many + DONE), headers={"content-type": "text/event-stream"})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        course = Course(Asker(client, "http://server", "m", {}), {}, Plan(seconds=20, most=4), lambda words: None)
        with pytest.raises(CannotProfile, match="cannot be timed"):
            await course.run()
