"""How many backends a pool needs, from how free those are that work.

Freeness F = (slots - load)/batch (Llumnix: Sun et al., "Llumnix: Dynamic Scheduling for Large Language Model Serving",
OSDI 2024; there in KV blocks, here in jobs): how many times the running batch still fits. `load` is a backend's leases
and its share of the jobs that wait for the pool, so that F falls below 0 when more is asked for than runs; `batch` is
what runs, min(load, slots). With a tier's room, F says how free the backend is to that tier; without rooms, how busy it
is, which is what scaling goes by.

F is -.5 when half as much again waits as runs, and 1.5 when 40 % of the slots are in use.

| mean F, of the backends that work | for | then desired is |
| --- | --- | --- |
| below -.5 | 30 s | as many as the load fills, but at most twice those that work; never fewer than before |
| above 1.5 | 5 min | one fewer than work, if the load fits there; never more than before |
| in between | at once | at least those that work: they are needed |
| in between | 5 min | those that work: what was asked for and did not come is not needed |

The times count anew whenever desired changes. A backend that is down, draining or ejected is no capacity; if none
works, desired stays. There is no flapping: with one of n ≥ 2 equal backends less, what filled 40 % fills 80 % at the
most, which is in between. What is asked for follows from the load, not from the last wish: it does not grow while
backends start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final, Literal

OUT_BELOW: Final = -0.5
IN_ABOVE: Final = 1.5
OUT_AFTER_MS: Final = 30_000
IN_AFTER_MS: Final = 300_000
REPLICAS_MOST: Final = 64  # backends in a pool
IDLE_BATCH: Final = 0.5  # so that an idle backend of one slot is free enough, too: F = 2

Pressure = Literal["out", "in", "none"]


@dataclass(frozen=True, slots=True)
class Use:
    """A backend that works (up, neither draining nor ejected): its capacity K and its live leases."""

    slots: int
    live: int


@dataclass(frozen=True, slots=True)
class Scaling:
    """How many backends are desired; 0 before the first look. Plain values, to be kept as JSON.

    `freeness` is the mean without rooms, None if no backend works. `since_ms` is when the pressure became what it is,
    or desired last changed.
    """

    desired: int = 0
    freeness: float | None = None
    pressure: Pressure = "none"
    since_ms: int = 0


def freeness(slots: float, load: float, room: float = 1.0) -> float:
    """F = (slots·room - load)/batch of one backend. `load` is in jobs; `room` as in headroom.rooms."""
    return (slots * room - load) / max(IDLE_BATCH, min(load, slots))


def mean_freeness(backends: Sequence[Use], waiting: int, room: float = 1.0) -> float | None:
    """The mean F of the backends that work, None if there are none.

    `waiting` are the pool's jobs that could start now; each backend has its share of them, by its slots.
    """
    if not backends:
        return None
    share = waiting / sum(max(1, each.slots) for each in backends)
    return fmean(freeness(max(1, each.slots), each.live + share * max(1, each.slots), room) for each in backends)


def desired_replicas(
    known: Scaling, backends: Sequence[Use], waiting: int, now_ms: int, *, most: int = REPLICAS_MOST
) -> Scaling:
    """The next state, every few seconds; `desired` is within 1 and `most`."""
    free = mean_freeness(backends, waiting)
    if free is None:
        return Scaling(_bounded(known.desired, most), None, "none", now_ms)
    pressure: Pressure = "out" if free < OUT_BELOW else "in" if free > IN_ABOVE else "none"
    lasts = known.freeness is not None and pressure == known.pressure and now_ms >= known.since_ms
    now = Scaling(known.desired or len(backends), free, pressure, known.since_ms if lasts else now_ms)
    desired = _bounded(_wanted(now, backends, waiting, now_ms - now.since_ms), most)
    return now if desired == now.desired else replace(now, desired=desired, since_ms=now_ms)


def _wanted(now: Scaling, backends: Sequence[Use], waiting: int, lasted_ms: int) -> int:
    work, filled = len(backends), _filled(backends, waiting)
    if now.pressure == "out":
        return max(now.desired, min(filled, 2 * work)) if lasted_ms >= OUT_AFTER_MS else now.desired
    if now.pressure == "in":
        return min(now.desired, max(filled, work - 1)) if lasted_ms >= IN_AFTER_MS else now.desired
    return work if lasted_ms >= IN_AFTER_MS else max(now.desired, work)


def _filled(backends: Sequence[Use], waiting: int) -> int:
    """How many such backends the load fills."""
    load = waiting + sum(each.live for each in backends)
    return math.ceil(load / fmean(max(1, each.slots) for each in backends))


def _bounded(wanted: int, most: int) -> int:
    return max(1, min(wanted, most))
