"""What follows from an attempt. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dispatcher.webhooks.attempt import Answered
from dispatcher.webhooks.schedule import bounded, delay_ms
from fairlane.webhooks.delivery import Outcome, Try

SLOW: Final = frozenset((429, 502, 504))  # the receiver has too much to do
PAUSING: Final = frozenset((429, 503))  # whose Retry-After is obeyed, for all of the endpoint
GONE: Final = 410


def verdict(answered: Answered, n: int, schedule: Sequence[float], u: float) -> Outcome:
    """Of attempt `n` (from 1): delivered, to be tried again and when, failed for good, or gone with its endpoint.

    `schedule` and `u` as in schedule.delay_ms.
    """
    tried = Try(answered.at_ms, answered.duration_ms, answered.status, answered.error, answered.excerpt)
    if answered.error is None:
        return Outcome(tried, "delivered")
    if answered.status == GONE:
        return Outcome(tried, "gone")
    slow = answered.status in SLOW
    after_s = answered.retry_after_s if answered.status in PAUSING else None
    pause_ms = round(1000 * bounded(after_s))
    again_ms = delay_ms(schedule, n, u, after_s)
    if again_ms is None:
        return Outcome(tried, "failed", reason="exhausted", slow=slow, pause_ms=pause_ms)
    return Outcome(tried, "again", delay_ms=again_ms, slow=slow, pause_ms=pause_ms)
