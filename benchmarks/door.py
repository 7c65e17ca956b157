"""The front door as a process of its own, to measure, and requests to it that cost the measuring process little."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from fairlane.queue.supervise import Supervised

REPOSITORY: Final = Path(__file__).parents[1]
READY_S: Final = 30.0


@dataclass(frozen=True)
class Answered:
    """One answer, and when its last byte was read (monotonic, in seconds)."""

    status: int
    body: Any
    at: float


class Line:
    """One kept-alive connection: one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, method: str, path: str, body: object = None, tenant: str = "ann") -> Answered:
        """Sends a request and reads its answer."""
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        packed = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: door\r\nauthorization: Bearer {tenant}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(packed)}\r\n\r\n"
        )
        self._writer.write(head.encode() + packed)
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:"))
        text = await self._reader.readexactly(length)
        return Answered(int(first.split()[1]), json.loads(text), time.monotonic())

    def close(self) -> None:
        if self._writer:
            self._writer.close()


@contextmanager
def command(*arguments: str, **environment: str) -> Iterator[Supervised]:
    """`fairlane …` in a process of its own, while the block runs."""
    with TemporaryFile("w+b", buffering=0) as log:
        settings = [f"{name}={value}" for name, value in environment.items()]
        whole = ["env", *settings, sys.executable, "-m", "fairlane.cli", *arguments]
        process = Supervised(whole, cwd=REPOSITORY, log=log)
        try:
            yield process
        finally:
            process.stop()


@contextmanager
def front_door(redis_url: str) -> Iterator[int]:
    """Its port."""
    port = free_port()
    with command("api", "--auth", "open", "--port", str(port), "--log-level", "error", FAIRLANE_REDIS_URL=redis_url):
        until_listening(port)
        yield port


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until_listening(port: int) -> None:
    """Raises TimeoutError after READY_S."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise TimeoutError(f"nobody listens on port {port}")
