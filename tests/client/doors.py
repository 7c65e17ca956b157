"""Front doors for the tests: any ASGI application on a port, and one that answers what a test tells it to."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

PATIENCE_S = 10.0


@asynccontextmanager
async def serving(app: ASGIApp, listening: socket.socket | None = None) -> AsyncIterator[str]:
    """The URL at which `app` is served within the block."""
    own = listening or free_socket()
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=0))
    task = asyncio.create_task(server.serve(sockets=[own]))
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not server.started:
                await asyncio.sleep(0.002)
        yield f"http://127.0.0.1:{own.getsockname()[1]}"
    finally:
        for connection in server.server_state.connections:  # as a kill does: those who wait get no answer
            if connection.transport:
                connection.transport.abort()
        server.should_exit = True
        await task
        own.close()


def free_socket(port: int = 0) -> socket.socket:
    """Bound to a port of the loopback; it does not listen yet."""
    # asyncio sets TCP_NODELAY only where it sees the protocol
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    return made


@dataclass
class Said:
    """An answer to give. `cut`: the connection is broken instead, after the request was read."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


def refusal(status: int, code: str, **headers: str) -> Said:
    return Said(status, {"error": {"message": f"It is {code}.", "type": "x", "param": None, "code": code}}, headers)


CUT = Said(0, None, cut=True)


class _Cut(Response):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Begins an answer and leaves: uvicorn closes the connection."""
        await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"99")]})


class Stub:
    """A front door that gives `answers` first, then takes in each job. `asked` holds the bodies, `at` the times.

    `paths` holds each path, with the header `authorization`.
    """

    def __init__(self) -> None:
        self.answers: list[Said | Callable[[Any], Said]] = []
        self.asked: list[Any] = []
        self.at: list[float] = []
        self.paths: list[tuple[str, str | None]] = []
        self.keys: dict[str, str] = {}
        self._numbers = count(1)

    def app(self) -> ASGIApp:
        methods = ["GET", "POST", "DELETE"]
        return Starlette(routes=[Route("/{path:path}", self._answer, methods=methods)])

    async def _answer(self, request: Request) -> Response:
        raw = await request.body()
        body = json.loads(raw) if raw else None
        self.asked.append(body)
        self.paths.append((request.url.path, request.headers.get("authorization")))
        self.at.append(asyncio.get_running_loop().time())
        given = self.answers.pop(0) if self.answers else self.take_in
        said = given(body) if callable(given) else given
        if said.cut:
            return _Cut()
        content = said.body if isinstance(said.body, str) else json.dumps(said.body)
        return Response(content, said.status, dict(said.headers), "application/json")

    def take_in(self, body: Any) -> Said:
        if body and "jobs" in body:
            return Said(202, {"jobs": [self.took(job) for job in body["jobs"]]})
        return Said(202, self.took(body))

    def took(self, job: Any) -> dict[str, Any]:
        """A job's answer; one with the same key is the same job."""
        return {"object": "job", "id": self.keys.setdefault(job["idempotency_key"], f"job_{next(self._numbers)}")}
