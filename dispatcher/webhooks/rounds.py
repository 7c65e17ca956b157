"""The courier's rounds: up to 1,000 deliveries at once, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import httpx
import structlog

from dispatcher.run import open_queue
from dispatcher.webhooks.courier import Courier
from dispatcher.webhooks.fanout import Alarm
from dispatcher.webhooks.rules import lane_rules
from dispatcher.webhooks.safe_http import SafeTransport
from fairlane.process import loop_factory
from fairlane.queue.engine import Queue
from fairlane.safe_url import Guard
from fairlane.settings import Settings
from fairlane.webhooks.outbox import Outbox

log = structlog.get_logger()
MOST: Final = 1_000
LOOK_S: Final = 0.1
SETTLE_S: Final = 5.0  # at the end: for what was sent to be noted


class Rounds:
    """A context manager. `hand` is for the owner's thread; `drain` may be called anywhere, in a signal handler too."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._room = threading.Condition()
        self._under_way = 0
        self._serving: tuple[asyncio.AbstractEventLoop, Courier] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = self._hurry = False
        self._thread = threading.Thread(target=self._work, name="courier", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """What is being sent may end, within its time."""
        self.drain()
        self._thread.join()

    def drain(self, *, hurry: bool = False) -> None:
        """Nothing new is sent. In a hurry, what is being sent is given up, and sent again after its lease."""
        self._draining = True
        self._hurry = self._hurry or hurry

    def hand(self, pairs: Sequence[tuple[str, int]]) -> None:
        """Deliveries by id and token. Returns once they are under way, or at once if nothing is sent any more."""
        done = 0
        while done < len(pairs):
            with self._room:
                while not self._draining and (self._serving is None or self._under_way >= MOST):
                    self._room.wait(LOOK_S)
                if self._draining or self._serving is None:
                    return
                loop, courier = self._serving
                some = pairs[done : done + MOST - self._under_way]
                self._under_way += len(some)
            done += len(some)
            loop.call_soon_threadsafe(self._start, courier, some)

    def _start(self, courier: Courier, pairs: Sequence[tuple[str, int]]) -> None:
        for delivery_id, token in pairs:
            task = asyncio.create_task(courier.deliver(delivery_id, token, self._goes_on))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        with self._room:
            self._under_way -= 1
            self._room.notify()

    def _goes_on(self) -> bool:
        return not self._draining

    def _work(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._serve())
        except Exception:
            log.exception("courier_broke")
            os.kill(os.getpid(), signal.SIGTERM)  # it sends nothing: whoever started it does so again

    async def _serve(self) -> None:
        opening = asyncio.create_task(open_queue(self._settings))
        while not opening.done() and self._goes_on():
            await asyncio.wait([opening], timeout=LOOK_S)
        if not opening.done():
            opening.cancel()
            return
        queue = await opening
        try:
            async with _client(self._settings) as client:
                self._serving = asyncio.get_running_loop(), _courier(queue, client, self._settings)
                while self._goes_on():  # noqa: ASYNC110  # `drain` may come in a signal handler: it sets no event
                    await asyncio.sleep(LOOK_S)
                await self._finish()
        finally:
            await queue.close()

    async def _finish(self) -> None:
        """What is being sent ends in time by itself; what cannot be noted then is given up."""
        until = time.monotonic() + self._settings.webhook_timeout_s + SETTLE_S
        while self._tasks and not self._hurry and time.monotonic() < until:
            await asyncio.wait(self._tasks, timeout=LOOK_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _client(settings: Settings) -> httpx.AsyncClient:
    guard = Guard.of(settings.webhook_allow, settings.webhook_ports)
    transport = SafeTransport(guard, proxy=settings.webhook_proxy, tls=None)
    return httpx.AsyncClient(transport=transport, trust_env=False, timeout=settings.webhook_timeout_s)


def _courier(queue: Queue, client: httpx.AsyncClient, settings: Settings) -> Courier:
    return Courier(Outbox(queue.store, lane_rules(settings)), client, settings, Alarm(queue, settings))
