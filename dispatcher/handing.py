"""Hands what is due, of batches and of webhooks, to Celery. There is no beat: every dispatcher looks, and what one has
taken no other finds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from dispatcher.webhooks.rules import lane_rules, lease_ms
from fairlane.batches.work import Due, due
from fairlane.errors import FairlaneError
from fairlane.queue.engine import Queue
from fairlane.settings import Settings
from fairlane.webhooks.outbox import Outbox

if TYPE_CHECKING:
    from celery import Celery  # pyright: ignore[reportMissingTypeStubs]

LOOK_S: Final = 0.2
TROUBLE_S: Final = 0.5
MOST_TAKEN: Final = 200  # deliveries in one look; if there were so many, it looks again at once
log = structlog.get_logger()


class Handing:
    """Looks and hands over. Celery is loaded, and the broker connected to, when there is something to hand over."""

    def __init__(self, queue: Queue, settings: Settings) -> None:
        self._queue = queue
        self._outbox = Outbox(queue.store, lane_rules(settings))
        self._settings = settings
        self._app: Celery | None = None
        self._sending = asyncio.Lock()  # one connection to the broker will do

    async def run(self) -> None:
        """Until it is cancelled. What cannot be handed over now is due again by itself."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._look("batches_not_handed_over", self._batches))
            both.create_task(self._look("webhooks_not_handed_over", self._webhooks))

    async def _look(self, trouble: str, hand_over: Callable[[], Awaitable[float]]) -> None:
        """`hand_over` says in how many seconds to look again."""
        while True:
            pause_s = TROUBLE_S
            try:
                async with self._sending:
                    pause_s = await hand_over()
            except FairlaneError as error:
                log.warning(trouble, error=error.code, message=error.message)
            except Exception as error:  # noqa: BLE001  # kombu's: the broker is away
                log.warning(trouble, error=repr(error))
            await asyncio.sleep(pause_s)

    async def _batches(self) -> float:
        found = await due(self._queue)
        if found.batches or found.pools:
            await asyncio.to_thread(self._send, found)
        return LOOK_S

    async def _webhooks(self) -> float:
        if not await self._outbox.waiting():
            return LOOK_S
        if not await asyncio.to_thread(self._has_room):  # asked first: what is taken now must be sent now
            return TROUBLE_S
        pairs = await self._outbox.take(MOST_TAKEN, lease_ms(self._settings))
        if pairs:
            await asyncio.to_thread(self._send_deliveries, pairs)
        return 0.0 if len(pairs) == MOST_TAKEN else LOOK_S

    def _send(self, found: Due) -> None:
        from dispatcher import tasks

        tasks.send(self._celery(), found)

    def _send_deliveries(self, pairs: Sequence[tuple[str, int]]) -> None:
        from dispatcher import tasks

        tasks.send_deliveries(self._celery(), pairs)

    def _has_room(self) -> bool:
        from dispatcher import tasks

        if (count := tasks.waiting(self._celery(), tasks.DELIVER)) < tasks.MOST_SENDING:
            return True
        log.warning("no_worker_for_webhooks", waiting=count)
        return False

    def _celery(self) -> Celery:
        from dispatcher import celery_app

        if self._app is None:
            self._app = celery_app.create(self._settings)
        return self._app
