"""One large body costs its sender time, and nobody else: it is read aside, one at a time, and may hold only so much."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import httpx
import pytest

from fairlane import strictjson
from tests.api.door import JOB, refused

JSON = {"content-type": "application/json"}
PATHS = ("/v1/jobs", "/v1/chat/completions", "/v1/responses")


def body_with(x: str) -> bytes:
    return b'{"model":"llama","messages":[],"body":{"x":%b}}' % x.encode()


async def test_a_body_of_very_many_tiny_objects_is_refused_before_it_is_read(http: httpx.AsyncClient) -> None:
    content = body_with(f"[{','.join(['{}'] * 2_500_000)}]")
    began = time.process_time()
    for path in PATHS:
        message = refused(await http.post(path, content=content, headers=JSON), 400, "invalid_request")["message"]
        assert "500,000 names and values" in message
    assert time.process_time() - began < 3


async def test_while_a_large_body_is_read_others_have_their_turn_but_not_another_large_one(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, reading, go = strictjson.parse, threading.Semaphore(0), threading.Event()

    def slow(text: bytes) -> object:
        if len(text) > 300_000:
            reading.release()
            assert go.wait(10)
        return parse(text)

    monkeypatch.setattr(strictjson, "parse", slow)
    content = json.dumps(JOB | {"metadata": {}, "body": {"prompt": "x" * 400_000}}).encode()
    large = [asyncio.create_task(http.post("/v1/jobs", content=content, headers=JSON)) for _ in range(3)]
    try:
        assert await asyncio.to_thread(reading.acquire, timeout=10)
        for _ in range(5):
            assert (await http.post("/v1/jobs", json=JOB)).status_code == 202
        assert not reading.acquire(blocking=False)
    finally:
        go.set()
    assert [answer.status_code for answer in await asyncio.gather(*large)] == [202] * 3
