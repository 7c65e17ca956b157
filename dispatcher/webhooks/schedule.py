"""When a delivery is tried again. Pure: the dice are thrown by the caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

JITTER: Final = 0.2  # so that what failed together does not come back together
MOST_RETRY_AFTER_S: Final = 3600.0


def delay_ms(schedule: Sequence[float], n: int, u: float, retry_after_s: float | None = None) -> int | None:
    """How long to wait after attempt `n` (from 1) has failed; None if it was the last.

    `schedule` has the seconds before each attempt, the first included; `u` is uniform in [0, 1). What the receiver
    asked for (`retry_after_s`) is obeyed, though not beyond MOST_RETRY_AFTER_S.
    """
    if n >= len(schedule):
        return None
    jittered_s = schedule[n] * (1 - JITTER + 2 * JITTER * u)
    return round(1000 * max(jittered_s, bounded(retry_after_s)))


def bounded(retry_after_s: float | None) -> float:
    """0 to MOST_RETRY_AFTER_S; 0 if nothing was asked for."""
    return min(max(retry_after_s or 0.0, 0.0), MOST_RETRY_AFTER_S)
