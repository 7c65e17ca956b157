"""From Flask's threads to the queue's event loop: views ask, one loop in a thread of its own answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Final, Self, TypeVar

import anyio.from_thread
from anyio.from_thread import BlockingPortal

from fairlane.accounts import Accounts
from fairlane.accounts.users import Users
from fairlane.audit import Audit
from fairlane.batches import Batches
from fairlane.errors import StoreUnavailable
from fairlane.estimate import Estimates
from fairlane.files import Files
from fairlane.queue.engine import Queue
from fairlane.rebalance import Runs, Stepper
from fairlane.safe_url import Guard
from fairlane.settings import Settings
from fairlane.webhooks.deliveries import Deliveries
from fairlane.webhooks.endpoints import Webhooks

WAITING_MOST: Final = 12  # views that wait for Redis at once; the other threads go on
ROOM_S: Final = 2.0  # that one more waits for its turn
ANSWER_S: Final = 15.0  # whoever looks at a page has given up by then
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stores:
    """What the page reads and writes, all on one Redis."""

    settings: Settings
    queue: Queue
    accounts: Accounts
    users: Users
    audit: Audit
    runs: Runs
    batches: Batches
    webhooks: Webhooks
    deliveries: Deliveries
    estimates: Estimates


class Bridge:
    """Use it as a context: the loop runs while the block does. Redis need not be there yet: each `ask` tries again."""

    def __init__(self, settings: Settings, *, steps: bool = True) -> None:
        """`steps`: rebalancing runs are carried out here."""
        self._settings = settings
        self._steps = steps
        self._exit = ExitStack()
        self._portal: BlockingPortal | None = None
        self._stores: Stores | None = None
        self._ending = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._room = threading.BoundedSemaphore(WAITING_MOST)

    def __enter__(self) -> Self:
        self._portal = self._exit.enter_context(anyio.from_thread.start_blocking_portal())
        self._exit.callback(self._portal.call, self._ending.aclose)
        return self

    def __exit__(self, *exception: object) -> None:
        self._exit.close()

    def ask(self, what: Callable[[Stores], Awaitable[T]]) -> T:
        """What the stores answer. Raises the errors of what is asked, and StoreUnavailable if that takes too long."""
        if self._portal is None:
            raise RuntimeError("The bridge is not open.")

        async def run() -> T:
            return await what(await self._open())

        if not self._room.acquire(timeout=ROOM_S):
            raise StoreUnavailable("Redis answers slowly: too many pages wait for it.", retry_after=2)
        asked = self._portal.start_task_soon(run)
        try:
            return asked.result(ANSWER_S)
        except FutureTimeout:
            asked.cancel()
            raise StoreUnavailable("Redis did not answer in time.", retry_after=2) from None
        finally:
            self._room.release()

    async def _open(self) -> Stores:
        async with self._opening:
            if self._stores is None:
                self._stores = await self._connect()
            return self._stores

    async def _connect(self) -> Stores:
        settings = self._settings
        queue = await Queue.open(settings.redis_url or "", namespace=settings.namespace)
        self._ending.push_async_callback(queue.close)
        files = Files(queue, settings.files_at)
        stores = Stores(
            settings,
            queue,
            Accounts(queue),
            Users(queue),
            Audit(queue),
            Runs(queue),
            Batches(queue, files),
            Webhooks(queue, Guard.of(settings.webhook_allow, settings.webhook_ports)),
            Deliveries(queue),
            Estimates(queue),
        )
        if self._steps:
            stepping = asyncio.create_task(Stepper(queue).run())
            self._ending.push_async_callback(_end, stepping)
        return stores


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
