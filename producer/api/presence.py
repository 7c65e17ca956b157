"""Whether the caller is still there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from fastapi import Request
from starlette.types import Receive

CLOSED: Final = 499  # nobody reads it
T = TypeVar("T")


async def unless_gone(request: Request, act: Coroutine[Any, Any, T]) -> T | None:
    """What `act` returns; None if the caller hung up first, and `act` was cancelled. The request's body was read."""
    acting = asyncio.create_task(act)
    leaving = asyncio.create_task(gone(request.receive))
    try:
        await asyncio.wait([acting, leaving], return_when=asyncio.FIRST_COMPLETED)
        return acting.result() if acting.done() else None
    finally:
        leaving.cancel()
        acting.cancel()


async def gone(receive: Receive) -> None:
    """Returns when the caller has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass
