"""Servers that misbehave: one that answers every script with an error, and one that accepts nobody."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import hiredis


@asynccontextmanager
async def refusing_server(answer: str) -> AsyncIterator[str]:
    """The URL of a server that answers EVALSHA with the error `answer`, and all else with OK."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parser = hiredis.Reader()
        while data := await reader.read(65536):
            parser.feed(data)
            while (command := parser.gets()) is not False:
                writer.write(f"-{answer}\r\n".encode() if command[0] == b"EVALSHA" else b"+OK\r\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@contextmanager
def deaf_server() -> Iterator[str]:
    """The URL of a server whose host does not even answer to a connect, as behind a firewall that drops packets."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())  # fills the queue of those that nobody accepts
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
        for one in waiting:
            one.close()
