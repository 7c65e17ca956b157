"""Calls over HTTP, against a server that misbehaves on the level of its socket."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from dispatcher.backends.answer import Answer, CallFailed, retry_after_s
from dispatcher.backends.call import HttpBackend, Timeouts, base_url
from fairlane.head import Head
from fairlane.model import BackendSpec, Usage

HEAD = Head("/v1/completions", "llama")
Reply = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Raw:
    """A server that reads one request after another, and answers each as `reply` says."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.requests: list[bytes] = []
        self.connections = 0
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while not reader.at_eof():
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
                )
                self.requests.append(head + await reader.readexactly(length))
                await self.reply(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.closed.set()
            writer.close()


@asynccontextmanager
async def serving(reply: Reply) -> AsyncIterator[tuple[str, Raw]]:
    raw = Raw(reply)
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", raw
    finally:
        server.close()


@asynccontextmanager
async def calling(url: str, timeouts: Timeouts | None = None, **more: object) -> AsyncIterator[HttpBackend]:
    backend = HttpBackend(BackendSpec(url), timeouts or Timeouts(total_s=5.0), **more)  # type: ignore[arg-type]
    try:
        yield backend
    finally:
        await backend.close()


def says(*parts: bytes, then: Reply | None = None) -> Reply:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
        if then:
            await then(reader, writer)

    return reply


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the caller has gone."""
    await reader.read()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """In order, as a server that ends."""
    writer.close()


def http(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


PART = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"


async def test_the_answer_comes_back_unchanged() -> None:
    body = b'{"usage": {"prompt_tokens": 5, "completion_tokens": 7}, "x": "\xc3\xa4"}'
    async with serving(says(http(200, body))) as (url, raw), calling(url + "/v1/") as backend:
        answer = await backend.call("job_1", HEAD, b'{"a": 1}')
    assert answer == Answer(200, body)
    assert answer.usage == Usage(5, 7)
    head, _, sent = raw.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/completions HTTP/1.1")
    assert b"x-request-id: job_1" in head
    assert sent == b'{"a": 1}'


STREAM = Head("/v1/completions", "llama", stream=True)
SSE = "content-type: Text/Event-Stream; charset=utf-8"


async def test_a_stream_is_handed_on_while_it_comes_and_is_the_answer_too() -> None:
    heard: list[bytes] = []
    go_on = asyncio.Event()

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: 27\r\n{SSE}\r\n\r\n".encode() + b"data: 1\n\nda")
        await writer.drain()
        await go_on.wait()
        writer.write(b'ta: {"usage": 1}')

    async with serving(reply) as (url, _), calling(url) as backend:
        call = asyncio.create_task(backend.call("job_1", STREAM, b"{}", heard.append))
        async with asyncio.timeout(5):
            while b"".join(heard) != b"data: 1\n\nda":
                await asyncio.sleep(0.001)
        go_on.set()
        answer = await call
    assert b"".join(heard) == answer.body == b'data: 1\n\ndata: {"usage": 1}'
    assert (answer.status, answer.streamed) == (200, True)


@pytest.mark.parametrize(
    ("head", "status", "kind"),
    [(STREAM, 200, "content-type: application/json"), (STREAM, 400, SSE), (STREAM, 200, "x: y"), (HEAD, 200, SSE)],
    ids=["JSON", "a refusal", "no type", "not asked for"],
)
async def test_what_is_no_stream_is_not_handed_on(head: Head, status: int, kind: str) -> None:
    heard: list[bytes] = []
    async with serving(says(http(status, b"data: 1\n\n", kind))) as (url, _), calling(url) as backend:
        answer = await backend.call("job_1", head, b"{}", heard.append)
    assert (heard, answer) == ([], Answer(status, b"data: 1\n\n"))


@pytest.mark.parametrize(
    ("events", "usage"),
    [
        ([b'{"usage": {"prompt_tokens": 5, "completion_tokens": 7}}', b"[DONE]"], Usage(5, 7)),
        ([b'{"usage": {"prompt_tokens": 5, "completion_tokens": 1}}'] * 9 + [b'{"usage": null}'] * 9, Usage(5, 1)),
        ([b'{"response": {"usage": {"input_tokens": 2, "output_tokens": 3}}}'], Usage(2, 3)),
        ([b'{"usage": "?"}', b'{"usage": '], None),
        ([], None),
    ],
    ids=["last", "not the last", "a response's", "broken", "none"],
)
def test_a_streams_usage_is_the_last_that_it_reports(events: list[bytes], usage: Usage | None) -> None:
    text = b"".join(b"data: %b\n\n" % event for event in events)
    assert Answer(200, text, streamed=True).usage == usage


@pytest.mark.parametrize("status", [302, 400, 404, 429, 500, 503])
async def test_any_status_is_an_answer_and_no_redirect_is_followed(status: int) -> None:
    reply = says(http(status, b"why", "retry-after: 7", "location: http://127.0.0.1:9/"))
    async with serving(reply) as (url, raw), calling(url) as backend:
        assert await backend.call("job_1", HEAD, b"{}") == Answer(status, b"why", 7.0)
    assert len(raw.requests) == 1


async def test_connections_are_kept() -> None:
    async with serving(says(http(200, b"{}"))) as (url, raw), calling(url) as backend:
        for _ in range(3):
            await backend.call("job_1", HEAD, b"{}")
    assert raw.connections == 1


async def test_nobody_there_is_a_refusal() -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        unused_tcp_port = taken.getsockname()[1]
    async with calling(f"http://127.0.0.1:{unused_tcp_port}") as backend:
        with pytest.raises(CallFailed) as failed:
            await backend.call("job_1", HEAD, b"{}")
    assert failed.value.fault == "refused"


@pytest.mark.parametrize(
    ("reply", "timeouts", "fault"),
    [
        (hang_up, Timeouts(5.0), "reset"),
        (close, Timeouts(5.0), "reset"),
        (says(PART, then=hang_up), Timeouts(5.0), "reset"),
        (says(http(600, b"")), Timeouts(5.0), "reset"),
        (says(http(999, b"{}")), Timeouts(5.0), "reset"),
        (says(http(101, b"")), Timeouts(5.0), "reset"),
        (says(b"nonsense\r\n\r\n", then=hang_up), Timeouts(5.0), "reset"),
        (silence, Timeouts(0.2), "timeout"),
        (says(PART, then=silence), Timeouts(0.2), "timeout"),
        (silence, Timeouts(5.0, first_byte_s=0.2), "first_byte_timeout"),
        (says(PART, then=silence), Timeouts(5.0, first_byte_s=0.2, idle_s=0.2), "idle_timeout"),
    ],
    ids=["hang-up", "close", "half", "600", "999", "101", "nonsense", "silent", "half-silent", "no-first-byte", "idle"],
)
async def test_what_is_no_answer_says_why(reply: Reply, timeouts: Timeouts, fault: str) -> None:
    async with serving(reply) as (url, _), calling(url, timeouts) as backend:
        with pytest.raises(CallFailed) as failed:
            await backend.call("job_1", HEAD, b"{}")
        assert failed.value.fault == fault
        assert str(failed.value)


@pytest.mark.parametrize("end", [hang_up, close])
async def test_a_kept_connection_that_ends_after_the_request_is_no_refusal(end: Reply) -> None:
    """The backend has seen it: an attempt is used, and it is not sent twice."""
    async with serving(says(http(200, b"1"))) as (url, raw), calling(url) as backend:
        await backend.call("job_1", HEAD, b"{}")
        raw.reply = end
        with pytest.raises(CallFailed) as failed:
            await backend.call("job_2", HEAD, b"{}")
        assert failed.value.fault == "reset"
        assert (raw.connections, len(raw.requests)) == (1, 2)


async def test_a_job_may_say_how_long_it_may_take() -> None:
    async with serving(silence) as (url, _), calling(url) as backend:
        with pytest.raises(CallFailed, match=r"0\.1 s"):
            await backend.call("job_1", Head("/v1/completions", "llama", timeout_s=0.1), b"{}")


async def test_a_slow_first_byte_is_no_idle_answer() -> None:
    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        writer.write(http(200, b"{}"))

    async with serving(slowly) as (url, _), calling(url, Timeouts(5.0, idle_s=0.1)) as backend:
        assert (await backend.call("job_1", HEAD, b"{}")).status == 200


async def test_an_answer_that_is_too_large_is_not_taken_whole() -> None:
    async with serving(says(http(200, b"x" * 1000))) as (url, _), calling(url, answer_most=999) as backend:
        with pytest.raises(CallFailed) as failed:
            await backend.call("job_1", HEAD, b"{}")
    assert failed.value.fault == "too_large"


@pytest.mark.parametrize("reply", [silence, says(PART, then=silence)], ids=["before", "within"])
async def test_a_call_that_is_cancelled_hangs_up(reply: Reply) -> None:
    async with serving(reply) as (url, raw), calling(url) as backend:
        call = asyncio.create_task(backend.call("job_1", HEAD, b"{}"))
        async with asyncio.timeout(5):
            while not raw.requests:
                await asyncio.sleep(0.005)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await raw.closed.wait()


async def test_a_compressed_answer_is_refused_before_it_is_unpacked() -> None:
    """Found by attack: 2,600 bytes of twice compressed zeros took 3 GB."""
    bomb = gzip.compress(gzip.compress(bytes(10_000_000)))
    reply = says(http(200, bomb, "content-encoding: gzip, gzip"))
    async with serving(reply) as (url, _), calling(url) as backend:
        with pytest.raises(CallFailed, match="compressed") as failed:
            await backend.call("job_1", HEAD, b"{}")
    assert failed.value.fault == "too_large"


@pytest.mark.parametrize("reply", [hang_up, says(PART, then=hang_up), None], ids=["reset", "half", "refused"])
async def test_what_a_tenant_is_told_holds_no_secret(reply: Reply | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by attack: the backend's key or password stood in the job's error."""
    monkeypatch.setenv("UPSTREAM_KEY", "sk-secret\n")
    async with serving(reply or hang_up) as (url, _):
        address = url.replace("http://", "http://user:secret@") if reply else "http://user:secret@127.0.0.1:1"
        backend = HttpBackend(BackendSpec(address, key_env="UPSTREAM_KEY"), Timeouts(5.0))
        with pytest.raises(CallFailed) as failed:
            await backend.call("job_1", HEAD, b"{}")
        await backend.close()
    assert "secret" not in str(failed.value) + failed.value.detail
    assert "127.0.0.1" not in str(failed.value)


@pytest.mark.parametrize("key", ["", " ", "sk-\u00e4", "sk\x00"])
async def test_a_key_that_is_none_is_this_dispatchers_fault(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatcher.backends.address.os.environ", {"UPSTREAM_KEY": key})
    async with serving(says(http(200, b"{}"))) as (url, raw):
        backend = HttpBackend(BackendSpec(url, key_env="UPSTREAM_KEY"), Timeouts(5.0))
        with pytest.raises(CallFailed) as failed:
            await backend.call("job_1", HEAD, b"{}")
        await backend.close()
    assert failed.value.fault == "unready"
    assert "UPSTREAM_KEY" in failed.value.detail
    assert raw.requests == []


@pytest.mark.parametrize("endpoint", ["/v1/../admin", "/metrics", "//evil/v1/x", "/v1/a?b=c", "/v1/a b", "/v1/\r\nx"])
async def test_only_endpoints_of_the_api_are_called(endpoint: str) -> None:
    async with serving(says(http(200, b"{}"))) as (url, raw), calling(url) as backend:
        with pytest.raises(CallFailed) as failed:
            await backend.call("job_1", Head(endpoint, "llama"), b"{}")
    assert failed.value.fault == "unsuitable"
    assert raw.requests == []


async def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(says(http(200, b"{}"))) as (url, raw):
        backend = HttpBackend(BackendSpec(url, key_env="UPSTREAM_KEY"), Timeouts())
        with pytest.raises(CallFailed, match="from here"):
            await backend.call("job_1", HEAD, b"{}")
        monkeypatch.setenv("UPSTREAM_KEY", "secret")
        await backend.call("job_1", HEAD, b"{}")
        await backend.close()
    assert b"authorization: Bearer secret" in raw.requests[0]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None), ("0", 0.0), ("120", 120.0), ("soon", None), ("-1", None), ("9" * 400, 1e9),
        ("Sun, 29 Nov 2026 12:00:10 +9999999999", None),
        ("Sun, 29 Nov 2026 12:00:10 GMT", 10.0), ("Sun, 29 Nov 2020 12:00:10 GMT", 0.0),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header, datetime(2026, 11, 29, 12, tzinfo=UTC)) == seconds


@pytest.mark.parametrize(
    "body",
    [b'{"usage":' + b"[" * 100_000, b"",
     b"x", b"[]", b'{"usage": 3}', b'{"usage": {"prompt_tokens": -1}}', b'{"usage": {"prompt_tokens": true}}',
     b'{"usage": {"prompt_tokens": 1, "completion_tokens": null}}', b'{"usage": {"prompt_tokens": 1e3}}'],
)  # fmt: skip
def test_usage_that_is_not_reported_is_none(body: bytes) -> None:
    assert Answer(200, body).usage is None


@pytest.mark.parametrize("body", [b'{"usage": %b}', b'{"type": "response.completed", "response": {"usage": %b}}'])
def test_usage_of_a_response_has_names_of_its_own(body: bytes) -> None:
    assert Answer(200, body % b'{"input_tokens": 5, "output_tokens": 7}').usage == Usage(5, 7)


def test_a_url_may_end_with_v1() -> None:
    assert {base_url(f"http://h:1{end}") for end in ("", "/", "/v1", "/v1/")} == {"http://h:1"}
