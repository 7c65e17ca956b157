"""A wire to Redis that breaks: before a request reaches it, or after the request was obeyed and before the reply."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal, Self

CHUNK: Final = 1 << 20
Fate = Literal["passes", "request_lost", "reply_lost"]


class Wire:
    """A TCP proxy on a loopback port. `fate` is asked about each request; what is lost ends its connection."""

    def __init__(self, redis_port: int, fate: Callable[[bytes], Fate]) -> None:
        self._redis_port = redis_port
        self._fate = fate
        self.fates: Counter[Fate] = Counter()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _connect(self, client_reader: StreamReader, client_writer: StreamWriter) -> None:
        redis_reader, redis_writer = await asyncio.open_connection("127.0.0.1", self._redis_port)
        doomed = asyncio.Event()  # the next reply ends the connection and is not passed on

        async def requests() -> None:
            while request := await client_reader.read(CHUNK):
                fate = self._fate(request)
                self.fates[fate] += 1
                if fate == "request_lost":
                    break
                if fate == "reply_lost":
                    doomed.set()
                redis_writer.write(request)

        async def replies() -> None:
            while reply := await redis_reader.read(CHUNK):
                if doomed.is_set():
                    break
                client_writer.write(reply)

        directions = [asyncio.create_task(requests()), asyncio.create_task(replies())]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            client_writer.close()
            redis_writer.close()
