"""Hands what is due of the batches to Celery: part of the sweeper's office. There is no beat."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from fairlane.batches.work import Due, due
from fairlane.errors import FairlaneError
from fairlane.queue.engine import Queue
from fairlane.settings import Settings

if TYPE_CHECKING:
    from celery import Celery  # pyright: ignore[reportMissingTypeStubs]

LOOK_S: Final = 0.2
TROUBLE_S: Final = 1.0
log = structlog.get_logger()


class Handing:
    """Looks and hands over. Celery is loaded, and the broker connected to, when there is something to hand over."""

    def __init__(self, queue: Queue, settings: Settings) -> None:
        self._queue = queue
        self._settings = settings
        self._app: Celery | None = None
        self._sending = asyncio.Lock()  # all pools of this process share one

    async def run(self) -> None:
        """Until it is cancelled. What cannot be handed over now is due again by itself."""
        while True:
            pause_s = TROUBLE_S
            try:
                async with self._sending:
                    found = await due(self._queue)
                    if found.batches or found.pools:
                        await asyncio.to_thread(self._send, found)
                pause_s = LOOK_S
            except FairlaneError as error:
                log.warning("batches_not_handed_over", error=error.code, message=error.message)
            except Exception as error:  # noqa: BLE001  # kombu's: the broker is away
                log.warning("batches_not_handed_over", error=repr(error))
            await asyncio.sleep(pause_s)

    def _send(self, found: Due) -> None:
        from dispatcher import celery_app, tasks

        if self._app is None:
            self._app = celery_app.create(self._settings)
        tasks.send(self._app, found)
