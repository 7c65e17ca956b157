"""`fairlane dispatcher`: one process, or several side by side."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass

from dispatcher.processes import run_copies
from dispatcher.run import open_queue, run
from fairlane.logging import configure
from fairlane.options import parse_backend, register
from fairlane.process import check_port
from fairlane.settings import Settings, load


@dataclass(frozen=True, slots=True)
class DispatcherOptions:
    """The command line. `backends` are written as options.parse_backend reads them."""

    backends: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    concurrency: int = 256
    processes: int = 1
    metrics_port: int | None = None
    log_level: str = "info"
    parent: int | None = None


def start(options: DispatcherOptions, *, redis_url: str | None, namespace: str | None) -> None:
    """Runs until it is told to end. Raises InvalidRequest, PortInUse, StoreUnsuitable, StoreUnavailable."""
    configure(options.log_level)
    settings = load(redis_url=redis_url, namespace=namespace)
    for n in range(options.processes if options.metrics_port else 0):
        check_port("127.0.0.1", (options.metrics_port or 0) + n, "--metrics-port")
    if options.backends:
        asyncio.run(_register(settings, options.backends))
    if options.processes > 1:
        run_copies([_copy(options, settings, n) for n in range(options.processes)])
        return
    run(
        settings,
        concurrency=options.concurrency,
        only=options.pools,
        metrics_port=options.metrics_port,
        parent=options.parent,
    )


async def _register(settings: Settings, backends: tuple[str, ...]) -> None:
    parsed = [parse_backend(text) for text in backends]
    queue = await open_queue(settings)
    try:
        await register(queue, parsed, settings.policy)
    finally:
        await queue.close()


def _copy(options: DispatcherOptions, settings: Settings, n: int) -> list[str]:
    """The command of one of several processes. The Redis URL, which may hold a password, goes by the environment."""
    os.environ["FAIRLANE_REDIS_URL"] = settings.redis_url or ""
    command = [sys.executable, "-m", "fairlane.cli", "dispatcher", "--namespace", settings.namespace]
    command += ["--concurrency", str(options.concurrency), "--log-level", options.log_level]
    command += [part for pool in options.pools for part in ("--pool", pool)]
    if options.metrics_port:
        command += ["--metrics-port", str(options.metrics_port + n)]
    return [*command, "--parent", str(os.getpid())]
