"""Runs a simulated backend on a port, with uvicorn."""

from __future__ import annotations

import asyncio
import signal
import socket
import struct
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dispatcher.backends.simulated.app import create_app
from dispatcher.backends.simulated.options import Options

GRACE_S: Final = 1  # as vLLM, which finishes nothing when it is told to stop
LINGER_NOT: Final = struct.pack("ii", 1, 0)  # close() sends a reset at once


async def serve(
    options: Options, host: str = "127.0.0.1", port: int = 0, ready: Callable[[int], None] | None = None
) -> None:
    """Runs until SIGTERM, or until it is cancelled; both stop it cleanly.

    `ready` is told the real port when connections are accepted or, with `start_refused`, when they begin to be
    refused. Raises OSError if the port is taken.
    """
    faults = options.faults
    with _bound(host, port) as listener, _sigterm() as stop:
        real_port: int = listener.getsockname()[1]

        def tell() -> None:
            if ready is not None:
                ready(real_port)

        if faults.start_refused and faults.start_s:
            tell()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), faults.start_s)
                return
            await _run(_Server(replace(options, faults=replace(faults, start_s=0.0))), listener, stop)
        else:
            await _run(_Server(options, tell), listener, stop)


async def _run(server: _Server, listener: socket.socket, stop: asyncio.Event) -> None:
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    """uvicorn's server, which leaves signals to `serve` and says when it listens."""

    def __init__(self, options: Options, started: Callable[[], None] = lambda: None) -> None:
        self._tell_started = started
        super().__init__(
            uvicorn.Config(
                create_app(options),
                http=_ResettableProtocol,
                ws="none",
                log_config=None,
                log_level="error",
                access_log=False,
                timeout_graceful_shutdown=GRACE_S,
            )
        )

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tell_started()


class _ResettableProtocol(HttpToolsProtocol):
    """Lets a handler reset its connection: `request.state.reset()`."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope.setdefault("state", {})["reset"] = self._reset

    def _reset(self) -> None:
        raw = self.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        self.transport.abort()


@contextmanager
def _bound(host: str, port: int) -> Generator[socket.socket, None, None]:
    """A socket that has its port and does not listen yet."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        yield listener


@contextmanager
def _sigterm() -> Generator[asyncio.Event, None, None]:
    """An event that SIGTERM sets; in another thread than the main one signals never come."""
    stop = asyncio.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    try:
        yield stop
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
