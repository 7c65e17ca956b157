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
LEAD_MOST_MS: Final = 120_000.0  # for the sake of γ
SERVICES: Final = 10  # the longest answers take so many times as long as the mean
LONG_LEAD_MOST_MS: Final = 900_000.0  # for the sake of long answers
PRIORITY_UNIT_MS: Final = 100
INT32_MOST: Final = 2**31 - 1


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


def lead_ms(tier: int, tiers: int, gamma_per_s: float, service_ms: float = 0.0) -> float:
    """h_p = (K - 1 - p)/(K - 1) · max(min(120 s, (K - 1)·ln 4/γ), min(900 s, 10·S)): how much earlier it counts (ours).

    Earlier than the lowest tier, that is. A step between tiers is ln 4/γ: jobs that differ fourfold in e^(-γΦ). With
    one tier there is none; with γ = 0 the tiers are as far apart as they may be.

    S is the mean time in a backend, `service_ms`. An engine whose cache is full puts running work back, and that has
    the age of its run: with long answers older than any lead that goes by γ, so that new jobs of the highest tier would
    wait behind it for minutes (docs/capacity.md).
    """
    below = tiers - 1
    if below <= 0:
        return 0.0
    share = min(1.0, max(0.0, (below - tier) / below))
    apart = 1000 * below * math.log(4) / gamma_per_s if gamma_per_s > 0 else LEAD_MOST_MS
    long = min(LONG_LEAD_MOST_MS, SERVICES * service_ms) if service_ms > 0 else 0.0
    return share * max(min(LEAD_MOST_MS, apart), long)


def engine_priority(
    phi_ms: float, tier: int, tiers: int, gamma_per_s: float, epoch_ms: float, service_ms: float = 0.0
) -> int:
    """vLLM's `priority`, lower first: (Φ - h_p - epoch) in steps of 100 ms, within 32 bits.

    vLLM's Python server takes 64 bits, its Rust server and gRPC 32 (rust/src/server, inference.proto), and refuses
    more. In ms that would be over 25 days after the epoch; in steps of 100 ms it lasts 6.8 years, and beyond that all
    are equal. The engine serves equals by arrival. `epoch_ms` must stay the same for the pool's life: jobs with
    different epochs would stand side by side in one engine.
    """
    steps = (phi_ms - lead_ms(tier, tiers, gamma_per_s, service_ms) - epoch_ms) / PRIORITY_UNIT_MS
    return math.floor(min(INT32_MOST, max(-INT32_MOST, steps)))
