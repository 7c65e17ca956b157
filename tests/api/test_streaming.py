"""Streamed answers through the queue: the backend's own bytes, at once, with positions, and errors that are told."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from dispatcher.backends.answer import Answer, CallFailed
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from tests.api.door import Served, refused
from tests.api.reading import STREAM, follow, reading, soon, whole
from tests.contract.acts import set_gate
from tests.dispatcher.scripted import Script, answer, fail, finished, hang, make_worker, speak, working

ENDPOINTS = ("/v1/chat/completions", "/v1/completions")
EVENTS = [b'data: {"n": %d}\n\n' % n for n in range(1, 6)] + [b"data: [DONE]\n\n"]
RESET = CallFailed("reset", "The backend broke the connection.")


@pytest.fixture
async def worker(queue: Queue, pool: Pool, signals: Signals, script: Script) -> AsyncIterator[None]:
    """Serves the pool."""
    async with working(make_worker(queue, pool, script, concurrency=100, drain_s=0.0), signals):
        yield


@pytest.mark.usefixtures("worker")
class TestServed:
    @pytest.mark.parametrize("endpoint", ENDPOINTS)
    async def test_the_backends_events_come_unchanged_and_say_their_place(
        self, door: Served, script: Script, queue: Queue, endpoint: str
    ) -> None:
        script.then(speak(script, *EVENTS, every_s=0.002))
        read = await whole(door, path=endpoint)
        assert read.events == EVENTS
        assert read.response.status_code == 200
        assert read.response.headers["content-type"].startswith("text/event-stream")
        assert read.response.headers["x-fairlane-backend"] == "b1"
        assert int(read.response.headers["x-fairlane-queued-ms"]) >= 0
        token = read.ids[0].split("-")[0]
        assert read.ids == [f"{token}-{n}" for n in range(1, 7)]
        job = await finished(queue, read.job_id)
        assert (job.state, job.status, job.result) == ("succeeded", 200, b"".join(EVENTS))
        assert json.loads(script.bodies[0])["stream"] is True

    async def test_the_first_event_does_not_wait_for_the_second(self, door: Served, script: Script) -> None:
        async def two() -> Answer:
            hear = script.hear
            assert hear
            hear(EVENTS[0])
            await go_on.wait()
            hear(EVENTS[1])
            return Answer(200, EVENTS[0] + EVENTS[1], streamed=True)

        go_on = asyncio.Event()
        script.then(two)
        async with reading(door) as read:
            await read.until(lambda: len(read.events) == 1)
            go_on.set()
            assert (await read.all()).events == EVENTS[:2]

    @pytest.mark.parametrize(
        "parts",
        [
            [b"data: \xff\xfe\x00\n\n", b"data: \xc3", b"\xa9\n\n"],
            [b"data: 1\r\n\r", b"\ndata: 2\r\n\r\n"],
            [b"data: 1\r\rdata: 2\r\r"],
            [b": hello\n\n", b"event: a\nid: theirs\nretry: 7\ndata: 1\ndata: 2\n\n"],
            [b"\n\n\n", b"data: 1\n\n\n\n\n"],
            [b"data: no blank line at the end"],
            [b"data: one end of a line\n"],
        ],
        ids=["no UTF-8", "CRLF", "CR", "fields", "blank lines", "no end", "half an end"],
    )
    async def test_whatever_the_events_are_they_come_unchanged(
        self, door: Served, script: Script, parts: list[bytes]
    ) -> None:
        script.then(speak(script, *parts, every_s=0.002))
        async with reading(door) as read:
            raw = b"".join([part async for part in read.response.aiter_raw()])
        ids = re.findall(rb"id: \d+-(\d+)", raw)
        assert [int(id_) for id_ in ids] == list(range(1, len(ids) + 1))
        assert re.sub(rb"id: \d+-\d+(\r\n|\n|\r)|\nid: \d+-\d+\Z", b"", raw) == b"".join(parts)

    async def test_an_event_may_be_larger_than_a_megabyte(self, door: Served, script: Script) -> None:
        large = b"data: " + b"x" * (2 << 20) + b"\n\n"
        script.then(speak(script, *(large[n : n + 65_536] for n in range(0, len(large), 65_536)), EVENTS[0]))
        read = await whole(door)
        assert read.events == [large, EVENTS[0]]

    async def test_many_stream_at_once(self, door: Served, script: Script) -> None:
        script.then(speak(script, *EVENTS, every_s=0.02))
        reads = await asyncio.gather(*(whole(door) for _ in range(50)))
        assert all(read.events == EVENTS for read in reads)
        assert len({read.job_id for read in reads}) == 50

    async def test_a_slow_reader_gets_everything(
        self, door: Served, script: Script, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("producer.streaming.MAIL_MOST", 2000)
        events = [b"data: %d %b\n\n" % (n, b"x" * 10_000) for n in range(400)]  # more than fits between us
        script.then(speak(script, *events))
        async with reading(door) as read:
            await read.until(lambda: bool(read.events))
            await soon(lambda: _ended(script))
            assert (await read.all()).events == events

    @pytest.mark.parametrize("status", [200, 400, 401, 404, 422])
    async def test_an_answer_that_is_no_stream_comes_as_it_is(
        self, http: httpx.AsyncClient, script: Script, status: int
    ) -> None:
        body = b'{"error": {"message":\n "no"}}'
        script.then(answer(Answer(status, body)))
        response = await http.post(ENDPOINTS[0], json=STREAM)
        assert (response.status_code, response.content) == (status, body)
        assert response.headers["content-type"] == "application/json"
        assert script.calls == [response.headers["x-fairlane-job-id"]]

    @pytest.mark.parametrize("settings", [{"max_attempts": 1}], indirect=True)
    async def test_a_failure_before_the_first_byte_has_its_status(
        self, http: httpx.AsyncClient, script: Script
    ) -> None:
        script.then(fail(RESET))
        response = await http.post(ENDPOINTS[0], json=STREAM)
        refused(response, 502, "backend_unreachable")
        assert response.headers["x-fairlane-job-id"] == script.calls[0]

    async def test_before_the_first_byte_an_attempt_is_repeated(
        self, door: Served, script: Script, queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("dispatcher.policy.verdict.BASE_MS", 1)
        script.then(speak(script, b"data: half an event", fault=RESET), speak(script, *EVENTS))
        async with swept(queue, pool):
            assert (await whole(door)).events == EVENTS
        assert len(script.calls) == 2

    async def test_a_failure_after_the_first_byte_is_an_event_and_is_not_repeated(
        self, door: Served, script: Script, queue: Queue
    ) -> None:
        script.then(speak(script, *EVENTS[:2], b"data: half an ev", fault=RESET))
        read = await whole(door)
        assert (read.response.status_code, read.events[:-1]) == (200, EVENTS[:2])
        assert (read.error["code"], read.error["message"]) == ("backend_unreachable", str(RESET))
        assert read.error.keys() == {"message", "type", "param", "code"}
        job = await finished(queue, read.job_id)
        assert (job.state, job.dead, len(job.attempts)) == ("failed", False, 1)
        again = await follow(door, read.job_id, after=read.ids[0])
        assert again.events == read.events[1:]

    async def test_a_caller_who_hangs_up_cancels_the_job_down_to_the_backend(
        self, door: Served, script: Script, queue: Queue, pool: Pool
    ) -> None:
        """Cases 16 and 17."""

        async def endless() -> Answer:
            assert script.hear
            script.hear(EVENTS[0])
            return await hang()

        script.then(endless)
        async with reading(door) as read:
            await read.until(lambda: bool(read.events))
        job = await finished(queue, read.job_id)
        assert job.state == "cancelled"
        await soon(lambda: _is(script.aborted == [read.job_id]))
        await soon(lambda: _idle(queue, pool))

    async def test_also_one_who_hangs_up_before_the_first_event(
        self, door: Served, script: Script, queue: Queue, pool: Pool
    ) -> None:
        script.then(hang)
        async with door.client() as http:
            asking = asyncio.create_task(http.post(ENDPOINTS[0], json=STREAM))
            await script.began.wait()
            asking.cancel()
            await asyncio.wait([asking])
        assert (await finished(queue, script.calls[0])).state == "cancelled"
        await soon(lambda: _is(script.aborted == script.calls))
        await soon(lambda: _idle(queue, pool))

    async def test_with_an_idempotency_key_the_job_goes_on_and_is_joined(
        self, door: Served, script: Script, queue: Queue
    ) -> None:
        script.then(speak(script, *EVENTS, every_s=0.03))
        headers = {"idempotency-key": "k"}
        async with reading(door, headers=headers) as read:
            await read.until(lambda: len(read.events) >= 2)
        read.events, read.ids = read.events[:2], read.ids[:2]
        rest = await whole(door, headers=headers | {"last-event-id": read.ids[-1]})
        assert read.events + rest.events == EVENTS
        assert rest.job_id == read.job_id
        assert (await whole(door, headers=headers)).events == EVENTS
        assert len(script.calls) == 1

    async def test_a_stream_is_followed_by_its_own_tenant_only(self, door: Served, script: Script) -> None:
        script.then(speak(script, *EVENTS))
        read = await whole(door)
        assert (await follow(door, read.job_id)).events == EVENTS
        assert (await follow(door, read.job_id, tenant="bob")).response.status_code == 404
        assert (await follow(door, "job_nothing")).response.status_code == 404

    async def test_a_job_for_later_is_streamed_too(self, door: Served, script: Script, http: httpx.AsyncClient) -> None:
        script.then(speak(script, *EVENTS, every_s=0.01))
        job = (await http.post("/v1/jobs", json={"model": "llama", "body": {"stream": True, "messages": []}})).json()
        async with reading(door, method="GET", path=f"/v1/jobs/{job['id']}/stream") as read:
            await read.until(lambda: bool(read.events))
        query = f"?starting_after={read.ids[0]}"  # hanging up did not cancel it
        rest = await whole(door, method="GET", path=f"/v1/jobs/{job['id']}/stream{query}")
        assert read.events[:1] + rest.events == EVENTS

    async def test_what_is_no_stream_cannot_be_followed(self, http: httpx.AsyncClient) -> None:
        job = (await http.post("/v1/jobs", json={"model": "llama", "body": {}})).json()
        refused(await http.get(f"/v1/jobs/{job['id']}/stream"), 409, "illegal_transition")

    async def test_a_position_that_is_none_is_refused(self, http: httpx.AsyncClient, script: Script) -> None:
        script.then(speak(script, *EVENTS))
        id_ = (await http.post(ENDPOINTS[0], json=STREAM)).headers["x-fairlane-job-id"]
        for wrong in ("x", "1", "1-0", "-1-2"):
            refused(await http.get(f"/v1/jobs/{id_}/stream", params={"starting_after": wrong}), 400, "invalid_request")
            refused(await http.get(f"/v1/jobs/{id_}/stream", headers={"last-event-id": wrong}), 400, "invalid_request")

    async def test_so_is_one_that_is_not_there(self, http: httpx.AsyncClient, door: Served, script: Script) -> None:
        script.then(speak(script, *EVENTS))
        read = await whole(door)
        token = int(read.ids[0].split("-")[0])
        for beyond in (f"{token}-{len(EVENTS) + 1}", f"{token + 1}-1"):
            asked = http.get(f"/v1/jobs/{read.job_id}/stream", params={"starting_after": beyond})
            refused(await asked, 400, "invalid_request")

    async def test_of_two_positions_the_later_one_counts(self, door: Served, script: Script) -> None:
        """A browser that comes back sends the address that it began with, and the last id that it saw."""
        script.then(speak(script, *EVENTS))
        read = await whole(door)
        for one, other in ((0, 3), (3, 0)):
            path = f"/v1/jobs/{read.job_id}/stream?starting_after={read.ids[one]}"
            rest = await whole(door, method="GET", path=path, headers={"last-event-id": read.ids[other]})
            assert rest.events == EVENTS[4:]

    async def test_after_its_time_a_stream_is_replayed_from_the_result(
        self, door: Served, script: Script, queue: Queue, pool: Pool
    ) -> None:
        script.then(speak(script, *EVENTS))
        read = await whole(door)
        client = queue._store.raw
        await client.delete(pool.key("chunks", read.job_id))
        again = await follow(door, read.job_id)
        assert (again.events, again.ids) == (read.events, read.ids)
        assert (await follow(door, read.job_id, after=read.ids[3])).events == EVENTS[4:]
        assert (await follow(door, read.job_id, after=read.ids[-1])).events == []

    @pytest.mark.parametrize(
        ("events", "usage"),
        [
            ([b'data: {"usage": {"prompt_tokens": 3, "completion_tokens": 4}}\n\n', EVENTS[-1]], (3, 4)),
            ([b'data: {"usage": null}\n\n', b": x\n\n", b'data: {"a": 1}\n\n', EVENTS[-1]], (None, 2)),
        ],
        ids=["reported", "counted"],
    )
    async def test_its_usage_is_what_is_reported_or_else_counted(
        self, door: Served, script: Script, queue: Queue, events: list[bytes], usage: tuple[int | None, int]
    ) -> None:
        script.then(speak(script, *events))
        found = (await finished(queue, (await whole(door)).job_id)).usage
        assert found
        assert (usage[0] or found.input_tokens, found.output_tokens) == (found.input_tokens, usage[1])

    async def test_a_cancel_from_elsewhere_ends_it(self, door: Served, script: Script, http: httpx.AsyncClient) -> None:
        async def endless() -> Answer:
            assert script.hear
            script.hear(EVENTS[0])
            return await hang()

        script.then(endless)
        async with reading(door) as read:
            await read.until(lambda: bool(read.events))
            await http.delete(f"/v1/jobs/{read.job_id}")
            assert (await read.all()).error["code"] == "job_cancelled"


class TestWaiting:
    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("producer.streaming.PAUSES_S", (0.1, 0.05))

    async def test_who_waits_is_told_the_place_in_the_queue(
        self, door: Served, queue: Queue, pool: Pool, signals: Signals, script: Script
    ) -> None:
        await set_gate(queue, pool, "b1", 0)
        async with reading(door) as first, reading(door) as second:
            await second.until(lambda: len(second.comments) >= 2)
            assert first.response.status_code == 200
            assert second.comments[-1] == b": queued, position 1\n\n"
            await set_gate(queue, pool, "b1", 1000)
            script.then(speak(script, *EVENTS))
            async with working(make_worker(queue, pool, script), signals):
                assert (await first.all()).events == EVENTS
                assert (await second.all()).events == EVENTS

    async def test_a_refusal_after_that_is_an_event(
        self, door: Served, queue: Queue, pool: Pool, signals: Signals, script: Script
    ) -> None:
        async with reading(door) as read:
            await read.until(lambda: bool(read.comments))
            script.then(answer(Answer(400, b'{"error": {"message": "no", "code": "theirs"}}')))
            async with working(make_worker(queue, pool, script), signals):
                assert (await read.all()).error == {"message": "no", "code": "theirs"}

    async def test_so_is_an_answer_that_is_no_stream(
        self, door: Served, queue: Queue, pool: Pool, signals: Signals, script: Script
    ) -> None:
        async with reading(door) as read:
            await read.until(lambda: bool(read.comments))
            script.then(answer(Answer(200, b'{"a":\n1}')))
            async with working(make_worker(queue, pool, script), signals):
                assert (await read.all()).events == [b'data: {"a":\ndata: 1}\n\n']

    async def test_one_who_hangs_up_while_it_waits_cancels_it(self, door: Served, queue: Queue, pool: Pool) -> None:
        async with reading(door) as read:
            await read.until(lambda: bool(read.comments))
        assert (await finished(queue, read.job_id)).state == "cancelled"


@asynccontextmanager
async def swept(queue: Queue, pool: Pool) -> AsyncIterator[None]:
    """A sweeper is at work."""

    async def sweep() -> None:
        while True:
            await queue.sweep(pool)
            await asyncio.sleep(0.01)

    sweeping = asyncio.create_task(sweep())
    try:
        yield
    finally:
        sweeping.cancel()
        await asyncio.wait([sweeping])


async def _ended(script: Script) -> bool:
    return script.running == 0


async def _is(what: bool) -> bool:
    return what


async def _idle(queue: Queue, pool: Pool) -> bool:
    return (await queue.inspect.overview(pool)).leased == 0
