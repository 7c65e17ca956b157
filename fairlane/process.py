"""What every long-running process of ours does: choose its event loop, and end when its parent is gone."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable
from typing import Final

from fairlane.errors import FairlaneError, InvalidRequest

PARENT_CHECK_S: Final = 0.5


class PortInUse(FairlaneError):
    """Another process uses this port. Stop it, or choose another one."""

    code, status = "port_in_use", 503


def check_port(host: str, port: int, option: str = "--port") -> None:
    """Raises PortInUse, or InvalidRequest for an address that is not ours. Port 0, any free one, is always good."""
    try:
        ((family, _, _, _, address), *_) = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            words = f"Port {port} is in use. Stop what uses it, or choose another with {option}."
            raise PortInUse(words) from error
        raise InvalidRequest(f"{host}:{port} cannot be listened on: {error.strerror}.") from error


async def outlive(parent: int | None, end: Callable[[], object]) -> None:
    """Calls `end` when process `parent` is gone; it cannot tell us if it was killed. None: nobody is watched."""
    while parent is not None:
        if os.getppid() != parent:
            end()
            return
        await asyncio.sleep(PARENT_CHECK_S)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where there is one, else asyncio's own."""
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None
