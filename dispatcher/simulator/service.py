"""How evenly tenants are served: the service gap and Jain's index, as VTC defines service (Sheng et al., OSDI 2024).

The service W that a tenant gets in a time is its prompt tokens + 2 × its answer tokens that were processed in it. Two
tenants are compared over the windows of 60 s in which both are backlogged throughout: at every moment each of them has
a request that waits. Theirs is the claim to equal service; who asks for less than its share may well get less.

A run tells when a request's first and last tokens were there. So a prompt counts when its first token is there, and the
answer evenly from then until its end; and a request waits from its arrival until its first token, which takes its own
prefill in. Work that is done again after a preemption is no service.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean
from typing import Final

from dispatcher.simulator.request import Request

WINDOW_MS: Final = 60_000
STEP_MS: Final = 1_000
ANSWER_WEIGHT: Final = 2


@dataclass(frozen=True, slots=True)
class Fairness:
    """Over the windows (one begins each second) in which at least two tenants were backlogged throughout.

    `largest_gap`: in weighted tokens, the most that the best served of them got ahead of the least served in one
    window. `jain`: (Σ W)² ÷ (n · Σ W²) among them, from 1/n to 1 (all alike); its mean. Without such windows 0 and 1.
    """

    largest_gap: float
    jain: float
    windows: int


def fairness(
    requests: Iterable[Request], end_ms: float, *, window_ms: int = WINDOW_MS, step_ms: int = STEP_MS
) -> Fairness:
    """Among the tenants of these requests; `window_ms` is a multiple of `step_ms`. `end_ms`: when the run ended."""
    compared = [served for served in _windows(requests, end_ms, window_ms, step_ms) if len(served) > 1]
    if not compared:
        return Fairness(0.0, 1.0, 0)
    gap = max(max(served) - min(served) for served in compared)
    return Fairness(gap, fmean(map(jain, compared)), len(compared))


def jain(shares: Sequence[float]) -> float:
    """Jain's index of fairness; 1 if nobody gets anything."""
    squares = len(shares) * math.fsum(share * share for share in shares)
    return math.fsum(shares) ** 2 / squares if squares else 1.0


def _windows(requests: Iterable[Request], end_ms: float, window_ms: int, step_ms: int) -> Iterable[list[float]]:
    """For each window what those tenants were served that are backlogged throughout."""
    tenants: dict[str, list[Request]] = {}
    for one in requests:
        tenants.setdefault(one.tenant, []).append(one)
    found: dict[int, list[float]] = {}
    steps = window_ms // step_ms
    for theirs in tenants.values():
        spells = [spell for spell in _backlogged(theirs, end_ms) if spell[1] - spell[0] >= window_ms]
        sums = _served(theirs, end_ms, step_ms) if spells else []
        for from_ms, until_ms in spells:
            for first in range(math.ceil(from_ms / step_ms), math.floor(until_ms / step_ms) - steps + 1):
                found.setdefault(first, []).append(sums[first + steps] - sums[first])
    return found.values()


def _backlogged(requests: Iterable[Request], end_ms: float) -> Iterator[tuple[float, float]]:
    """The spells in which one of the requests waits, in order."""
    spell: tuple[float, float] | None = None
    for one in sorted(requests, key=lambda one: one.arrived_ms):
        until_ms = end_ms if math.isnan(one.first_ms) else one.first_ms
        if spell and one.arrived_ms <= spell[1]:
            spell = spell[0], max(spell[1], until_ms)
        else:
            if spell:
                yield spell
            spell = one.arrived_ms, until_ms
    if spell:
        yield spell


def _served(requests: Iterable[Request], end_ms: float, step_ms: int) -> list[float]:
    """The service up to each step's beginning: 0 at 0, and the last one at the run's end or after it."""
    bins = [0.0] * (math.ceil(end_ms / step_ms) + 1)
    for one in requests:
        if math.isnan(one.first_ms):
            continue
        bins[int(one.first_ms // step_ms)] += one.prompt
        until_ms, made = (one.done_ms, one.answer) if one.is_done else (end_ms, one.made)
        _spread(bins, ANSWER_WEIGHT * made, one.first_ms, until_ms, step_ms)
    return list(accumulate(bins, initial=0.0))


def _spread(bins: list[float], amount: float, from_ms: float, until_ms: float, step_ms: int) -> None:
    """Adds the amount to the steps from one time to the other, evenly."""
    first, last = int(from_ms // step_ms), int(until_ms // step_ms)
    if first == last:
        bins[first] += amount
        return
    per_ms = amount / (until_ms - from_ms)
    bins[first] += per_ms * ((first + 1) * step_ms - from_ms)
    for place in range(first + 1, last):
        bins[place] += per_ms * step_ms
    bins[last] += per_ms * (until_ms - last * step_ms)
