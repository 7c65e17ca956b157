"""What the settings say about deliveries, in the outbox's units."""

from __future__ import annotations

from typing import Final

from fairlane.settings import Settings
from fairlane.webhooks.delivery import LaneRules

SLACK_S: Final = 15.0  # a lease is so much longer than an attempt: Redis may be away for a moment


def lease_ms(settings: Settings) -> int:
    """How long a delivery that was given out is nobody else's."""
    return round(1000 * (settings.webhook_timeout_s + SLACK_S))


def lane_rules(settings: Settings) -> LaneRules:
    """How lanes are steered."""
    return LaneRules(
        concurrency=settings.webhook_concurrency,
        breaker_ms=round(1000 * settings.webhook_breaker_s),
        disable_after_ms=round(1000 * settings.webhook_disable_after_s),
        keep_ms=round(1000 * settings.webhook_keep_s),
    )
