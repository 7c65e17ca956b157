"""A dispatcher as a process of its own: signals, the end of its parent, and how several are run side by side."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, start_http_server

from dispatcher.service import Dispatcher
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.process import loop_factory, outlive
from fairlane.queue.engine import Queue
from fairlane.settings import Settings

OPEN_AGAIN_S: Final = 1.0
log = structlog.get_logger()


def run(
    settings: Settings, *, concurrency: int, only: Sequence[str], metrics_port: int | None, parent: int | None
) -> None:
    """Serves until SIGTERM or SIGINT, and drains; a second one hands everything back at once.

    With `parent` it also ends when that process is gone. Raises InvalidRequest, StoreUnsuitable.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(settings, concurrency, only, metrics_port, parent))


async def _serve(
    settings: Settings, concurrency: int, only: Sequence[str], metrics_port: int | None, parent: int | None
) -> None:
    registry = CollectorRegistry()
    queue = await open_queue(settings)
    try:
        dispatcher = Dispatcher(queue, settings, concurrency=concurrency, only=only, registry=registry)
        server = start_http_server(metrics_port, addr="127.0.0.1", registry=registry)[0] if metrics_port else None
        _drain_on_signals(dispatcher)
        watch = asyncio.create_task(outlive(parent, dispatcher.drain))
        try:
            await dispatcher.run()
        finally:
            watch.cancel()
            if server:
                server.shutdown()
    finally:
        await queue.close()


async def open_queue(settings: Settings) -> Queue:
    """Waits for a Redis that is not there yet: a fleet starts in any order."""
    if settings.redis_url is None:
        raise InvalidRequest("Which Redis? Use --redis URL, or set FAIRLANE_REDIS_URL.")
    while True:
        try:
            return await Queue.open(
                settings.redis_url, namespace=settings.namespace, max_body_bytes=settings.max_body_bytes
            )
        except FairlaneError as error:
            if not error.retryable:
                raise
            log.warning("waiting_for_redis", error=error.code, message=error.message)
            await asyncio.sleep(OPEN_AGAIN_S)


def _drain_on_signals(dispatcher: Dispatcher) -> None:
    loop = asyncio.get_running_loop()
    told: list[int] = []

    def drain(signum: int) -> None:
        log.info("draining", signal=signal.Signals(signum).name, hurry=bool(told))
        dispatcher.drain(hurry=bool(told))
        told.append(signum)

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, drain, signum)
