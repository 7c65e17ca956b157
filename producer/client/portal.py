"""An event loop in a background thread, for code that has none: started by the first call, one for each process."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import closing, suppress
from typing import Final, Protocol, TypeVar
from weakref import finalize

import anyio
from anyio.from_thread import BlockingPortal

NAME: Final = "fairlane-client"
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_END: Final = object()


class Closable(Protocol[T_co]):
    """An async iterator that may be left before its end."""

    def __aiter__(self) -> AsyncIterator[T_co]: ...

    def __anext__(self) -> Awaitable[T_co]: ...

    def aclose(self) -> Awaitable[object]: ...


class Portal:
    """Calls async code from any thread. `end` runs in the loop before it stops.

    It stops by `close`, when nothing refers to it any more, or at the end of the program. After a fork the child starts
    a loop of its own.
    """

    def __init__(self, end: Callable[[], Awaitable[None]]) -> None:
        self._end = end
        self._lock = threading.Lock()
        self._loop: _Loop | None = None
        self._stop: finalize[[Callable[[], Awaitable[None]]], Portal] | None = None
        self._closed = False

    def call(self, act: Callable[[], Awaitable[T]]) -> T:
        """What `act` returns or raises. If the caller is interrupted (Ctrl-C), `act` is cancelled."""
        future = self._running().spawn(act)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError("This client was closed meanwhile.") from None
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: Closable[T]) -> Generator[T]:
        """The items of an async generator, one call for each."""

        async def step() -> T | object:
            return await anext(items, _END)

        try:
            while (item := self.call(step)) is not _END:
                yield item  # pyright: ignore[reportReturnType]  # it is no END
        finally:
            with suppress(RuntimeError):  # the portal was closed meanwhile
                self.call(items.aclose)

    def flat(self, parts: Closable[Sequence[T]]) -> Iterator[T]:
        """All that is in the parts: a call for each part, since a call takes a tenth of a millisecond and more."""
        with closing(self.iterate(parts)) as lists:
            for part in lists:
                yield from part

    def close(self) -> None:
        """Ends the loop and its thread. Calls that are under way are cancelled."""
        with self._lock:
            self._closed = True
            if self._stop:
                self._stop()

    def _running(self) -> _Loop:
        with self._lock:
            if self._closed:
                raise RuntimeError("This client is closed.")
            if self._loop is None or self._loop.pid != os.getpid():
                if self._stop:
                    self._stop.detach()  # the thread is the parent's
                self._loop = _Loop()
                self._stop = finalize(self, self._loop.stop_from_anywhere, self._end)
            return self._loop


class _Loop:
    """A thread with a portal. (anyio's own context manager would, in a forked child, wait for the parent's thread.)"""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._started: Future[BlockingPortal] = Future()
        self._thread = threading.Thread(target=anyio.run, args=(self._serve,), name=NAME, daemon=True)
        self._thread.start()
        self._portal = self._started.result()

    def spawn(self, act: Callable[[], Awaitable[T]]) -> Future[T]:
        return self._portal.start_task_soon(act)

    def stop(self, end: Callable[[], Awaitable[None]]) -> None:
        try:
            self._portal.call(end)
        finally:
            self._portal.call(self._portal.stop, True)
            self._thread.join()

    def stop_from_anywhere(self, end: Callable[[], Awaitable[None]]) -> None:
        """Garbage is collected in whatever thread, and this one cannot join itself."""
        if self.pid != os.getpid():
            return
        if threading.current_thread() is self._thread:
            threading.Thread(target=self.stop, args=(end,), daemon=True).start()
        else:
            self.stop(end)

    async def _serve(self) -> None:
        async with BlockingPortal() as portal:
            self._started.set_result(portal)
            await portal.sleep_until_stopped()
