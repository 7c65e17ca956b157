"""Breathing room: the part of a backend that a tier may fill while higher tiers are active.

H_q = 0.20·e^(-λq) with λ = 2.5/(K - 1) is what tier q of K keeps free from those below it: most for the highest, and
exponentially less further down (multi-tier SLA scheduling, after Llumnix). room_p = 1 - Σ H_q over the active tiers q
above p. With four tiers, all active: 1.0, .80, .713, .675.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

HEAD: Final = 0.20
DECAY: Final = 2.5


def rooms(active: Sequence[bool]) -> tuple[float, ...]:
    """Each tier's room, from the highest tier down, as a share of the backend in (0, 1].

    `active` says for each tier whether it has runnable work or live leases, or had within the last seconds. One tier
    alone has all the room, and so has a tier above which nothing is active.
    """
    decay = DECAY / (len(active) - 1) if len(active) > 1 else 0.0
    room, found = 1.0, list[float]()
    for tier, is_active in enumerate(active):
        found.append(room)
        if is_active:
            room -= HEAD * math.exp(-decay * tier)
    return tuple(found)
