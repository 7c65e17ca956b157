"""From something that has happened to the deliveries that tell of it. Pure; the same again for the same event."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

from fairlane.webhooks.delivery import NewDelivery, Own
from fairlane.webhooks.payload import delivery_id
from fairlane.webhooks.values import Endpoint

_PORTS: Final = {"http": 80, "https": 443}


def deliveries(
    subject: str,
    event: str,
    type_: str,
    payload: bytes,
    *,
    tenant: str,
    endpoints: Sequence[Endpoint],
    webhook: Mapping[str, Any] | None = None,
) -> list[NewDelivery]:
    """One for each of the endpoints that wants this type, and one for the `webhook` of the job or batch itself.

    `subject` and `event` are as in `payload.delivery_id`.
    """
    made = [
        NewDelivery(delivery_id(subject, event, type_, one.id), tenant, one.id, one.id, None, type_, subject, payload)
        for one in endpoints
        if one.enabled and one.wants(type_)
    ]
    if webhook is not None:
        own = own_of(webhook)
        lane = lane_of(tenant, own.url)
        made.append(
            NewDelivery(delivery_id(subject, event, type_, lane), tenant, lane, None, own, type_, subject, payload)
        )
    return made


def own_of(webhook: Mapping[str, Any]) -> Own:
    """A job's or batch's own hook, which was checked when it was taken in (values.check_own)."""
    headers = cast("Mapping[str, str]", webhook.get("headers") or {})
    return Own(str(webhook["url"]), cast("str | None", webhook.get("secret")), dict(headers))


def lane_of(tenant: str, url: str) -> str:
    """A tenant's own hooks to one origin (scheme, host, port) share a lane."""
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{(parts.hostname or '').lower()}:{parts.port or _PORTS.get(parts.scheme, 0)}"
    return f"adhoc_{hashlib.sha256(f'{tenant}|{origin}'.encode()).hexdigest()[:24]}"
