"""`client.webhooks` for code without an event loop: a thin face, as sync.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from producer.client.portal import Portal
from producer.client.postbox import DEFAULT, OVERLAP_S
from producer.client.webhook_records import DeliveryState, WebhookDelivery, WebhookEndpoint
from producer.client.webhooks import AsyncWebhooks


class Webhooks:
    """As AsyncWebhooks."""

    def __init__(self, portal: Portal, webhooks: AsyncWebhooks) -> None:
        self._portal = portal
        self._webhooks = webhooks

    def create(
        self,
        url: str,
        *,
        events: Iterable[str] | None = None,
        description: str = "",
        headers: Mapping[str, str] | None = None,
        secret: str | None = None,
    ) -> WebhookEndpoint:
        """As AsyncWebhooks.create."""
        act = partial(self._webhooks.create, events=events, description=description, headers=headers, secret=secret)
        return self._portal.call(partial(act, url))

    def list(self) -> Sequence[WebhookEndpoint]:
        """All endpoints, the oldest first."""
        return self._portal.call(self._webhooks.list)

    def get(self, endpoint_id: str) -> WebhookEndpoint:
        """One endpoint as it is now. Raises NotFound."""
        return self._portal.call(partial(self._webhooks.get, endpoint_id))

    def update(
        self,
        endpoint_id: str,
        *,
        url: str | None = None,
        events: Iterable[str] | None = None,
        description: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> WebhookEndpoint:
        """Changes what is said, also for what waits to be sent. Raises NotFound, InvalidRequest, IllegalTransition."""
        act = partial(self._webhooks.update, url=url, events=events, description=description, headers=headers)
        return self._portal.call(partial(act, endpoint_id))

    def delete(self, endpoint_id: str) -> None:
        """Forgets an endpoint; what waits to be sent to it fails. Raises NotFound."""
        self._portal.call(partial(self._webhooks.delete, endpoint_id))

    def enable(self, endpoint_id: str) -> WebhookEndpoint:
        """Sends to it again, whoever disabled it. What failed meanwhile, `recover` sends. Raises NotFound."""
        return self._portal.call(partial(self._webhooks.enable, endpoint_id))

    def disable(self, endpoint_id: str) -> WebhookEndpoint:
        """Sends nothing to it; what waits to be sent fails. Raises NotFound."""
        return self._portal.call(partial(self._webhooks.disable, endpoint_id))

    def secret(self, endpoint_id: str = DEFAULT) -> str:
        """As AsyncWebhooks.secret."""
        return self._portal.call(partial(self._webhooks.secret, endpoint_id))

    def rotate(self, endpoint_id: str = DEFAULT, *, overlap_s: float = OVERLAP_S, secret: str | None = None) -> str:
        """The new secret. For `overlap_s` seconds yet, events are signed with the old one too. Raises NotFound."""
        return self._portal.call(partial(self._webhooks.rotate, endpoint_id, overlap_s=overlap_s, secret=secret))

    def test(self, endpoint_id: str) -> WebhookDelivery:
        """Sends a `webhook.test`; `delivery` tells what comes of it. Raises NotFound; IllegalTransition if disabled."""
        return self._portal.call(partial(self._webhooks.test, endpoint_id))

    def recover(self, endpoint_id: str, since: float) -> int:
        """Sends again what failed since then (Unix seconds), and says how many these are. Raises NotFound."""
        return self._portal.call(partial(self._webhooks.recover, endpoint_id, since))

    def deliveries(
        self, *, endpoint: str | None = None, state: DeliveryState | None = None
    ) -> Iterator[WebhookDelivery]:
        """Deliveries of the last days, the newest first, without payloads, read page by page."""
        return self._portal.iterate(self._webhooks.deliveries(endpoint=endpoint, state=state))

    def delivery(self, delivery_id: str) -> WebhookDelivery:
        """One delivery with each of its attempts and its payload. Raises NotFound."""
        return self._portal.call(partial(self._webhooks.delivery, delivery_id))

    def resend(self, delivery_id: str) -> WebhookDelivery:
        """Sends one again, whatever became of it, with the same `webhook-id`. Raises NotFound."""
        return self._portal.call(partial(self._webhooks.resend, delivery_id))
