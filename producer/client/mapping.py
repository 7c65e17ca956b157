"""`client.map`: many requests, the answers in order, few of them under way at once."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from fairlane.errors import FairlaneError, InvalidRequest, WaitTimeout
from fairlane.job import Json
from producer.client.bulk import Item
from producer.client.giving_up import give_up, submit_own
from producer.client.outcome import result_of
from producer.client.session import Session
from producer.client.submission import Submission, submission_of

BUFFER: Final = 100  # requests under way, or answered and not yet taken
Asking: TypeAlias = "Callable[..., Item] | Iterable[Item]"


def requests_of(fn_or_requests: Asking, iterables: tuple[Iterable[Any], ...]) -> Iterator[Item]:
    """The requests themselves, or what the function makes of the items, as the built-in `map` has it.

    Raises InvalidRequest.
    """
    if callable(fn_or_requests):
        if not iterables:
            raise InvalidRequest("Give the function something to make requests of: map(fn, items).", param="iterables")
        return map(fn_or_requests, *iterables)
    if iterables:
        raise InvalidRequest("Items go with a function: map(fn, items), or map(requests).", param="iterables")
    return iter(fn_or_requests)


class Window:
    """Requests under way, in order. What is not taken at its end is cancelled, as by `Executor.map`."""

    def __init__(self, session: Session, buffersize: int, timeout_s: float | None, *, return_exceptions: bool) -> None:
        if buffersize < 1:
            raise InvalidRequest("At least one request is under way at once.", param="buffersize")
        self._session = session
        self._size = buffersize
        self._timeout_s = timeout_s
        self._ends = None if timeout_s is None else time.monotonic() + timeout_s
        self._return_exceptions = return_exceptions
        self._flying: deque[asyncio.Task[Json]] = deque()

    @property
    def full(self) -> bool:
        return len(self._flying) >= self._size

    def __bool__(self) -> bool:
        return bool(self._flying)

    async def add(self, item: Item) -> None:
        """Sends a request on its way."""
        self._flying.append(asyncio.create_task(self._answer(item)))

    async def take(self) -> Json:
        """The answer to the first request, which is then no longer here. Raises what came instead; WaitTimeout."""
        left = None if self._ends is None else max(0.0, self._ends - time.monotonic())
        done, _ = await asyncio.wait([self._flying[0]], timeout=left)
        if not done:
            raise WaitTimeout(f"Not all answers are there after {self._timeout_s:g} s.")
        task = self._flying.popleft()
        error = task.exception()
        if error is None:
            return task.result()
        if self._return_exceptions and isinstance(error, FairlaneError):
            return error
        raise error

    async def close(self) -> None:
        """Cancels what is under way, the jobs too."""
        for task in self._flying:
            task.cancel()
        await asyncio.gather(*self._flying, return_exceptions=True)
        self._flying.clear()

    async def _answer(self, item: Item) -> Json:
        asked = item if isinstance(item, Submission) else submission_of(item)
        job_id = await submit_own(self._session, asked)
        try:
            return result_of(await self._session.finished(job_id, None))
        except asyncio.CancelledError:
            await give_up(self._session, job_id)
            raise
