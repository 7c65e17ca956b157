"""`fairlane admin`: the page as a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from dataclasses import dataclass
from typing import Any, Final

import structlog
from flask import Flask
from waitress.server import create_server

from admin_ui.app import BODY_MOST, create_app
from admin_ui.bridge import Bridge
from fairlane.errors import InvalidRequest
from fairlane.logging import configure
from fairlane.process import check_port, outlive
from fairlane.settings import load

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
THREADS: Final = 16  # a view waits for Redis, not for the processor
CONNECTIONS: Final = 1000
HEADERS_MOST: Final = 32 << 10
SILENT_S: Final = 30  # a connection that says nothing for so long is closed
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AdminOptions:
    """The command line. `behind_proxy`: how many proxies before it set X-Forwarded-*. `prefix`: `/path` or nothing."""

    host: str = "127.0.0.1"
    port: int = 8081
    behind_proxy: int = 0
    prefix: str = ""
    log_level: str = "info"
    force: bool = False
    parent: int | None = None


def start(options: AdminOptions, *, redis_url: str | None, namespace: str | None) -> None:
    """Serves until SIGTERM or SIGINT; what is under way may end, for 5 s. Raises InvalidRequest, PortInUse."""
    configure(options.log_level)
    settings = load(redis_url=redis_url, namespace=namespace)
    if settings.redis_url is None:
        raise InvalidRequest(
            "Which Redis? Use --redis URL, or set FAIRLANE_REDIS_URL. (`fairlane up` starts its own, and a page.)"
        )
    _check(options)
    check_port(options.host, options.port)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, _end)
    with Bridge(settings) as bridge:
        server = listening(create_app(bridge, behind_proxy=options.behind_proxy), options)
        _end_with(options.parent)
        log.info("admin_ready", address=f"{options.host}:{options.port}{options.prefix}")
        server.run()  # ends at SystemExit, when its threads have ended
        server.close()


def listening(app: Flask, options: AdminOptions) -> Any:
    """waitress's server for the page; it serves once `run` is called, and waits for nothing that is too large."""
    return create_server(
        app,
        host=options.host,
        port=options.port,
        url_prefix=options.prefix,
        threads=THREADS,
        connection_limit=CONNECTIONS,
        max_request_header_size=HEADERS_MOST,
        max_request_body_size=BODY_MOST,  # else what anybody sends is put on the disk before it is looked at
        channel_timeout=SILENT_S,
        asyncore_use_poll=True,
        clear_untrusted_proxy_headers=not options.behind_proxy,  # else the application reads them
        ident="",
    )


def _check(options: AdminOptions) -> None:
    if options.prefix and (not options.prefix.startswith("/") or options.prefix.endswith("/")):
        raise InvalidRequest(f"A prefix is a path such as /fairlane, not {options.prefix!r}.", param="prefix")
    if options.host not in LOOPBACK and not options.force:
        raise InvalidRequest(
            f"The page speaks plain HTTP, and people type passwords into it: it listens on loopback only, not on "
            f"{options.host}. If a proxy with TLS is before it, say --force (and --behind-proxy 1).",
            param="host",
        )


def _end(signum: int, frame: object) -> None:
    raise SystemExit(0)


def _end_with(parent: int | None) -> None:
    """Ends this process when its parent has ended."""
    if parent is not None:
        watch = outlive(parent, lambda: os.kill(os.getpid(), signal.SIGTERM))
        threading.Thread(target=asyncio.run, args=(watch,), daemon=True).start()
