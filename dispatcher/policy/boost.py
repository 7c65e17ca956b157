"""The soft boost: work that is expected to be short gets a bounded head start, and age wins in the end.

Φ = arrival - b, smallest first. b = (1/γ)·ln(1/(1 - e^(-γw))), capped (γ-Boost: G. Yu, Z. Scully, "Strongly
Tail-Optimal Scheduling in the Light-Tailed M/G/1", 2024; for LLMs UniBoost: Y. Li et al., "Beyond Prediction:
Tail-Aware Scheduling for LLM Inference", ICML 2026). A small γ is nearly shortest first, a large one nearly first come,
first served.

No length is predicted: w is learned from what jobs of the same class really took. With M the mean of e^(γS),
b = (1/γ)·ln(M/(M - 1)); kept is w = ln(M)/γ, the certainty equivalent of M, so that both formulas agree and a change
of γ keeps what was learned. The scripts do the same in Lua (lib/boost.lua, lib/class.lua).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

EXPONENT_MOST: Final = 50.0
SAMPLE_EXPONENT_MOST: Final = 5.0
MEMORY: Final = 50  # samples that a class remembers; older ones fade
SHORTEST_MS: Final = 1.0


@dataclass(frozen=True, slots=True)
class ClassStats:
    """What is known of a class of jobs: samples (at most MEMORY count), and the work `w_ms` that they stand for.

    A cold start is a guess of w with an `n` of a few: it weighs as many samples.
    """

    n: int = 0
    w_ms: float = 0.0


def boost_ms(gamma_per_s: float, w_ms: float, most_ms: float) -> float:
    """b = min(B_max, (1/γ)·ln(1/(1 - e^(-γw)))), in [0, `most_ms`] for any input; 0 if γ is 0.

    Shorter work never has a smaller boost. Exponents are at most 50, work is at least 1 ms.
    """
    gamma = gamma_per_s / 1000
    if not gamma > 0 or not most_ms > 0 or math.isnan(w_ms):
        return 0.0
    exponent = min(EXPONENT_MOST, gamma * max(SHORTEST_MS, w_ms))
    short = -math.expm1(-exponent)
    if short <= 0:  # γ is next to nothing
        return most_ms
    return max(0.0, min(most_ms, -math.log(short) / gamma))


def learned(stats: ClassStats, gamma_per_s: float, took_ms: float) -> ClassStats:
    """The class after one more job, which took so long in the backend: M ← M + (e^(γS) - M)/n, n at most MEMORY.

    γS counts as 5 at the most: beyond that the boost is nothing (.7 % of 1/γ), but a single e^(γS) would hold M up for
    thousands of jobs. With γ = 0 it is the plain mean. What is no time (negative, infinite) teaches nothing.
    """
    if not (math.isfinite(took_ms) and took_ms >= 0):
        return stats
    n = min(stats.n + 1, MEMORY)
    gamma = gamma_per_s / 1000
    known, new = (min(SAMPLE_EXPONENT_MOST, gamma * ms) for ms in (stats.w_ms, took_ms))
    if not gamma > 0 or max(known, new) < 1e-9:
        return ClassStats(n, stats.w_ms + (took_ms - stats.w_ms) / n)
    mean_less_1 = math.expm1(known) + (math.expm1(new) - math.expm1(known)) / n
    return ClassStats(n, math.log1p(mean_less_1) / gamma)
