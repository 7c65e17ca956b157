"""One worker at a time: it holds a role in Redis for a moment, and holds it on while it works.

Who lost it goes on without harm: what it writes is refused, or is written once whoever does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

from fairlane.errors import FairlaneError
from fairlane.queue import replies
from fairlane.queue.store import Store

HOLD_S: Final = 10.0
HOLD_ON_S: Final = 2.0


@asynccontextmanager
async def held(store: Store, prefix: str, role: str, who: str) -> AsyncGenerator[bool]:
    """Whether we hold `role` under a prefix of keys, until the block ends; False if another does."""
    args = (role, who, str(round(1000 * HOLD_S)))
    if replies.number(await store.run("elect", prefix, *args)) != 1:
        yield False
        return

    async def hold_on() -> None:
        while True:
            await asyncio.sleep(HOLD_ON_S)
            with suppress(FairlaneError):
                await store.run("elect", prefix, *args)

    holding = asyncio.create_task(hold_on())
    try:
        yield True
    finally:
        holding.cancel()
        await asyncio.wait([holding])
        with suppress(FairlaneError):
            await store.run("resign", prefix, role, who)
