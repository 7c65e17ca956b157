"""What the parts of a client share: the transport of each event loop, patience with what passes, and waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from fairlane.errors import FairlaneError, WaitTimeout
from fairlane.job import Job
from producer.client.patience import patiently
from producer.client.transport import Transport

POLL_S: Final = 60.0
LEAST_POLL_S: Final = 0.05
LATE_S: Final = 0.25  # an answer may be so much later than it was asked for
T = TypeVar("T")


class Session:
    """`make` connects on first use. Connections belong to an event loop, so each loop gets a transport of its own."""

    def __init__(self, make: Callable[[], Transport], retry_for_s: float) -> None:
        self.retry_for_s = retry_for_s
        self._make = make
        self._spare: Transport | None = make()  # says at once what is wrong with a URL
        self._transports: WeakKeyDictionary[asyncio.AbstractEventLoop, Transport] = WeakKeyDictionary()
        self._closed = False

    @property
    def transport(self) -> Transport:
        """That of the running event loop. Raises RuntimeError after `close`."""
        if self._closed:
            raise RuntimeError("This client is closed.")
        loop = asyncio.get_running_loop()
        if loop not in self._transports:
            self._transports[loop] = self._spare or self._make()
            self._spare = None
        return self._transports[loop]

    async def ask(self, act: Callable[[Transport], Awaitable[T]]) -> T:
        """The answer of the transport, which is tried again for `retry_for_s`."""
        return await patiently(lambda: act(self.transport), self.retry_for_s)

    async def finished(self, job_id: str, timeout_s: float | None) -> Job:
        """The job when it has its outcome. What passes is waited out, however long it takes.

        Raises WaitTimeout; and what does not pass, such as NotFound.
        """
        trouble: list[FairlaneError] = []
        ends = None if timeout_s is None else time.monotonic() + max(0.0, timeout_s)

        async def poll() -> Job:
            left = POLL_S if ends is None else ends - time.monotonic()
            wait_s = 0.0 if timeout_s is not None and timeout_s <= 0 else max(LEAST_POLL_S, min(POLL_S, left))
            try:
                job = await self.transport.job(job_id, wait_s)
            except FairlaneError as error:
                trouble[:] = [error]
                raise
            trouble.clear()
            return job

        try:
            async with asyncio.timeout(None if ends is None else max(0.0, timeout_s or 0.0) + LATE_S):
                while True:
                    job = await patiently(poll, None)
                    if job.finished:
                        return job
                    if ends is not None and time.monotonic() >= ends:
                        break
        except TimeoutError:
            pass
        raise _too_late(job_id, timeout_s, *trouble)

    async def close(self) -> None:
        """Ends the connections of this event loop. Those of others end with their loops."""
        transport = self._transports.pop(asyncio.get_running_loop(), None) or self._spare
        self._closed, self._spare = True, None
        if transport:
            await transport.close()


def _too_late(job_id: str, timeout_s: float | None, trouble: FairlaneError | None = None) -> WaitTimeout:
    why = f" The last try failed: {trouble}" if trouble else ""
    error = WaitTimeout(f"{job_id} has no outcome after {timeout_s:g} s. Wait again, or cancel it.{why}")
    error.__cause__ = trouble
    return error
