"""How far apart the tiers are in an engine that serves by the priority that we hand over.

There a job's place is a number that it keeps, Φ - h_p, the smallest first (vLLM's `priority`): how much earlier than
the lowest tier's each tier's jobs count, and age wins in the end.
"""

from __future__ import annotations

import math
from typing import Final

GAMMA_LEAD_MOST_MS: Final = 120_000.0
LONG: Final = 5  # the longest answers take so many times as long as those that are met running
LONG_LEAD_MOST_MS: Final = 900_000.0
FALL: Final = 0.1  # ms per ms
PRIORITY_UNIT_MS: Final = 100
INT32_MOST: Final = 2**31 - 1


def wanted_ms(tiers: int, gamma_per_s: float, met_ms: float = 0.0) -> float:
    """h_0 = max(min(120 s, (K - 1)·ln 4/γ), min(900 s, 5·E[S²]/E[S])), the highest tier's; 0 with one tier (ours).

    A step between tiers is ln 4/γ: jobs that differ fourfold in e^(-γΦ). With γ = 0 they are as far apart as may be.

    An engine whose cache is full puts running work back, and that has the age of its run: with long answers it is older
    than any lead that goes by γ, and new jobs of the highest tier would wait behind it for minutes (docs/capacity.md).
    E[S²]/E[S], `met_ms`, is how long a job takes in all that is met running.
    """
    if tiers < 2:
        return 0.0
    apart = 1000 * (tiers - 1) * math.log(4) / gamma_per_s if gamma_per_s > 0 else GAMMA_LEAD_MOST_MS
    long = min(LONG_LEAD_MOST_MS, LONG * met_ms) if met_ms > 0 else 0.0
    return max(min(GAMMA_LEAD_MOST_MS, apart), long)


def next_ms(known: float, wanted: float, passed_ms: float) -> float:
    """The lead after so long. It rises by no more than time goes on, and falls by a tenth of that.

    Jobs that were sent with one lead stand beside those with the next. If it rises no faster, a job of a lower tier
    that comes later never passes one of a higher. And it need not: while it rises, no job that is longer than those
    before is older than the time for which it has risen.
    """
    return min(known + passed_ms, max(known - FALL * passed_ms, wanted))


def of_tier_ms(tier: int, tiers: int, highest_ms: float) -> float:
    """h_p = (K - 1 - p)/(K - 1)·h_0."""
    below = tiers - 1
    return min(1.0, max(0.0, (below - tier) / below)) * highest_ms if below > 0 else 0.0


def engine_priority(phi_ms: float, tier: int, tiers: int, highest_ms: float, epoch_ms: float) -> int:
    """vLLM's `priority`, lower first: (Φ - h_p - epoch) in steps of 100 ms, within 32 bits.

    vLLM's Python server takes 64 bits, its Rust server and gRPC 32 (rust/src/server, inference.proto), and refuses
    more. In ms that would be over 25 days after the epoch; in steps of 100 ms it lasts 6.8 years, and beyond that all
    are equal. The engine serves equals by arrival. `epoch_ms` must stay the same for the pool's life: jobs with
    different epochs would stand side by side in one engine.
    """
    steps = (phi_ms - of_tier_ms(tier, tiers, highest_ms) - epoch_ms) / PRIORITY_UNIT_MS
    return math.floor(min(INT32_MOST, max(-INT32_MOST, steps)))
