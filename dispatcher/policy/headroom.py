"""Breathing room: the part of a backend that a tier may fill while higher tiers are active.

H_q = reserve·e^(-λq) with λ = decay/(K - 1) is what tier q of K keeps free from those below it: most for the highest,
and exponentially less further down (multi-tier SLA scheduling with exponential headroom, which extends the two
priorities of Llumnix, OSDI 2024). room_p = 1 - Σ H_q over the active tiers q above p. With four tiers, all active, and
the default reserve of .20 and decay of 2.5: 1.0, .80, .713, .675. With one tier there is none to keep.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

RESERVE: Final = 0.20
DECAY: Final = 2.5
LEAST: Final = 0.05  # a large reserve of many tiers adds up to more than there is; the lowest still is let in


def rooms(active: Sequence[bool], reserve: float = RESERVE, decay: float = DECAY) -> tuple[float, ...]:
    """Each tier's room, from the highest tier down, as a share of the backend in (0, 1].

    `active` says for each tier whether it has runnable work or live leases, or had within the last seconds. One tier
    alone has all the room, and so has a tier above which nothing is active. `reserve` is within [0, 1], `decay` ≥ 0.
    """
    step = decay / (len(active) - 1) if len(active) > 1 else 0.0
    room, found = 1.0, list[float]()
    for tier, is_active in enumerate(active):
        found.append(max(LEAST, room))
        if is_active:
            room -= reserve * math.exp(-step * tier)
    return tuple(found)
