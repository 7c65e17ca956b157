"""Many jobs out, as they finish: with a bounded number of waits, however many jobs there are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Final

from fairlane.errors import FairlaneError, WaitTimeout
from producer.client.handle import AsyncHandle
from producer.client.patience import patiently
from producer.client.session import Session

SCOUT_S: Final = 0.01


async def as_completed(
    session: Session,
    handles: Iterable[AsyncHandle],
    timeout: float | None,  # noqa: ASYNC109
) -> AsyncGenerator[AsyncHandle]:
    """Yields each handle when its job is finished, or cannot be waited for (then `wait` raises why).

    Raises WaitTimeout if not all are after `timeout` seconds.
    """
    ends = None if timeout is None else time.monotonic() + timeout
    given = list(handles)
    finishing = _Finishing(session, given)
    try:
        for n in range(len(given)):
            try:
                async with asyncio.timeout(None if ends is None else max(0.0, ends - time.monotonic())):
                    ended = await finishing.ended.get()
            except TimeoutError as error:
                left = len(given) - n
                raise WaitTimeout(f"{left} of {len(given)} jobs have no outcome after {timeout} s.") from error
            if isinstance(ended, Exception):
                raise ended
            yield ended
    finally:
        await finishing.close()


class _Finishing:
    """Waits for the first jobs of the list, as many as the transport bears, since jobs mostly finish in order.

    If there are more, a scout looks at the others, one after the other, again and again: what finishes out of order is
    found too. The scout rests after each job that is not finished, and so asks at most 1/SCOUT_S times a second then.
    """

    def __init__(self, session: Session, handles: list[AsyncHandle]) -> None:
        self.ended: asyncio.Queue[AsyncHandle | Exception] = asyncio.Queue()
        self._session = session
        for handle in handles:
            if handle.decided:
                self.ended.put_nowait(handle)
        self._alike: dict[str, list[AsyncHandle]] = {}
        for handle in handles:
            if not handle.decided:
                self._alike.setdefault(handle.id, []).append(handle)
        self._unwatched = dict.fromkeys(self._alike)
        waits = min(len(self._unwatched), session.transport.most_waits)
        work = [self._watch] * waits + [self._scout] * (len(self._unwatched) > waits)
        self._tasks = [asyncio.create_task(self._guarded(one)) for one in work]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001  # raised to whoever waits
            self.ended.put_nowait(error)

    async def _watch(self) -> None:
        while self._unwatched:
            job_id = next(iter(self._unwatched))
            del self._unwatched[job_id]
            await self._look(job_id, wait=True)

    async def _scout(self) -> None:
        while self._unwatched:
            for job_id in list(self._unwatched):
                if job_id in self._unwatched and not await self._look(job_id, wait=False):
                    await asyncio.sleep(SCOUT_S)

    async def _look(self, job_id: str, *, wait: bool) -> bool:
        """Whether the job is finished; if so, its handles are told."""
        session = self._session
        try:
            if wait:
                job = await session.finished(job_id, None)
            else:
                job = await patiently(lambda: session.transport.job(job_id), None)
            if not job.finished:
                return False
        except FairlaneError:
            job = None  # the handle's own `wait` will say it
        self._unwatched.pop(job_id, None)
        for handle in self._alike.pop(job_id, ()):  # a watcher may have taken it while the scout looked
            if job:
                handle.saw(job)
            self.ended.put_nowait(handle)
        return True
