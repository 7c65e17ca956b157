"""Straight to Redis: endpoints and deliveries, as the front door serves them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from fairlane.queue.engine import Queue
from fairlane.safe_url import Guard
from fairlane.webhooks.deliveries import Deliveries as StoredDeliveries
from fairlane.webhooks.delivery import Delivery
from fairlane.webhooks.endpoints import Webhooks as StoredWebhooks
from fairlane.webhooks.payload import endpoint_view
from fairlane.webhooks.values import ALL, Endpoint
from producer.client.postbox import Act, Deliveries, EndpointFields, Wanted
from producer.client.webhook_records import WebhookDelivery, WebhookEndpoint
from producer.webhookview import delivery_view

PAGE: Final = 100


class DirectPostbox:
    """`queue` is opened on first use. What may be sent where, the couriers decide: `guard` refuses at once."""

    def __init__(self, queue: Callable[[], Awaitable[Queue]], tenant: str, guard: Guard) -> None:
        self._queue = queue
        self._tenant = tenant
        self._guard = guard

    async def create(self, fields: EndpointFields) -> WebhookEndpoint:
        made, secret = await (await self._webhooks()).create(
            self._tenant,
            fields.url or "",
            fields.events or ALL,
            fields.description or "",
            fields.headers,
            fields.secret,
        )
        return WebhookEndpoint.parse(endpoint_view(made) | {"secret": secret})

    async def endpoints(self) -> Sequence[WebhookEndpoint]:
        return [_endpoint(one) for one in await (await self._webhooks()).list(self._tenant)]

    async def endpoint(self, endpoint_id: str) -> WebhookEndpoint:
        return _endpoint(await (await self._webhooks()).get(self._tenant, endpoint_id))

    async def update(self, endpoint_id: str, fields: EndpointFields) -> WebhookEndpoint:
        webhooks = await self._webhooks()
        changed = await webhooks.set(
            self._tenant,
            endpoint_id,
            url=fields.url,
            events=fields.events,
            description=fields.description,
            headers=fields.headers,
        )
        return _endpoint(changed)

    async def delete(self, endpoint_id: str) -> None:
        await (await self._webhooks()).delete(self._tenant, endpoint_id)

    async def turn(self, endpoint_id: str, act: Act) -> WebhookEndpoint:
        webhooks = await self._webhooks()
        return _endpoint(await (webhooks.enable if act == "enable" else webhooks.disable)(self._tenant, endpoint_id))

    async def secret(self, endpoint_id: str) -> str:
        return await (await self._webhooks()).secret(self._tenant, endpoint_id)

    async def rotate(self, endpoint_id: str, overlap_s: float, secret: str) -> str:
        return await (await self._webhooks()).rotate(self._tenant, endpoint_id, overlap_s, secret)

    async def test(self, endpoint_id: str) -> WebhookDelivery:
        return _delivery(await (await self._webhooks()).test(self._tenant, endpoint_id))

    async def recover(self, endpoint_id: str, since: float) -> int:
        deliveries = StoredDeliveries(await self._queue())
        found, cursor = await deliveries.recover(self._tenant, endpoint_id, round(1000 * since))
        while cursor is not None:
            more, cursor = await deliveries.recover(self._tenant, endpoint_id, round(1000 * since), cursor)
            found += more
        return found

    async def deliveries(self, wanted: Wanted) -> Deliveries:
        deliveries = StoredDeliveries(await self._queue())
        page, cursor = await deliveries.list(self._tenant, wanted.endpoint, wanted.state, wanted.cursor, PAGE)
        return Deliveries([_delivery(one) for one in page], cursor)

    async def delivery(self, delivery_id: str) -> WebhookDelivery:
        return _delivery(await StoredDeliveries(await self._queue()).get(self._tenant, delivery_id))

    async def resend(self, delivery_id: str) -> WebhookDelivery:
        return _delivery(await StoredDeliveries(await self._queue()).resend(self._tenant, delivery_id))

    async def _webhooks(self) -> StoredWebhooks:
        return StoredWebhooks(await self._queue(), self._guard)


def _endpoint(endpoint: Endpoint) -> WebhookEndpoint:
    return WebhookEndpoint.parse(endpoint_view(endpoint))


def _delivery(delivery: Delivery) -> WebhookDelivery:
    return WebhookDelivery.parse(delivery_view(delivery))
