"""Streams: every chunk once, in order, whatever breaks on the way; and errors that say what happened."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fairlane import AsyncClient, AsyncStream, Client, JobFailed
from fairlane.errors import IllegalTransition, InvalidRequest, Refused, StreamBroken
from tests.client.doors import serving
from tests.client.test_errors import RAW

ASK: dict[str, Any] = {"model": "llama", "prompt": "x"}
TEXTS = ["Hel", "lo, ", "wörld\u2028", "!", " \r\n"]


def told(n: int, chunk: Any) -> bytes:
    return f"id: 7-{n}\ndata: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()


def chunk(text: str) -> dict[str, Any]:
    return {"choices": [{"text": text}]}


WHOLE = [told(n, chunk(text)) for n, text in enumerate(TEXTS, 1)] + [b"id: 7-6\ndata: [DONE]\n\n"]


class _Cut(Response):
    """Says a part of a stream, and breaks the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"content-length", b"99999")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})


@dataclass
class Streamer:
    """A front door with one job. `plays` are answered first: so many bytes and then a cut; or a whole answer."""

    events: list[bytes] = field(default_factory=lambda: list(WHOLE))
    plays: list[int | Response] = field(default_factory=list)
    state: str = "succeeded"
    asked: list[Any] = field(default_factory=list)
    after: list[str | None] = field(default_factory=list)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    hold: bool = False

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/jobs", self._submit, methods=["POST"]),
                Route("/v1/jobs/job_1/stream", self._stream),
                Route("/v1/jobs/job_1", self._job, methods=["GET", "DELETE"]),
            ]
        )

    async def _submit(self, request: Request) -> Response:
        self.asked.append(await request.json())
        return JSONResponse({**RAW, "state": "queued", "error": None}, 202)

    async def _job(self, request: Request) -> Response:
        if request.method == "DELETE":
            self.state = "cancelled"
            self.cancelled.set()
        error = RAW["error"] if self.state == "failed" else None
        return JSONResponse({**RAW, "state": self.state, "error": error})

    async def _stream(self, request: Request) -> Response:
        after = request.headers.get("last-event-id")
        self.after.append(after)
        left = self.events[int(after.partition("-")[2]) if after else 0 :]
        play = self.plays.pop(0) if self.plays else None
        if isinstance(play, Response):
            return play
        if play is not None:
            return _Cut(b"".join(left)[:play])
        return StreamingResponse(self._all(left), media_type="text/event-stream")

    async def _all(self, events: list[bytes]) -> AsyncIterator[bytes]:
        for event in events:
            yield event
        if self.hold:
            await self.cancelled.wait()


def texts(chunks: list[Any]) -> list[str]:
    return [one["choices"][0]["text"] for one in chunks]


async def collect(stream: AsyncStream, got: list[Any]) -> None:
    async for one in stream:
        got.append(one)  # noqa: PERF401  # what came before an error, too


async def test_chunks_come_as_dicts() -> None:
    door = Streamer()
    async with serving(door.app()) as url, AsyncClient(url) as client:
        stream = client.stream(**ASK, temperature=0)
        assert stream.id is None
        assert not door.asked  # nothing is sent before it is read
        assert texts([one async for one in stream]) == TEXTS
        assert (stream.id, stream.last_event_id) == ("job_1", "7-5")
        assert [one async for one in stream] == []
    assert door.asked[0]["body"] == {"prompt": "x", "temperature": 0, "stream": True}
    assert not door.cancelled.is_set()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, sum(map(len, WHOLE))), max_size=4))
def test_a_stream_that_is_cut_anywhere_and_resumed_is_whole(cuts: list[int]) -> None:
    async def read() -> list[str]:
        door = Streamer(plays=list(cuts))
        async with serving(door.app()) as url, AsyncClient(url) as client:
            return texts([one async for one in client.stream(**ASK)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("producer.client.stream.pause_s", lambda *_: 0.001)
        assert asyncio.run(read()) == TEXTS


async def test_an_end_without_done_is_believed_when_the_job_is_finished() -> None:
    door = Streamer(events=WHOLE[:-1])
    async with serving(door.app()) as url, AsyncClient(url) as client:
        assert texts([one async for one in client.stream(**ASK)]) == TEXTS
    assert door.after == [None, "7-5"]  # a door that closes may have ended it too early


async def test_a_door_that_drains_is_followed_by_another() -> None:
    drained = b'data: {"error": {"code": "draining", "message": "Bye.", "param": null}}\n\n'
    door = Streamer(plays=[Response(WHOLE[0] + drained, media_type="text/event-stream")], state="leased")
    async with serving(door.app()) as url, AsyncClient(url) as client:
        assert texts([one async for one in client.stream(**ASK)]) == TEXTS
    assert door.after == [None, "7-1"]


@pytest.mark.parametrize("first", [JSONResponse({"error": {"code": "timeout", "message": "Slow."}}, 504), None])
async def test_a_job_that_failed_says_so(first: Response | None) -> None:
    events = [WHOLE[0], b'data: {"error": {"code": "timeout", "message": "Slow."}}\n\n']
    door = Streamer(events, [first] if first else [], state="failed")
    got: list[Any] = []
    async with serving(door.app()) as url, AsyncClient(url) as client:
        with pytest.raises(JobFailed) as raised:
            await collect(client.stream(**ASK), got)
    assert texts(got) == ([] if first else TEXTS[:1])
    assert (raised.value.code, raised.value.job.id) == ("timeout", "job_1")
    assert not door.cancelled.is_set()


async def test_an_answer_that_began_anew_elsewhere_is_not_mixed_with_the_old_one() -> None:
    broken = b'data: {"error": {"code": "stream_broken", "message": "Gone."}}\n\n'
    door = Streamer([WHOLE[0], broken], state="leased")
    async with serving(door.app()) as url, AsyncClient(url) as client:
        with pytest.raises(StreamBroken):
            [one async for one in client.stream(**ASK)]
        await asyncio.wait_for(door.cancelled.wait(), 5)  # nobody reads the new one


async def test_a_backends_own_error_keeps_its_code() -> None:
    door = Streamer([WHOLE[0], b'data: {"error": {"code": 451, "message": "No."}}\n\n'])
    async with serving(door.app()) as url, AsyncClient(url) as client:
        with pytest.raises(Refused, match="No") as raised:
            [one async for one in client.stream(**ASK)]
    assert raised.value.code == "451"


async def test_an_answer_that_is_no_stream_is_one_chunk() -> None:
    door = Streamer(plays=[JSONResponse(chunk("All."))])
    async with serving(door.app()) as url, AsyncClient(url) as client:
        assert texts([one async for one in client.stream(**ASK)]) == ["All."]


async def test_one_that_came_late_is_one_chunk_too() -> None:
    event = b"data: " + json.dumps(chunk("All.")).encode() + b"\n\n"
    door = Streamer([event])
    async with serving(door.app()) as url, AsyncClient(url) as client:
        assert texts([one async for one in client.stream(**ASK)]) == ["All."]


async def test_it_says_its_place_while_it_waits() -> None:
    door = Streamer([b": queued, position 4\n\n", *WHOLE], hold=True)
    async with serving(door.app()) as url, AsyncClient(url) as client, client.stream(**ASK) as stream:
        await anext(stream)
        assert stream.position is None
    waiting = Streamer([b": queued, position 4\n\n"], hold=True, state="queued")
    async with serving(waiting.app()) as url, AsyncClient(url) as client, client.stream(**ASK) as stream:
        reading = asyncio.ensure_future(anext(stream))
        async with asyncio.timeout(5):
            while stream.position != 4:
                await asyncio.sleep(0.005)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def test_a_stream_that_is_closed_cancels_its_job() -> None:
    door = Streamer(WHOLE[:2], hold=True, state="leased")
    async with serving(door.app()) as url, AsyncClient(url) as client:
        async with client.stream(**ASK) as stream:
            assert texts([await anext(stream)]) == TEXTS[:1]
        assert door.cancelled.is_set()


async def test_a_stream_that_is_forgotten_cancels_its_job() -> None:
    door = Streamer(WHOLE[:2], hold=True, state="leased")
    async with serving(door.app()) as url, AsyncClient(url) as client:
        async for _ in client.stream(**ASK):
            break
        gc.collect()
        await asyncio.wait_for(door.cancelled.wait(), 5)


async def test_whoever_only_follows_a_job_does_not_cancel_it() -> None:
    door = Streamer(WHOLE[:3], hold=True, state="leased")
    async with serving(door.app()) as url, AsyncClient(url) as client:
        async with client.get("job_1").stream(after="7-1") as stream:
            assert texts([await anext(stream)]) == TEXTS[1:2]
        assert not door.cancelled.is_set()
        door.cancelled.set()


async def test_a_job_that_does_not_stream_is_refused() -> None:
    refused = JSONResponse({"error": {"code": "illegal_transition", "message": "It does not stream."}}, 409)
    door = Streamer(plays=[refused])
    async with serving(door.app()) as url, AsyncClient(url) as client:
        with pytest.raises(IllegalTransition):
            [one async for one in client.get("job_1").stream()]


async def test_a_wrong_request_is_refused_before_it_is_read() -> None:
    async with AsyncClient("http://127.0.0.1:1") as client:
        with pytest.raises(InvalidRequest):
            client.stream(prompt="x")


async def test_the_sync_client_streams_too() -> None:
    door, left = Streamer(plays=[50]), Streamer(WHOLE[:2], hold=True, state="leased")
    async with serving(door.app()) as url, serving(left.app()) as other:

        def use() -> None:
            with Client(url) as client:
                assert texts(list(client.stream(**ASK))) == TEXTS
            with Client(other) as client:
                with client.stream(**ASK) as stream:
                    assert texts([next(stream)]) == TEXTS[:1]
                assert left.cancelled.is_set()
                left.cancelled.clear()
                left.state = "leased"
                for _ in client.stream(**ASK):
                    break
                gc.collect()
                assert left.cancelled.is_set()

        await asyncio.to_thread(use)
