"""How much comes when: parts of a workload, longer ones, denser ones, and the density for a wanted load."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from dispatcher.simulator.request import Arrival


def rate_per_s(arrivals: Sequence[Arrival]) -> float:
    """Requests per second from the first arrival to the last one. Raises ValueError if they come all at once."""
    span_ms = arrivals[-1].at_ms - arrivals[0].at_ms if arrivals else 0.0
    if span_ms <= 0:
        raise ValueError("a rate needs two requests that come at different times")
    return 1000 * (len(arrivals) - 1) / span_ms


def scaled(arrivals: Sequence[Arrival], factor: float) -> list[Arrival]:
    """`factor` times as dense: with 2 the same requests come in half the time. Bursts shrink or stretch with it."""
    return [replace(one, at_ms=one.at_ms / factor) for one in arrivals]


def at_load(arrivals: Sequence[Arrival], rho: float, capacity_per_s: float) -> list[Arrival]:
    """As dense as it takes to offer `rho` times `capacity_per_s`: what the backends can do of these requests."""
    return scaled(arrivals, rho * capacity_per_s / rate_per_s(arrivals))


def windowed(arrivals: Sequence[Arrival], from_ms: float, length_ms: float) -> list[Arrival]:
    """Those that come in [`from_ms`, `from_ms` + `length_ms`), in times from its start."""
    first, end = (bisect_left(arrivals, ms, key=lambda one: one.at_ms) for ms in (from_ms, from_ms + length_ms))
    return [replace(one, at_ms=one.at_ms - from_ms) for one in arrivals[first:end]]


def repeated(arrivals: Sequence[Arrival], times: int) -> list[Arrival]:
    """The workload `times` times, one after the other; the gap between two is the mean gap within it."""
    period_ms = arrivals[-1].at_ms - arrivals[0].at_ms + 1000 / rate_per_s(arrivals)
    return [replace(one, at_ms=one.at_ms + n * period_ms) for n in range(times) for one in arrivals]
