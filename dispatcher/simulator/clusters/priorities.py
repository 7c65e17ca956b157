"""Which tier has which priority, and how much cache each priority is given for itself where it runs (headroom).

A priority with headroom makes the backend that runs it look fuller than it is, so that others go elsewhere. It is no
gate: nothing is refused, and nothing waits before a backend.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dispatcher.policy.headroom import DECAY, RESERVE

_BLOCKS: Final = 3 * 16.0  # tokens: Llumnix's `--migrate-out-threshold`, in blocks of 16


@dataclass(frozen=True, slots=True)
class Priorities:
    """`of` a tier: its priority, 0 the highest. `headroom` of each priority, as a share of a backend's cache.

    A backend whose freeness (tokens for each request of its batch) is below `migrate_below` is to give requests away.
    """

    of: Mapping[str, int]
    headroom: Sequence[float]
    migrate_below: float


def two_priorities(tiers: Sequence[str]) -> Priorities:
    """Llumnix's: the highest tier is `high`, all others are `normal` and have no headroom.

    How much headroom, and when migration sets in, the paper leaves to the operator. The headroom is that of the
    extension's highest tier, so that the two differ in their tiers alone; the threshold is the default of Llumnix's
    code. In the paper's own experiment the headroom is nearly all of the cache, which needs backends without high
    requests: where all have some, all have an F below 0, and of two that use as much the one with more requests then
    counts as the freer one.
    """
    return Priorities({tier: min(n, 1) for n, tier in enumerate(tiers)}, (RESERVE, 0.0), _BLOCKS)


def many_tiers(tiers: Sequence[str]) -> Priorities:
    """The multi-tier extension's: tier p of K has a headroom of M·.20·e^(-λp), λ = 2.5/(K - 1).

    From its description: these numbers, the whole headroom wherever any request of the tier runs, and a freeness below
    0 as the start of migration. Our reading: the lowest tier has its headroom as well, and so has the only one of
    K = 1, for which λ is not defined: .20.
    """
    decay = DECAY / max(1, len(tiers) - 1)
    headroom = [RESERVE * math.exp(-decay * tier) for tier in range(len(tiers))]
    return Priorities({tier: n for n, tier in enumerate(tiers)}, headroom, 0.0)
