"""Which tiers of a pool are at work, or were a moment ago: only those keep room free from the tiers below them."""

from __future__ import annotations

from typing import Final

from dispatcher.policy import headroom
from fairlane.model import Policy
from fairlane.standing import PoolLoad

ACTIVE_MS: Final = 10_000  # a tier counts as active for so long after it was last seen to be


class Activity:
    """Remembers when each tier was last seen at work. Times are of any one clock, in ms."""

    def __init__(self) -> None:
        self._active_ms: dict[str, float] = {}

    def note(self, load: PoolLoad, now_ms: float) -> None:
        """A tier is at work if it has jobs that may run, or live leases."""
        for tier in load.tiers:
            if tier.runnable or tier.inflight:
                self._active_ms[tier.tier] = now_ms

    def rooms(self, policy: Policy, now_ms: float) -> tuple[float, ...]:
        """Each tier's room, from the highest down."""
        active = [now_ms - self._active_ms.get(tier, -ACTIVE_MS) < ACTIVE_MS for tier in policy.tiers]
        return headroom.rooms(active, reserve=policy.reserve, decay=policy.decay)
