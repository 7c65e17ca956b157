"""The front door on a socket, requests to it, and what its answers must look like."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI

from producer.serve import Server, make_server

READY_S = 20.0
CHAT = {"model": "llama", "messages": [{"role": "user", "content": "Hello"}]}
JOB = {"model": "llama", "body": {"messages": []}}
ANN = {"authorization": "Bearer ann"}
BOB = {"authorization": "Bearer bob"}


@dataclass(frozen=True)
class Served:
    """Where it listens."""

    server: Server
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, tenant: str = "ann", **more: Any) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {tenant}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, trust_env=False, timeout=30, **more)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, method: str, path: str, body: bytes = b"") -> Any:
        """The JSON of an answer, on a connection of its own; far cheaper than a client."""
        reader, writer = await self.connect()
        writer.write(request_bytes(path, body, method=method))
        answer = await read_answer(reader)
        writer.close()
        return answer.json()


@asynccontextmanager
async def serving(app: FastAPI, drain_s: float) -> AsyncIterator[Served]:
    """Serves while the block runs, in this loop."""
    server = make_server(app, "127.0.0.1", 0, drain_s)
    server.config.timeout_graceful_shutdown = 0
    task = asyncio.create_task(server.run_to_end())
    try:
        async with asyncio.timeout(READY_S):
            while not server.started:
                await asyncio.sleep(0.005)
        yield Served(server, server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, READY_S)


@dataclass(frozen=True)
class Raw:
    """An answer as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


async def read_answer(reader: asyncio.StreamReader) -> Raw:
    """The next answer of a connection."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Raw(int(first.split()[1]), headers, await reader.readexactly(int(headers.get("content-length", 0))))


def request_bytes(path: str, body: bytes, *headers: str, method: str = "POST") -> bytes:
    """A request as it goes over the wire, with its length."""
    lines = [f"{method} {path} HTTP/1.1", "host: door", "authorization: Bearer ann", *headers]
    if body:
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def refused(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Asserts that it is a refusal of this kind, whole in shape; returns its inner part."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.json().keys() == {"error"}
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] == code, error
    assert error["message"]
    assert isinstance(error["type"], str)
    if status in (429, 503):
        assert 1 <= int(response.headers["retry-after"]) <= 60
    return error


async def submit(http: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    """The job that was taken in."""
    response = await http.post("/v1/jobs", json=JOB | fields)
    assert response.status_code == 202, response.text
    return response.json()
