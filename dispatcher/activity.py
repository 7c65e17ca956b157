"""Which tiers of a pool are at work, or were a moment ago: only those keep room free from the tiers below them.

And whether the highest one may go ahead of what the engines have put back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, cast

from dispatcher.policy import headroom
from dispatcher.seen import fields
from fairlane.metrics import capacity_of
from fairlane.model import Policy
from fairlane.standing import PoolLoad

ACTIVE_MS: Final = 10_000  # a tier counts as active for so long after it was last seen to be


class Activity:
    """Remembers when each tier was last seen at work, and how the last look was. Times are of any one clock, in ms."""

    def __init__(self) -> None:
        self._active_ms: dict[str, float] = {}
        self._inflight: dict[str, int] = {}
        self._slots = 0
        self._waiting: list[int] = []

    def note(self, load: PoolLoad, now_ms: float) -> None:
        """A tier is at work if it has jobs that may run, or live leases."""
        for tier in load.tiers:
            if tier.runnable or tier.inflight:
                self._active_ms[tier.tier] = now_ms
        self._inflight = {tier.tier: tier.inflight for tier in load.tiers}
        serving = [view for view in load.backends if view.status == "up" and not _is_shut(fields(view.seen))]
        self._slots = sum(capacity_of(view) or 0 for view in serving)
        self._waiting = [_whole(fields(view.seen).get("waiting")) for view in serving]

    def rooms(self, policy: Policy, now_ms: float) -> tuple[float, ...]:
        """Each tier's room, from the highest down."""
        active = [now_ms - self._active_ms.get(tier, -ACTIVE_MS) < ACTIVE_MS for tier in policy.tiers]
        return headroom.rooms(active, reserve=policy.reserve, decay=policy.decay)

    def ahead(self, policy: Policy) -> int:
        """How many more jobs of the highest tier each backend may have ahead of what it has put back (gate.ahead).

        Together as many as would fill what they run at once. None while at one of them no more waits than is let wait:
        it will have a place sooner, also for an engine that says nothing and does not obey. One whose gate is shut to
        all, since it makes errors or is slow, will have none.
        """
        if min(self._waiting, default=0) <= policy.theta[0]:
            return 0
        more = self._slots - self._inflight.get(policy.tiers[0], 0)
        return max(0, math.ceil(more / len(self._waiting)))


def _is_shut(seen: Mapping[str, Any]) -> bool:
    health = seen.get("health")
    known = cast("dict[str, Any]", health) if isinstance(health, dict) else {}
    return seen.get("slow") is True or bool(known.get("until_ms"))


def _whole(found: object) -> int:
    return found if isinstance(found, int) else 0
