"""What only a socket shows: bad HTTP, endless heads, slow senders, and that none of them holds up the others."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from producer.api import body as bodies
from producer.api import protocol
from tests.api.door import CHAT, JOB, Raw, Served, read_answer, request_bytes

GOOD = request_bytes("/health/live", b"", method="GET")


async def send(door: Served, *parts: bytes) -> Raw | None:
    """The answer to these bytes; None if the connection was closed without one."""
    reader, writer = await door.connect()
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(5):
            return await read_answer(reader)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    finally:
        writer.close()


BAD_HTTP = {
    "no HTTP": b"hello\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + b"\x00" * 50,
    "binary": bytes(range(256)),
    "another version": b"GET /health/live HTTP/9.9\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a header without a colon": b"GET /health/live HTTP/1.1\r\nhost\r\n\r\n",
    "a header with a blank": b"GET /health/live HTTP/1.1\r\nho st: x\r\n\r\n",
    "a control character": b"GET /health/live HTTP/1.1\r\nhost: \x00\r\n\r\n",
    "a path that is not ASCII": b"GET /v1/jobs/\xc3\xa9 HTTP/1.1\r\nhost: x\r\n\r\n",
    "two lengths": b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "a length that is no number": b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n{}",
    "a negative length": b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n{}",
    "a length and chunks": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n",
    "a chunk without a size": b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
}


@pytest.mark.parametrize("kind", BAD_HTTP)
async def test_what_is_no_http_is_refused_or_cut_and_the_next_one_served(door: Served, kind: str) -> None:
    answer = await send(door, BAD_HTTP[kind])
    if answer:
        assert 400 <= answer.status < 500
        assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
    good = await send(door, GOOD)
    assert good
    assert good.status == 200


@pytest.mark.parametrize("where", ["one header", "many headers", "the path", "an endless line"])
async def test_a_head_without_end_is_cut(door: Served, where: str) -> None:
    size = protocol.HEAD_BYTES + 20_000
    heads = {
        "one header": b"GET /health/live HTTP/1.1\r\nx: " + b"a" * size,
        "many headers": b"GET /health/live HTTP/1.1\r\n" + b"x: aaaaaaaa\r\n" * (size // 10),
        "the path": b"GET /" + b"a" * size,
        "an endless line": b"G" * size,
    }
    head = heads[where]
    answer = await send(door, *(head[n : n + 8192] for n in range(0, len(head), 8192)))
    assert answer is None or answer.status in (400, 431)


async def test_a_head_within_the_bound_is_served(door: Served) -> None:
    answer = await send(door, request_bytes("/health/live", b"", "x: " + "a" * 30_000, method="GET"))
    assert answer
    assert answer.status == 200


async def test_a_head_that_does_not_come_is_cut(door: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.2)
    for start in (b"", b"GET / HT", b"GET /health/live HTTP/1.1\r\nx: "):
        reader, writer = await door.connect()
        writer.write(start)
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()


async def test_a_body_that_does_not_come_is_refused(door: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SILENT_S", 0.2)
    answer = await send(door, request_bytes("/v1/jobs", json.dumps(JOB).encode())[:-3])
    assert answer
    assert (answer.status, answer.json()["error"]["code"]) == (400, "invalid_request")


async def test_slow_senders_do_not_hold_up_the_others(door: Served) -> None:
    whole = request_bytes("/v1/chat/completions", json.dumps(CHAT).encode())
    slow = [await door.connect() for _ in range(200)]
    for n, (_, writer) in enumerate(slow):
        writer.write(whole[: 1 + n])
    began = time.monotonic()
    for _ in range(10):
        good = await send(door, GOOD)
        assert good
        assert good.status == 200
    assert time.monotonic() - began < 5.0, "a head has 30 s to come in"
    for _, writer in slow:
        writer.close()


@pytest.mark.parametrize("settings", [{"max_body_bytes": 100_000}], indirect=True)
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_large_is_told_so_before_it_is_whole(
    door: Served, chunked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "DISCARD_S", 0.2)
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    head += "transfer-encoding: chunked\r\n\r\n" if chunked else f"content-length: {10**9}\r\n\r\n"
    parts = [b"2710\r\n" + b"x" * 10_000 + b"\r\n" if chunked else b"x" * 10_000 for _ in range(90)]
    answer = await send(door, head.encode(), *parts)
    assert answer
    assert (answer.status, answer.json()["error"]["code"]) == (413, "payload_too_large")
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("settings", [{"max_body_bytes": 100_000}], indirect=True)
async def test_who_asks_first_is_told_before_it_sends(door: Served) -> None:
    began = time.monotonic()
    asks = b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n"
    answer = await send(door, asks + b"content-length: 1000000000\r\n\r\n")
    assert answer
    assert answer.status == 413
    assert time.monotonic() - began < 1.0


async def test_many_requests_on_one_connection_are_answered_in_order(door: Served) -> None:
    reader, writer = await door.connect()
    writer.write(GOOD + request_bytes("/v1/jobs", json.dumps(JOB).encode()) + GOOD)
    assert [(await read_answer(reader)).status for _ in range(3)] == [200, 202, 200]
    writer.close()


async def test_callers_who_vanish_in_the_middle_leave_nothing_behind(door: Served) -> None:
    whole = request_bytes("/v1/jobs", json.dumps(JOB).encode())
    for cut in range(0, len(whole), 7):
        _, writer = await door.connect()
        writer.write(whole[:cut])
        writer.transport.abort()
    async with asyncio.timeout(5):
        while door.server.server_state.tasks:
            await asyncio.sleep(0.01)
    async with door.client() as http:
        assert (await http.get("/v1/jobs")).json()["data"] == []
