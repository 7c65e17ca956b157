"""UniBoost in the engine, as published: a boost by work that is known, γ-Ada, and the memory guard.

Y. Li et al., "Beyond Prediction: Tail-Aware Scheduling for LLM Inference", ICML 2026 (arXiv 2606.18431).
Φ = a - b_γ(w), smallest first: a is the arrival, b_γ(w) = (1/γ)·ln(1/(1 - e^(-γw))), and the work w is 64 µs × uncached
prompt tokens.

- Memory guard: only when a request has made 256, 512, 1024, … tokens, what it made counts as work too,
  Φ = a - b_γ(w + attained), and only in the step that follows may another take its place. In between it keeps both.
  When the cache overflows somebody must go at any step: the one with the largest Φ.
- γ-Ada: every 5 s, if there are 200 samples or more among the last 2,000,
  γ ← .7γ + .3·γ_max/(1 + 4·max(t99/t95 - 1, 0)). Our reading: t are response times, from the arrival to the end of the
  answer, and a step is taken with the first answer that ends when one is due. γ_0 = 10/s holds until the first step.

A request's boost is computed with the γ that was in force when it arrived, for as long as it lives. (With the γ of the
moment all that wait would have to be sorted anew at each step of γ.)
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from typing import Final

from dispatcher.backends.sequences import Order, Sequence
from dispatcher.policy.boost import boost_ms
from dispatcher.policy.thermostat import FEWEST, WINDOW, tail_ratio
from dispatcher.simulator.orders.shortest import ANSWER_TOKEN_MS, prompt_ms

GAMMA_START: Final = 10.0  # γ per s
GAMMA_LEAST: Final = 1.0
GAMMA_MOST: Final = 200.0
EVERY_MS: Final = 5_000.0
FIRST_THRESHOLD: Final = 256  # tokens; each next one is twice as far


class UniBoost(Order):
    """Without `adapts` γ stays at `gamma` (per second). Without `guarded` all that was made counts, and anybody may go
    at any step."""

    takes_place = True

    def __init__(self, *, adapts: bool = True, guarded: bool = True, gamma: float = GAMMA_START) -> None:
        self._adapts = adapts
        self._guarded = guarded
        self._since_ms, self._gammas = [0.0], [gamma]  # each γ, and since when it has been in force
        self._due_ms = EVERY_MS
        self._taken_ms: deque[float] = deque(maxlen=WINDOW)

    def key(self, sequence: Sequence) -> float:
        attained = _threshold(sequence.made) if self._guarded else sequence.made
        work_ms = prompt_ms(sequence) + ANSWER_TOKEN_MS * attained
        return sequence.arrived_ms - boost_ms(self._gamma(sequence.arrived_ms), work_ms, math.inf)

    def exposed(self, sequence: Sequence) -> bool:
        """At a threshold. One that was evicted there and is back has made nothing since, and is not there any more."""
        if not self._guarded:
            return True
        return FIRST_THRESHOLD <= sequence.made == _threshold(sequence.made) and sequence.made > sequence.again

    def to_threshold(self, sequence: Sequence) -> int | None:
        if not self._guarded:
            return 1
        return max(FIRST_THRESHOLD, 2 * _threshold(sequence.made)) - sequence.made

    def ended(self, sequence: Sequence, now_ms: float) -> None:
        self._taken_ms.append(now_ms - sequence.arrived_ms)
        if self._adapts and now_ms >= self._due_ms and len(self._taken_ms) >= FEWEST:
            self._due_ms = EVERY_MS * (now_ms // EVERY_MS + 1)
            self._since_ms.append(now_ms)
            self._gammas.append(next_gamma(self._gammas[-1], tail_ratio(self._taken_ms)))

    @property
    def gamma(self) -> float:
        """Per second, as it is now."""
        return self._gammas[-1]

    def _gamma(self, at_ms: float) -> float:
        return self._gammas[max(0, bisect_right(self._since_ms, at_ms) - 1)]


def next_gamma(gamma: float, tail: float) -> float:
    """γ-Ada: .3 of the way to γ_max/(1 + 4·max(r - 1, 0)), r = t99/t95; per second, within 1 and 200."""
    target = GAMMA_MOST / (1 + 4 * max(tail - 1, 0))
    return min(GAMMA_MOST, max(GAMMA_LEAST, 0.7 * gamma + 0.3 * target))


def _threshold(made: int) -> int:
    """The last one that was reached; 0: none."""
    return FIRST_THRESHOLD << ((made // FIRST_THRESHOLD).bit_length() - 1) if made >= FIRST_THRESHOLD else 0
