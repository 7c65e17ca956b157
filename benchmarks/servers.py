"""Servers to measure: each alone in an empty temporary folder, with a chosen persistence, and the CPU time it takes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

from redis import Redis

from fairlane.queue.embedded import EmbeddedServer
from fairlane.queue.launch import find_binary, free_ports, start_server

StoreName = Literal["valkey", "redis"]
Persistence = Literal["none", "everysec", "always"]
PERSISTENCES: Final[tuple[Persistence, ...]] = ("none", "everysec", "always")


@dataclass(frozen=True)
class Measured:
    """A running server."""

    url: str
    pid: int

    def client(self) -> Redis:
        return Redis.from_url(self.url, protocol=2)

    def cpu_us(self) -> float:
        """CPU time of the server's main thread so far, in µs: it runs every command (Linux only)."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1000


@contextmanager
def server(store: StoreName, persistence: Persistence = "none") -> Iterator[Measured]:
    """A server without data. With persistence, Valkey runs exactly as `fairlane up` runs it."""
    with TemporaryDirectory(prefix="fairlane-bench-") as folder:
        if store == "valkey" and persistence != "none":
            with EmbeddedServer(folder, appendfsync=persistence) as embedded:
                yield Measured(embedded.url, embedded.pid)
            return
        keep = (
            ["--appendonly", "no"] if persistence == "none" else ["--appendonly", "yes", "--appendfsync", persistence]
        )
        command = [binary(store), "--bind", "127.0.0.1", "--save", "", *keep]
        running = start_server(
            lambda port: [*command, "--port", str(port)], free_ports(), log=Path(folder) / "server.log"
        )
        try:
            yield Measured(f"redis://127.0.0.1:{running.port}/0", running.process.pid)
        finally:
            running.process.stop()


def version(store: StoreName) -> str:
    """The server's name and version, as it says itself."""
    with server(store) as running, running.client() as client:
        info: Any = client.info("server")
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info['redis_version']}"


def binary(store: StoreName) -> str:
    """The program to run."""
    if store == "valkey":
        return find_binary()
    if found := shutil.which("redis-server"):
        return found
    raise FileNotFoundError("redis-server is not on PATH")
