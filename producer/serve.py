"""`fairlane api`: the front door as a process of its own."""

from __future__ import annotations

import asyncio
import gc
import signal
from dataclasses import dataclass
from types import FrameType
from typing import Final

import structlog
import uvicorn
from fastapi import FastAPI

from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.logging import configure
from fairlane.process import check_port, loop_factory, outlive
from fairlane.settings import Settings, load
from producer.api.app import create_app
from producer.api.protocol import Protocol
from producer.api.state import State

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
LOOK_S: Final = 0.05
LAST_S: Final = 3  # for the last answers to go out
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """The command line."""

    host: str = "127.0.0.1"
    port: int = 8080
    log_level: str = "info"
    force: bool = False
    needs_dispatcher: bool = False
    parent: int | None = None


class Server(uvicorn.Server):
    """Ends in order when it is told to. First it goes on listening: readiness says `draining`, long polls answer at
    once, new work is refused, what is under way may end within `drain_s`. Told a second time, it ends at once."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, drain_s: float) -> None:
        super().__init__(config)
        self._app = app
        self._drain_s = drain_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told = asyncio.Event()

    async def run_to_end(self) -> None:
        """Serves until it has drained."""
        self._loop = asyncio.get_running_loop()
        draining = asyncio.create_task(self._drain())
        try:
            await self.serve()
        finally:
            draining.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Instead of uvicorn's, which after all has ended in order would still end the process by the signal."""
        if self._told.is_set() or self._loop is None or not self.started:
            self.should_exit = self.force_exit = True
        else:
            self._loop.call_soon_threadsafe(self._told.set)

    async def _drain(self) -> None:
        await self._told.wait()
        state: State = self._app.state.fairlane
        state.closing.set()
        try:
            async with asyncio.timeout(self._drain_s):
                while self.server_state.tasks:  # noqa: ASYNC110  # uvicorn has no event for it
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            log.warning("cut_off", requests=len(self.server_state.tasks))
        state.cut.set()
        self.should_exit = True


def start(options: ApiOptions, *, redis_url: str | None, namespace: str | None, auth: str | None) -> None:
    """Serves until SIGTERM or SIGINT. Raises InvalidRequest, PortInUse."""
    configure(options.log_level)
    settings = load(redis_url=redis_url, namespace=namespace, auth=auth)
    _check(options, settings)
    check_port(options.host, options.port)
    app = create_app(settings, needs_dispatcher=options.needs_dispatcher)
    server = make_server(app, options.host, options.port, settings.drain_s)

    async def serve() -> None:
        gc.freeze()  # the modules are never garbage: no need to look through them again and again
        watch = asyncio.create_task(outlive(options.parent, lambda: server.handle_exit(signal.SIGTERM, None)))
        try:
            await server.run_to_end()
        finally:
            watch.cancel()

    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serve())
    except SystemExit:  # uvicorn has said why it cannot listen
        pass
    if not server.started:
        raise FairlaneError(f"The front door did not start on {options.host}:{options.port}. The log says why.")


def make_server(app: FastAPI, host: str, port: int, drain_s: float) -> Server:
    """A server for the front door, not started yet."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=Protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=LAST_S,
        backlog=4096,
    )
    return Server(config, app, drain_s)


def _check(options: ApiOptions, settings: Settings) -> None:
    if settings.redis_url is None:
        raise InvalidRequest(
            "Which Redis? Use --redis URL, or set FAIRLANE_REDIS_URL. (`fairlane up` starts its own, and a front door.)"
        )
    if settings.auth == "keys":
        return
    log.warning(
        "no_keys",
        meaning="Anyone who can reach this address may act as any tenant (--auth open).",
        address=f"{options.host}:{options.port}",
    )
    if options.host not in LOOPBACK and not options.force:
        raise InvalidRequest(
            f"Without keys the front door listens on loopback only, not on {options.host}. "
            "If something in front of it knows who may come in, say --force."
        )
