"""How many jobs a backend runs at once with nothing left waiting, learned from what its metrics show.

A backend does not say how many slots it has, and what it calls `running` lags behind. What is certain: how many leases
we hold (L), and that jobs wait there (W > 0) when we sent too many. So the learner raises K while everything that we
sent is visible and nothing waits, fast at first, and lowers what may be sent at once when something waits. Validated by
simulation (docs/capacity.md): pure metric gates, AIMD, gradient and Vegas controllers did worse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

QUIET_MS: Final = 30_000  # a limit that was neither reached nor confirmed for so long may be tried again
PROBE: Final = 8  # … by so small a part of it


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one scrape of a backend showed, and what our own counters said in the same call.

    `running` and `waiting` are the backend's gauges; `live` our leases on it, `done` the jobs that ended and `denied`
    the pops that were refused since the last good scrape. `progress` is any counter of the backend that moves while it
    works; `started_at` is when it started, 0 if it does not say. `now_ms` is the time of the scrape.
    """

    now_ms: int
    running: int
    waiting: int
    live: int
    done: int
    denied: int
    progress: float | None
    started_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """What is known about one backend. A new one gets one job at a time.

    `k` is the learned capacity, `cap` how many leases it may hold now; `fresh_at_ms` is the last scrape that taught
    anything. The rest is the learner's memory.
    """

    k: int = 1
    cap: int = 1
    ramp: bool = True
    fresh_at_ms: int = 0
    full_runs: int = 0  # z: scrapes in a row that were full with nothing waiting
    top: int = 0  # T: the most that was seen running, forgotten slowly
    running: int = 0  # R and L of the last good scrape
    live: int = 0
    confirmed_at_ms: int = 0
    last_k: int | None = None  # before the backend restarted
    progress: float | None = 0.0
    started_at: float = 0.0


def learn(known: Capacity, scrape: Scrape, theta: int) -> Capacity:
    """The capacity after one good scrape. `theta` is how many jobs of tier 0 may wait in the backend.

    A page whose counters did not move although jobs are there, ours or by its own gauges, is frozen: it teaches nothing
    and is not fresh. (SGLang and TensorRT-LLM keep the gauges of their last step while they are at rest.)
    """
    before, now = known.progress, scrape.progress
    if restarted(known, scrape):
        known = Capacity(last_k=_before(known), started_at=scrape.started_at, confirmed_at_ms=scrape.now_ms)
    elif now is not None and now == before and known.fresh_at_ms and (scrape.live or scrape.running or scrape.waiting):
        return known
    known = _overfull(known, scrape) if scrape.waiting > 0 else _nothing_waits(known, scrape, theta)
    return replace(
        known,
        running=scrape.running,
        live=scrape.live,
        fresh_at_ms=scrape.now_ms,
        progress=scrape.progress,
    )


def restarted(known: Capacity, scrape: Scrape) -> bool:
    """Whether the backend is not the process that `known` was learned from: it says so, or its counters fell."""
    before, now = known.progress, scrape.progress
    fell = before is not None and now is not None and now < before / 2
    return fell or scrape.started_at != known.started_at


def _before(known: Capacity) -> int | None:
    """How far to ramp after a restart: to what it had, or was seen to run.

    K alone is not enough. A page of before a crash that is judged after it, when its leases have gone, makes K = 1; and
    so does a second restart during the ramp after the first. Too much does no harm: a ramp ends when something waits.
    """
    if not known.fresh_at_ms:
        return None
    return max(known.k, known.top, (known.last_k or 0) if known.ramp else 0)


def _rising(known: Capacity, scrape: Scrape) -> bool:
    """Jobs that wait are only on their way into the batch."""
    return scrape.running > known.running + max(1, known.running // 20)


def _overfull(known: Capacity, scrape: Scrape) -> Capacity:
    """No more than does not wait, and no more than K; but no less than is seen running, if all that can be ours.

    L is read some ms after the page, perhaps before a slot that was just freed is leased again: then L - W is one too
    low. As something waits from then on, K would stay there (8 slots: below 90 % in a third of the time, measured).
    """
    fits = scrape.live - scrape.waiting
    if _rising(known, scrape):
        return replace(known, cap=max(1, min(known.k, fits)))
    k = max(1, min(known.k, fits))
    if scrape.running <= fits:
        k = max(k, scrape.running)
    top = max(scrape.running, known.top - math.ceil((known.top - scrape.running) / 4))
    return replace(known, k=k, cap=k, ramp=False, full_runs=0, top=top, confirmed_at_ms=scrape.now_ms)


def _nothing_waits(known: Capacity, scrape: Scrape, theta: int) -> Capacity:
    quick = 2 * scrape.done >= scrape.live
    full = scrape.live >= known.k
    if full:
        known = replace(known, confirmed_at_ms=scrape.now_ms)
    seen = quick or scrape.live - scrape.running <= max(1, scrape.live // 8)  # what we sent is visible
    if seen and full:
        known = _raise_ramping(known, scrape) if known.ramp else _raise_slowly(known, quick=quick)
    elif seen and scrape.denied > 0 and (known.ramp or scrape.now_ms - known.confirmed_at_ms > QUIET_MS):
        known = _probe(known, scrape)
    cap = known.k
    external = scrape.running - min(scrape.live, known.live)  # runs there, and is not ours
    if known.top > 0 and external > max(theta, known.top // 8):
        cap = max(1, min(known.k, known.top - external))
    return replace(known, cap=cap)


def _raise_ramping(known: Capacity, scrape: Scrape) -> Capacity:
    """Up to double, until something waits; after a restart no further than it was."""
    reached = max(known.k, scrape.live)
    k = reached + min(reached, max(8, reached // 2))
    if known.last_k is not None and k >= known.last_k:
        return replace(known, k=known.last_k, ramp=False)
    return replace(known, k=k)


def _probe(known: Capacity, scrape: Scrape) -> Capacity:
    """K was not reached, since rooms and caches hold lower tiers back: what they cannot reach says little about K.

    Raised as fast as a K that was reached it would grow until the lower tiers fill the backend and nothing of their
    rooms is left; a burst of higher tiers then floods it (K 121 of 75, 39 waiting, in a simulation: docs/capacity.md).
    """
    return replace(known, k=known.k + max(1, known.k // PROBE), confirmed_at_ms=scrape.now_ms)


def _raise_slowly(known: Capacity, *, quick: bool) -> Capacity:
    """By one, and by more the longer it stays full with nothing waiting; with long jobs not before the third time."""
    runs = known.full_runs + 1
    sure = runs if quick else runs - 2
    if sure <= 0:
        return replace(known, full_runs=runs)
    step = min(2 ** ((sure - 1) // 2), max(1, known.k // 4))
    return replace(known, k=known.k + step, full_runs=runs)


def soon(known: Capacity, scrape: Scrape) -> bool:
    """Whether the next scrape should come early: the ramp is under way and there is more to send."""
    more = scrape.live >= known.k or scrape.denied > 0 or (scrape.waiting > 0 and _rising(known, scrape))
    return known.ramp and scrape.live > 0 and more
