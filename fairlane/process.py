"""What every long-running process of ours does: choose its event loop, and end when its parent is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Final

PARENT_CHECK_S: Final = 0.5


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
