"""From what is known of a backend to how many leases each tier may hold there, and why not more.

The conditions, all of which must hold for a tier p to send (L = our live leases on the backend):
L < cap + θ_p; L < max(1, ⌊(K + θ_0) × room_p⌋); KV use < .95 × room_p, now and with L jobs like those that run, but
for tier 0; the lowest tier only while nothing waits; recent time per output token below the limit. The
scripts compare L at each pop; this says with what.
(The rooms are those of headroom.py; the rest is the design's §5, validated by simulation: docs/capacity.md.)

While something waits, the lowest tier has θ = 0 rather than a shut gate: cap is then L - W of the scrape, and L falls
below that only once as many have finished as waited, so that by then nothing waits. Shut until the next scrape, a
backend with jobs of a few tokens runs dry in between (.56 to .67 of a direct flood, measured; docs/capacity.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dispatcher.policy.capacity import Capacity
from fairlane.model import TierGate

QUICK_AGAIN: Final = 0.9  # of slow_ms: below that a slow backend's gate opens again
# A gate that a reading shut stays so when the readings end, but for one job on a backend that has none of ours: else
# stale metrics would raise what may be sent, or shut it for good.
SHUT_FALLBACK: Final = 1


@dataclass(frozen=True, slots=True)
class Tuning:
    """What an operator may set, per pool.

    `theta` (θ): jobs of each tier, from the highest down, that may wait in a backend; further down the last holds.
    `kv_most`: the share of the KV cache, times its room, above which a lower tier sends nothing. `slow_ms`: the time
    per output token that shuts the gate; below .9 of it the gate opens again.
    """

    theta: tuple[int, ...] = (3, 2, 1)
    kv_most: float = 0.95
    slow_ms: float = 150.0

    def of(self, tier: int) -> int:
        """θ of a tier; 0 is the highest."""
        return self.theta[min(tier, len(self.theta) - 1)]


DEFAULT: Final = Tuning()


@dataclass(frozen=True, slots=True)
class Load:
    """What the last good scrape showed of a backend beside its capacity. None: it does not say.

    `token_ms` is the recent time per output token, None also when nothing was generated since the scrape before.
    `running` is what runs there, whoever sent it.
    """

    waiting: int
    kv: float | None
    token_ms: float | None
    running: int = 0


def is_slow(was_slow: bool, token_ms: float | None, tuning: Tuning = DEFAULT) -> bool:
    """Whether tokens come too slowly to send more; an idle backend is never slow."""
    if token_ms is None:
        return False
    return token_ms >= tuning.slow_ms * (QUICK_AGAIN if was_slow else 1)


def gates(
    capacity: Capacity, load: Load, rooms: Sequence[float], *, slow: bool, tuning: Tuning = DEFAULT
) -> tuple[TierGate, ...]:
    """Each tier's gate, from the highest tier down. `rooms` are headroom.rooms, `slow` is is_slow."""
    return tuple(_gate(capacity, load, tier, rooms, slow=slow, tuning=tuning) for tier in range(len(rooms)))


def ahead(
    found: Sequence[TierGate], live: int, load: Load, most: int, *, slow: bool, tuning: Tuning = DEFAULT
) -> tuple[TierGate, ...]:
    """The same for an engine that takes the priority that we hand over: the highest tier's gate opens further.

    When more waits there than we ever let wait, the engine has put running work back (its cache was full), and that may
    wait until others have ended: minutes, with long answers. The highest tier's jobs go ahead of it there, so these may
    be sent: at each scrape as many as θ_0, or `most` (activity.py) if that is less. `live` are our leases then.
    """
    highest, *others = found
    more = min(tuning.of(0), most)
    if slow or more <= 0 or load.waiting <= tuning.of(0) or highest.limit >= live + more:
        return tuple(found)
    return TierGate(live + more, highest.fallback, "full"), *others


def _gate(capacity: Capacity, load: Load, tier: int, rooms: Sequence[float], *, slow: bool, tuning: Tuning) -> TierGate:
    room = rooms[tier]
    if slow:
        return TierGate(0, SHUT_FALLBACK, "slow_tokens")
    if tier > 0 and load.kv is not None and load.kv >= tuning.kv_most * room:
        return TierGate(0, SHUT_FALLBACK, "kv")
    lowest = 0 < tier == len(rooms) - 1
    full = capacity.cap + (0 if lowest and load.waiting > 0 else tuning.of(tier))
    in_room = max(1, math.floor((capacity.k + tuning.of(0)) * room))
    in_cache = _in_cache(load, tuning.kv_most * room) if tier > 0 else math.inf
    fallback = min(capacity.cap, max(1, math.floor(capacity.k * room)))
    if in_cache < min(full, in_room):
        return TierGate(int(in_cache), min(fallback, int(in_cache)), "kv")
    return TierGate(full, fallback, "full") if full <= in_room else TierGate(in_room, fallback, "room")


def _in_cache(load: Load, share: float) -> float:
    """How many jobs like those that run it takes to fill so much of the cache. Infinite if the page does not tell.

    The share in use says nothing of what was sent since: a job fills the cache only when its prompt is read. Without
    this a lower tier that finds its gate open sends until its room is full, and seconds later the cache is. The job
    that goes over the share is let in, as where the use alone decides: on a backend of ten jobs it is a tenth of it.
    """
    if not load.kv or not load.running:
        return math.inf
    return max(1, math.ceil(load.running * share / load.kv))
