"""The figures of one queue, taken once, on a server that is empty each time."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Final

from benchmarks.peers.calling import poll
from benchmarks.peers.peer import RESULTS_VAR, URL_VAR, Caller, Peer
from benchmarks.peers.processes import Processes, processes
from benchmarks.servers import Measured

TENANTS: Final = tuple(f"t{n}" for n in range(10))
CALLERS: Final = 32
WARM_UP: Final = 100
DRAIN_S: Final = 180.0


@dataclass(frozen=True)
class Size:
    """How much each figure takes: seconds of single submits, and numbers of jobs."""

    submit_s: float = 0.8
    batch: int = 10_000
    heavy: int = 10_000
    round_trips: int = 300


@dataclass(frozen=True)
class Figures:
    """What one queue does: jobs per second, milliseconds. None: it cannot do that."""

    drain_bare: float
    drain: float
    submit_one: float
    submit_many: float
    submit_batch: float | None
    latency_p50: float
    latency_p99: float
    light_wait: float


def measure(peer: Peer, server: Measured, workers: int, size: Size) -> Figures:
    """One round of one queue with so many worker processes."""
    batch = _batches(peer, server, size.batch) if peer.batches else None
    one, many, bare = _without_results(peer, server, workers, size)
    times, light_s, drain = _with_results(peer, server, workers, size)
    cuts = quantiles(times, n=100)
    return Figures(bare, drain, one, many, batch, 1000 * cuts[49], 1000 * cuts[98], 1000 * light_s)


def _batches(peer: Peer, server: Measured, jobs: int) -> float:
    """Jobs per second."""
    _empty(server)
    with peer.connect(server.url, False) as caller:
        caller.submit_batch(_turns(WARM_UP))
        return jobs / _timed(lambda: caller.submit_batch(_turns(jobs)))


def _without_results(peer: Peer, server: Measured, workers: int, size: Size) -> tuple[float, float, float]:
    """Jobs per second: submitted by one caller, by many, and drained. What is submitted is what is drained."""
    with _running(peer, server, workers, results=False) as (caller, running):
        caller.hold(running)
        by_one, by_many = _For(size.submit_s), _For(size.submit_s)
        one_s = _timed(lambda: caller.submit(by_one, 1))
        many_s = _timed(lambda: caller.submit(by_many, CALLERS))
        began = time.perf_counter()
        caller.release(running)
        _drained(caller)
        drain_s = time.perf_counter() - began
        return by_one.taken / one_s, by_many.taken / many_s, (by_one.taken + by_many.taken) / drain_s


def _with_results(peer: Peer, server: Measured, workers: int, size: Size) -> tuple[list[float], float, float]:
    """Seconds of single round trips and of the light tenant's wait; jobs per second drained, results kept."""
    with _running(peer, server, workers, results=True) as (caller, running):
        times = caller.round_trips(size.round_trips)
        caller.hold(running)
        heavy = ["heavy"] * size.heavy
        if peer.batches:
            caller.submit_batch(heavy)
        else:
            caller.submit(heavy, CALLERS)
        light = caller.submit_one("light")
        began = time.perf_counter()
        caller.release(running)
        caller.result(light)
        light_s = time.perf_counter() - began
        _drained(caller)
        return times, light_s, (size.heavy + 1) / (time.perf_counter() - began)


@contextmanager
def _running(peer: Peer, server: Measured, workers: int, *, results: bool) -> Iterator[tuple[Caller, Processes]]:
    """A caller, and workers that have done some jobs and wait for more."""
    _empty(server)
    env = {
        URL_VAR: server.url, RESULTS_VAR: str(int(results)), "FAIRLANE_REDIS_URL": server.url,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(Path.cwd()),
    }  # fmt: skip
    with (
        peer.connect(server.url, results) as caller,
        processes(peer.command(workers), env, least=workers) as running,
    ):
        caller.submit(_turns(WARM_UP), 1)
        _drained(caller)
        running.settle(workers)
        yield caller, running


class _For(Iterator[str]):
    """Tenants in turn, for so many seconds from the first one on. `taken` says how many there were."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: float | None = None
        self.taken = 0

    def __next__(self) -> str:
        now = time.perf_counter()
        if self._ends is None:
            self._ends = now + self._seconds
        if now >= self._ends:
            raise StopIteration
        self.taken += 1
        return TENANTS[self.taken % len(TENANTS)]


def _drained(caller: Caller) -> None:
    poll(DRAIN_S, lambda: caller.left() == 0)


def _empty(server: Measured) -> None:
    with server.client() as client:
        client.flushall()


def _turns(jobs: int) -> Sequence[str]:
    return [TENANTS[n % len(TENANTS)] for n in range(jobs)]


def _timed(act: Callable[[], object]) -> float:
    """Seconds."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began
