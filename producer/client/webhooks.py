"""A tenant's webhooks, `client.webhooks`: where its events are sent, and what became of each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence

from producer.client.postbox import DEFAULT, OVERLAP_S, EndpointFields, Wanted, new_secret
from producer.client.session import Session
from producer.client.webhook_records import DeliveryState, WebhookDelivery, WebhookEndpoint


class AsyncWebhooks:
    """Endpoints and deliveries. An id that is another tenant's is NotFound."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def create(
        self,
        url: str,
        *,
        events: Iterable[str] | None = None,
        description: str = "",
        headers: Mapping[str, str] | None = None,
        secret: str | None = None,
    ) -> WebhookEndpoint:
        """Has events sent to `url` from now on: all, or those `events` (types, or `job.*`, `batch.*`).

        `headers` are sent along. The answer's `secret` is what to verify events with (`fairlane.verify_webhook`); it
        may be given instead: `whsec_` and base64 of 24 to 64 bytes. An endpoint that is there already, equal in all, is
        the answer again. Raises InvalidRequest, which says why a url is refused; IllegalTransition if there is one with
        this url and these events that differs otherwise.
        """
        fields = EndpointFields(url, _listed(events), description, headers, secret)
        return await self._session.ask(lambda to: to.postbox.create(fields))

    async def list(self) -> Sequence[WebhookEndpoint]:
        """All endpoints, the oldest first."""
        return await self._session.ask(lambda to: to.postbox.endpoints())

    async def get(self, endpoint_id: str) -> WebhookEndpoint:
        """One endpoint as it is now. Raises NotFound."""
        return await self._session.ask(lambda to: to.postbox.endpoint(endpoint_id))

    async def update(
        self,
        endpoint_id: str,
        *,
        url: str | None = None,
        events: Iterable[str] | None = None,
        description: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> WebhookEndpoint:
        """Changes what is said, also for what waits to be sent. Raises NotFound, InvalidRequest, IllegalTransition."""
        fields = EndpointFields(url, _listed(events), description, headers)
        return await self._session.ask(lambda to: to.postbox.update(endpoint_id, fields))

    async def delete(self, endpoint_id: str) -> None:
        """Forgets an endpoint; what waits to be sent to it fails. Raises NotFound."""
        await self._session.ask(lambda to: to.postbox.delete(endpoint_id))

    async def enable(self, endpoint_id: str) -> WebhookEndpoint:
        """Sends to it again, whoever disabled it. What failed meanwhile, `recover` sends. Raises NotFound."""
        return await self._session.ask(lambda to: to.postbox.turn(endpoint_id, "enable"))

    async def disable(self, endpoint_id: str) -> WebhookEndpoint:
        """Sends nothing to it; what waits to be sent fails. Raises NotFound."""
        return await self._session.ask(lambda to: to.postbox.turn(endpoint_id, "disable"))

    async def secret(self, endpoint_id: str = DEFAULT) -> str:
        """What an endpoint's events are signed with; `default`: those of jobs and batches whose own webhook has none.

        Raises NotFound.
        """
        return await self._session.ask(lambda to: to.postbox.secret(endpoint_id))

    async def rotate(
        self, endpoint_id: str = DEFAULT, *, overlap_s: float = OVERLAP_S, secret: str | None = None
    ) -> str:
        """The new secret. For `overlap_s` seconds yet, events are signed with the old one too. Raises NotFound."""
        new = secret or new_secret()
        return await self._session.ask(lambda to: to.postbox.rotate(endpoint_id, overlap_s, new))

    async def test(self, endpoint_id: str) -> WebhookDelivery:
        """Sends a `webhook.test`; `delivery` tells what comes of it. Raises NotFound; IllegalTransition if disabled."""
        return await self._session.ask(lambda to: to.postbox.test(endpoint_id))

    async def recover(self, endpoint_id: str, since: float) -> int:
        """Sends again what failed since then (Unix seconds), and says how many these are. Raises NotFound."""
        return await self._session.ask(lambda to: to.postbox.recover(endpoint_id, since))

    async def deliveries(
        self, *, endpoint: str | None = None, state: DeliveryState | None = None
    ) -> AsyncGenerator[WebhookDelivery]:
        """Deliveries of the last days, the newest first, without payloads, read page by page."""
        wanted = Wanted(endpoint, state)
        while True:
            asked = wanted
            page = await self._session.ask(lambda to: to.postbox.deliveries(asked))  # noqa: B023
            for one in page.data:
                yield one
            if page.cursor is None:
                return
            wanted = wanted.after(page.cursor)

    async def delivery(self, delivery_id: str) -> WebhookDelivery:
        """One delivery with each of its attempts and its payload. Raises NotFound."""
        return await self._session.ask(lambda to: to.postbox.delivery(delivery_id))

    async def resend(self, delivery_id: str) -> WebhookDelivery:
        """Sends one again, whatever became of it, with the same `webhook-id`. Raises NotFound."""
        return await self._session.ask(lambda to: to.postbox.resend(delivery_id))


def _listed(events: Iterable[str] | None) -> tuple[str, ...] | None:
    """A text would be an iterable of letters; the server says what is wrong with it."""
    return None if events is None else (events,) if isinstance(events, str) else tuple(events)
