"""A webhook's delivery as the outside sees it. (Its endpoint: fairlane/webhooks/payload.py, which sends it too.)"""

from __future__ import annotations

from typing import Any

from fairlane.jobview import body_of
from fairlane.webhooks.delivery import Delivery, Try


def delivery_view(delivery: Delivery) -> dict[str, Any]:
    """Times in Unix seconds; what is absent is None. `payload` is there if the delivery brings it."""
    view: dict[str, Any] = {
        "object": "webhook_delivery",
        "id": delivery.id,
        "tenant": delivery.tenant,
        "endpoint_id": delivery.endpoint_id,
        "url": delivery.url,
        "event": delivery.event,
        "object_id": delivery.object_id,
        "state": delivery.state,
        "reason": delivery.reason,
        "created_at": delivery.created_at_ms / 1000,
        "next_attempt_at": None if delivery.next_at_ms is None else delivery.next_at_ms / 1000,
        "attempts": [_attempt(one) for one in delivery.tries],
    }
    if delivery.payload is not None:
        view["payload"] = body_of(delivery.payload)
    return view


def _attempt(one: Try) -> dict[str, Any]:
    return {
        "at": one.at_ms / 1000,
        "duration_ms": one.duration_ms,
        "status": one.status,
        "error": one.error,
        "excerpt": one.excerpt,
    }
