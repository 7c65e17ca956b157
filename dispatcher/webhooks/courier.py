"""Makes deliveries. Nothing is kept here: what is lost with this process is given out again after its lease."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import httpx
import structlog

from dispatcher.webhooks.attempt import attempt
from dispatcher.webhooks.rules import lease_ms
from dispatcher.webhooks.verdict import verdict
from fairlane.errors import FairlaneError, LeaseLost
from fairlane.settings import Settings
from fairlane.webhooks import delivery
from fairlane.webhooks.delivery import Sending
from fairlane.webhooks.outbox import Outbox

AGAIN_S: Final = 0.5
Told = Callable[[Sending, delivery.Disabled], Awaitable[None]]
T = TypeVar("T")
log = structlog.get_logger()


class Courier:
    """One delivery at a time: asks whether it is still ours to make, makes it, and notes what came of it."""

    def __init__(self, outbox: Outbox, client: httpx.AsyncClient, settings: Settings, disabled: Told) -> None:
        """`disabled` is told when an endpoint was disabled by what came of a delivery, and why."""
        self._outbox = outbox
        self._client = client
        self._settings = settings
        self._disabled = disabled
        self._dice = random.Random()

    async def deliver(self, delivery_id: str, token: int, going_on: Callable[[], bool] = lambda: True) -> None:
        """Sends nothing if the delivery is not ours any more, or nothing is `going_on`. Does not raise."""
        try:
            await self._deliver(delivery_id, token, going_on)
        except LeaseLost:
            log.info("webhook_given_out_again", delivery=delivery_id)
        except FairlaneError as error:  # it is given out again when its lease has ended
            log.warning("webhook_left", delivery=delivery_id, error=error.code, message=error.message)
        except Exception:
            log.exception("courier_broke", delivery=delivery_id)

    async def _deliver(self, delivery_id: str, token: int, going_on: Callable[[], bool]) -> None:
        settings, ours_ms = self._settings, lease_ms(self._settings)
        given_up = time.monotonic() + ours_ms / 1000  # it is somebody else's then
        sending = await self._patiently(
            lambda: self._outbox.begin(delivery_id, token, ours_ms),
            lambda: going_on() and time.monotonic() < given_up,
        )
        if sending is None or not going_on():
            return
        until = time.monotonic() + ours_ms / 1000
        answered = await attempt(self._client, sending, settings.webhook_timeout_s)
        outcome = verdict(answered, sending.n, settings.webhook_schedule, self._dice.random())
        log.debug("webhook_tried", delivery=sending.id, n=sending.n, status=answered.status, error=answered.error)

        def in_time() -> bool:
            return time.monotonic() < until

        reason = await self._patiently(lambda: self._outbox.settle(delivery_id, token, outcome), in_time)
        if reason:
            log.warning("webhook_endpoint_disabled", endpoint=sending.endpoint_id, tenant=sending.tenant, reason=reason)
            await self._patiently(lambda: self._disabled(sending, reason), in_time)

    async def _patiently(self, step: Callable[[], Awaitable[T]], going_on: Callable[[], bool]) -> T:
        """Redis may be away for a moment: does the step again as long as it is worth it. Then raises what it raised."""
        while True:
            try:
                return await step()
            except FairlaneError as error:
                if not error.retryable or not going_on():
                    raise
                await asyncio.sleep(AGAIN_S)
