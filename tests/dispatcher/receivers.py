"""Receivers on free loopback ports, which keep what they were sent; plain, with TLS, silent or slow."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache

import trustme

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@cache
def authority() -> trustme.CA:
    """Made anew in each run: no private key stands in the repository."""
    return trustme.CA()


class Receiver:
    """`heads` are the requests so far, line by line; `names` what TLS was asked for; `open` how many are connected."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.port = 0
        self.heads: list[list[str]] = []
        self.bodies: list[bytes] = []
        self.names: list[str | None] = []
        self.open = 0
        self.moved = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count(1)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                head = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
                self.heads.append(head)
                size = next((int(line[15:]) for line in head if line.lower().startswith("content-length:")), 0)
                self.bodies.append(await reader.readexactly(size))
                await self._answer(writer)
                await writer.drain()
                await reader.read()
        finally:
            writer.close()
            self._count(-1)

    def _count(self, change: int) -> None:
        self.open += change
        self.moved.set()

    async def until_open(self, count: int) -> None:
        while self.open != count:
            self.moved.clear()
            await asyncio.wait_for(self.moved.wait(), 5)


def says(raw: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(raw)

    return answer


async def nothing(_: asyncio.StreamWriter) -> None:
    """It has taken the request, and says nothing."""


async def drip(writer: asyncio.StreamWriter) -> None:
    """A byte each 20 ms, for ever."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


@asynccontextmanager
async def receiver(
    answer: Answer | bytes = OK, *, tls: bool = False, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Receiver]:
    made = Receiver(says(answer) if isinstance(answer, bytes) else answer)
    context = _server_tls(made) if tls else None
    server = await asyncio.start_server(made.serve, host, port, ssl=context)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await asyncio.wait_for(made.until_open(0), 5)


def _server_tls(made: Receiver) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert("receiver.example").configure_cert(context)
    context.sni_callback = lambda _socket, name, _context: made.names.append(name)
    return context


def client_tls() -> ssl.SSLContext:
    """Trusts the receivers' certificate."""
    context = ssl.create_default_context()
    authority().configure_trust(context)
    return context
