"""Webhooks without a server, for tests: endpoints are kept, and nothing is sent. A test event arrives at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count
from typing import Any, Final

from fairlane.errors import IllegalTransition, NotFound
from producer.client.postbox import DEFAULT, Act, Deliveries, EndpointFields, Wanted, new_secret
from producer.client.webhook_records import WebhookDelivery, WebhookEndpoint

ALL: Final = ("*",)


class ScriptedPostbox:
    """Implements Postbox."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._endpoints: dict[str, dict[str, Any]] = {}
        self._secrets = {DEFAULT: "whsec_" + "A" * 32}
        self._deliveries: dict[str, dict[str, Any]] = {}
        self._numbers = count(1)

    async def create(self, fields: EndpointFields) -> WebhookEndpoint:
        endpoint_id = f"whe_{next(self._numbers)}"
        empty = dict.fromkeys(("disabled_reason", "failing_since", "last_attempt_at", "last_status", "shut_until"))
        raw: dict[str, Any] = {
            "object": "webhook_endpoint",
            "id": endpoint_id,
            "tenant": self._tenant,
            "url": fields.url,
            "events": list(fields.events or ALL),
            "description": fields.description or "",
            "headers": dict(fields.headers or {}),
            "enabled": True,
            "created_at": time.time(),
        }
        self._endpoints[endpoint_id] = raw | empty
        self._secrets[endpoint_id] = fields.secret or new_secret()
        return WebhookEndpoint.parse(raw | empty | {"secret": self._secrets[endpoint_id]})

    async def endpoints(self) -> Sequence[WebhookEndpoint]:
        return [WebhookEndpoint.parse(dict(raw)) for raw in self._endpoints.values()]

    async def endpoint(self, endpoint_id: str) -> WebhookEndpoint:
        return WebhookEndpoint.parse(dict(self._kept(endpoint_id)))

    async def update(self, endpoint_id: str, fields: EndpointFields) -> WebhookEndpoint:
        self._kept(endpoint_id).update(fields.given())
        return await self.endpoint(endpoint_id)

    async def delete(self, endpoint_id: str) -> None:
        self._kept(endpoint_id)
        del self._endpoints[endpoint_id], self._secrets[endpoint_id]

    async def turn(self, endpoint_id: str, act: Act) -> WebhookEndpoint:
        on = act == "enable"
        self._kept(endpoint_id).update(enabled=on, disabled_reason=None if on else "asked")
        return await self.endpoint(endpoint_id)

    async def secret(self, endpoint_id: str) -> str:
        if endpoint_id not in self._secrets:
            raise NotFound()
        return self._secrets[endpoint_id]

    async def rotate(self, endpoint_id: str, overlap_s: float, secret: str) -> str:
        await self.secret(endpoint_id)
        self._secrets[endpoint_id] = secret
        return secret

    async def test(self, endpoint_id: str) -> WebhookDelivery:
        endpoint = self._kept(endpoint_id)
        if not endpoint["enabled"]:
            raise IllegalTransition("The endpoint is disabled. Enable it, and test it then.")
        now = time.time()
        delivery_id = f"msg_{next(self._numbers)}"
        attempt = {"at": now, "duration_ms": 0, "status": 204, "error": None, "excerpt": ""}
        self._deliveries[delivery_id] = {
            "object": "webhook_delivery",
            "id": delivery_id,
            "endpoint_id": endpoint_id,
            "url": endpoint["url"],
            "event": "webhook.test",
            "object_id": endpoint_id,
            "state": "delivered",
            "reason": None,
            "created_at": now,
            "next_attempt_at": None,
            "attempts": [attempt],
            "payload": {"type": "webhook.test", "data": {"id": endpoint_id}},
        }
        return await self.delivery(delivery_id)

    async def recover(self, endpoint_id: str, since: float) -> int:
        self._kept(endpoint_id)
        return 0

    async def deliveries(self, wanted: Wanted) -> Deliveries:
        found = [WebhookDelivery.parse(raw | {"payload": None}) for raw in reversed(self._deliveries.values())]
        wants = (wanted.endpoint, wanted.state)
        return Deliveries(
            [one for one in found if wants[0] in (None, one.endpoint_id) and wants[1] in (None, one.state)], None
        )

    async def delivery(self, delivery_id: str) -> WebhookDelivery:
        if delivery_id not in self._deliveries:
            raise NotFound()
        return WebhookDelivery.parse(dict(self._deliveries[delivery_id]))

    async def resend(self, delivery_id: str) -> WebhookDelivery:
        return await self.delivery(delivery_id)

    def _kept(self, endpoint_id: str) -> dict[str, Any]:
        if endpoint_id not in self._endpoints:
            raise NotFound()
        return self._endpoints[endpoint_id]
