"""γ, the boost's one setting, from the tail of what jobs experience (UniBoost's γ-Ada; the constants are the design's).

r = t99/t95 of the sojourn times says how heavy the tail is: target = γ_max/(1 + 4·max(r - 1, 0)), γ ← .7γ + .3·target.
The range comes from γ_th = 2(1 - ρ)/(ρ·E[S]·(1 + cv²)), the heavy-traffic rate at which the tail of an M/G/1 decays
(Kingman, 1962), for which γ-Boost is tail-optimal: γ_0 = .3γ_th, γ_max = 3γ_th, γ_min = max(γ_max/30, 4/B_max).

- With long jobs and much load γ_min exceeds 3γ_th. Then γ_min holds, and is γ_max too: a smaller γ gives most jobs the
  same boost, B_max, and so no order; a larger one errs towards first come, first served.
- Of fewer than 200 samples the 99th percentile is one of the two largest: they do not move γ. Before γ was ever steered
  it is γ_0, since even a rough E[S] is better than a constant; later it stays, since a lull is no evidence.
- While the oldest job has waited for more than B_max no step goes down, for that lets more jobs overtake it; then the
  range reaches up to the γ that stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final, Literal

FEWEST: Final = 200
WINDOW: Final = 2_000
RHO_LEAST, RHO_MOST = 0.05, 0.95
SHORTEST_MS, LONGEST_MS = 1.0, 86_400_000.0
ASSUMED_MS: Final = 1_000.0  # of work, exponentially distributed, while nothing is known

Why = Literal["start", "few", "steered", "held"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One job that ended well: from its submit to its end, and the part of that in the backend."""

    sojourn_ms: float
    service_ms: float


@dataclass(frozen=True, slots=True)
class Thermostat:
    """γ and its range, per second, and what it was last set on. A new one has none yet: `Thermostat()`.

    `why`: start (γ_0: not steered so far), few (too few samples: as it was), steered, held (no step down was made).
    `tail` is r, None unless steered or held.
    """

    gamma: float = 0.0
    least: float = 0.0
    most: float = 0.0
    tail: float | None = None
    samples: int = 0
    why: Why = "start"


def next_gamma(
    known: Thermostat, samples: Sequence[Sample], rho: float, oldest_wait_ms: float, boost_max_ms: float
) -> Thermostat:
    """One step, every 5 s. `samples` are those of the window, oldest first: of more than 2,000 the last ones count.

    `rho` is the load, in-flight jobs ÷ capacity; `oldest_wait_ms` how long the oldest queued job has waited. Whatever
    comes in, γ is finite and within `least` and `most`, which are above 0.
    """
    seen = [sample for sample in samples[-WINDOW:] if _is_time(sample.sojourn_ms) and _is_time(sample.service_ms)]
    few = len(seen) < FEWEST
    if few and known.why != "start":
        return replace(known, tail=None, samples=len(seen), why="few")
    theory = gamma_th([sample.service_ms for sample in seen], rho)
    floor = 4_000 / max(1.0, boost_max_ms)
    least = max(3 * theory / 30, floor)
    most = max(3 * theory, least)
    start = min(most, max(least, 0.3 * theory))
    if few:
        return Thermostat(start, least, most, None, len(seen), "start")
    tail = tail_ratio([sample.sojourn_ms for sample in seen])
    before = known.gamma if math.isfinite(known.gamma) and known.gamma > 0 else start
    gamma = min(most, max(least, 0.7 * before + 0.3 * most / (1 + 4 * max(tail - 1, 0))))
    if gamma < before and oldest_wait_ms > boost_max_ms:
        return Thermostat(before, least, max(most, before), tail, len(seen), "held")
    return Thermostat(gamma, least, most, tail, len(seen), "steered")


def gamma_th(service_ms: Sequence[float], rho: float) -> float:
    """γ_th = 2(1 - ρ)/(ρ·E[S]·(1 + cv²)) per second, ρ within [.05, .95]; an unknown ρ counts as busy."""
    busy = RHO_MOST if math.isnan(rho) else min(RHO_MOST, max(RHO_LEAST, rho))
    times = [min(LONGEST_MS, max(SHORTEST_MS, each)) for each in service_ms]
    mean = fmean(times) if times else ASSUMED_MS
    cv2 = fmean((each / mean - 1) ** 2 for each in times) if times else 1.0
    return 2 * (1 - busy) / (busy * mean / 1000 * (1 + cv2))


def tail_ratio(sojourn_ms: Sequence[float]) -> float:
    """r = t99/t95 by nearest rank, of times of 1 ms at least."""
    ordered = sorted(sojourn_ms)
    t95, t99 = (max(SHORTEST_MS, ordered[math.ceil(share * len(ordered)) - 1]) for share in (0.95, 0.99))
    return t99 / t95


def _is_time(ms: float) -> bool:
    return math.isfinite(ms) and ms >= 0
