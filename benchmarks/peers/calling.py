"""What callers have in common: those of libraries that block, with threads, and those of asyncio, with tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, Final, TypeVar

import uvloop
from redis import Redis

from benchmarks.peers.peer import ANSWER, Workers

SOCKET_S: Final = 300  # redis-py's default, 5 s, breaks the libraries' own blocking reads
T = TypeVar("T")


def patient(url: str) -> str:
    """The URL, for connections that block for as long as they are asked to."""
    return f"{url}?socket_timeout={SOCKET_S}"


class Calling:
    """Workers are held by freezing their processes."""

    def submit_batch(self, tenants: Sequence[str]) -> None:
        raise NotImplementedError

    def hold(self, workers: Workers) -> None:
        workers.stop()

    def release(self, workers: Workers) -> None:
        workers.go_on()


class Blocking(Calling):
    """A library without asyncio: a caller is a thread. `redis` reads what the library has no call for."""

    def __init__(self, url: str) -> None:
        self.redis: Any = Redis.from_url(patient(url))

    def submit_one(self, tenant: str) -> Any:
        raise NotImplementedError

    def result(self, handle: Any) -> None:
        raise NotImplementedError

    def submit(self, tenants: Iterable[str], callers: int) -> None:
        if callers == 1:
            for tenant in tenants:
                self.submit_one(tenant)
            return
        todo = _Shared(iter(tenants))
        with ThreadPoolExecutor(callers) as pool:
            for done in [pool.submit(self._submit_all, todo) for _ in range(callers)]:
                done.result()

    def round_trips(self, times: int) -> list[float]:
        taken: list[float] = []
        for _ in range(times):
            began = time.perf_counter()
            self.result(self.submit_one("ann"))
            taken.append(time.perf_counter() - began)
        return taken

    def _submit_all(self, todo: Iterator[str]) -> None:
        for tenant in todo:
            self.submit_one(tenant)


class _Shared(Iterator[str]):
    """An iterator for many threads."""

    def __init__(self, items: Iterator[str]) -> None:
        self._items = items
        self._lock = Lock()

    def __next__(self) -> str:
        with self._lock:
            return next(self._items)


class Loop(Calling):
    """A library of asyncio: a caller is a task of one event loop."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    async def kick(self, tenant: str) -> Any:
        """Submits one job."""
        raise NotImplementedError

    async def trip(self) -> None:
        """Submits one job, and waits for its result."""
        raise NotImplementedError

    def round_trips(self, times: int) -> list[float]:
        async def one_by_one() -> list[float]:
            taken: list[float] = []
            for _ in range(times):
                began = time.perf_counter()
                await self.trip()
                taken.append(time.perf_counter() - began)
            return taken

        return self.run(one_by_one)

    def run(self, act: Callable[[], Awaitable[T]]) -> T:
        async def whole() -> T:
            return await act()

        return self._runner.run(whole())

    def close(self) -> None:
        self._runner.close()

    def submit_one(self, tenant: str) -> Any:
        return self.run(lambda: self.kick(tenant))

    def submit(self, tenants: Iterable[str], callers: int) -> None:
        todo = iter(tenants)

        async def one() -> None:
            for tenant in todo:
                await self.kick(tenant)

        async def all_of_them() -> None:
            await asyncio.gather(*(one() for _ in range(callers)))

        self.run(all_of_them)


def check(found: object) -> None:
    """Raises AssertionError unless it is the job's result."""
    assert found == ANSWER, found


def poll(seconds: float, done: Callable[[], bool], every_s: float = 0.01) -> None:
    """Returns as soon as `done` says so. Raises TimeoutError."""
    ends = time.monotonic() + seconds
    while not done():
        if time.monotonic() > ends:
            raise TimeoutError(f"not done after {seconds:g} s")
        time.sleep(every_s)
