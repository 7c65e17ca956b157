"""Webhook endpoints and deliveries as the outside sees them: the front door's JSON as typed values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from fairlane.job import Json

DeliveryState: TypeAlias = Literal["pending", "delivered", "failed"]


@dataclass(frozen=True, slots=True)
class WebhookEndpoint:
    """Where a tenant's events are sent. `events` are types, or `job.*`, `batch.*`, `*`. Times in Unix seconds.

    `disabled_reason` is `asked`, `gone` (it answered 410) or `failing` (for days). `shut_until`: nothing is sent there
    before that, since too much has failed. `secret` is there only where the endpoint was just made. What is not known,
    or has not happened, is None. `raw` is the JSON that it was read from.
    """

    id: str
    tenant: str
    url: str
    events: Sequence[str]
    description: str
    headers: Mapping[str, str] = field(repr=False)
    enabled: bool
    disabled_reason: str | None
    created_at: float
    failing_since: float | None
    last_attempt_at: float | None
    last_status: int | None
    shut_until: float | None
    secret: str | None = field(repr=False)
    raw: Mapping[str, Json] = field(repr=False)

    @classmethod
    def parse(cls, raw: Mapping[str, Json]) -> WebhookEndpoint:
        """Fields that a newer server adds are in `raw` only. Raises ValueError if it is no endpoint."""
        try:
            return cls(
                id=raw["id"],
                tenant=raw["tenant"],
                url=raw["url"],
                events=tuple(raw["events"]),
                description=raw["description"] or "",
                headers=raw["headers"] or {},
                enabled=raw["enabled"],
                disabled_reason=raw["disabled_reason"],
                created_at=raw["created_at"],
                failing_since=raw["failing_since"],
                last_attempt_at=raw["last_attempt_at"],
                last_status=raw["last_status"],
                shut_until=raw.get("shut_until"),
                secret=raw.get("secret"),
                raw=raw,
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no webhook endpoint: {error!r}") from error


@dataclass(frozen=True, slots=True)
class WebhookAttempt:
    """One try: `at` in Unix seconds, the HTTP status and the first of the answer, or why there is none."""

    at: float
    duration_ms: float
    status: int | None
    error: str | None
    excerpt: str


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """One event on its way to one receiver; its id is the `webhook-id`. Times in Unix seconds.

    `endpoint_id` is None for the own webhook of a job or batch. `reason` says why it failed, in a word. `payload` is
    the event, as it is sent; None in lists. `raw` is the JSON that it was read from.
    """

    id: str
    endpoint_id: str | None
    url: str
    event: str
    object_id: str
    state: DeliveryState
    reason: str | None
    created_at: float
    next_attempt_at: float | None
    attempts: Sequence[WebhookAttempt]
    payload: Json = field(repr=False)
    raw: Mapping[str, Json] = field(repr=False)

    @classmethod
    def parse(cls, raw: Mapping[str, Json]) -> WebhookDelivery:
        """Raises ValueError if it is no delivery."""
        try:
            return cls(
                id=raw["id"],
                endpoint_id=raw["endpoint_id"],
                url=raw["url"],
                event=raw["event"],
                object_id=raw["object_id"],
                state=cast(DeliveryState, raw["state"]),
                reason=raw["reason"],
                created_at=raw["created_at"],
                next_attempt_at=raw["next_attempt_at"],
                attempts=tuple(_attempt(one) for one in raw["attempts"]),
                payload=raw.get("payload"),
                raw=raw,
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no delivery of a webhook: {error!r}") from error


def _attempt(raw: Mapping[str, Any]) -> WebhookAttempt:
    return WebhookAttempt(raw["at"], raw["duration_ms"], raw["status"], raw["error"], raw["excerpt"] or "")
