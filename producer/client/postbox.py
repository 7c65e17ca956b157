"""Webhooks over a transport: what it must offer."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, TypeAlias

from producer.client.webhook_records import DeliveryState, WebhookDelivery, WebhookEndpoint

DEFAULT: Final = "default"  # whose secret signs for jobs and batches that bring a webhook without one
OVERLAP_S: Final = 86_400.0
SECRET_BYTES: Final = 32
Act: TypeAlias = Literal["enable", "disable"]


@dataclass(frozen=True, slots=True)
class EndpointFields:
    """What a tenant says of an endpoint. None: it stays as it is; of a new one, it is the usual."""

    url: str | None = None
    events: Sequence[str] | None = None
    description: str | None = None
    headers: Mapping[str, str] | None = None
    secret: str | None = None

    def given(self) -> dict[str, object]:
        """Those that are not None."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which deliveries are listed, and from where on."""

    endpoint: str | None
    state: DeliveryState | None
    cursor: str | None = None

    def after(self, cursor: str) -> Wanted:
        return replace(self, cursor=cursor)


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Some of a list, the newest first, without payloads, and where to go on; None: that was all."""

    data: Sequence[WebhookDelivery]
    cursor: str | None


class Postbox(Protocol):
    """The tenant's endpoints and deliveries. Each call is one try, and safe to repeat. Raises fairlane.errors."""

    async def create(self, fields: EndpointFields) -> WebhookEndpoint: ...

    async def endpoints(self) -> Sequence[WebhookEndpoint]: ...

    async def endpoint(self, endpoint_id: str) -> WebhookEndpoint: ...

    async def update(self, endpoint_id: str, fields: EndpointFields) -> WebhookEndpoint: ...

    async def delete(self, endpoint_id: str) -> None: ...

    async def turn(self, endpoint_id: str, act: Act) -> WebhookEndpoint: ...

    async def secret(self, endpoint_id: str) -> str: ...

    async def rotate(self, endpoint_id: str, overlap_s: float, secret: str) -> str: ...

    async def test(self, endpoint_id: str) -> WebhookDelivery: ...

    async def recover(self, endpoint_id: str, since: float) -> int: ...

    async def deliveries(self, wanted: Wanted) -> Deliveries: ...

    async def delivery(self, delivery_id: str) -> WebhookDelivery: ...

    async def resend(self, delivery_id: str) -> WebhookDelivery: ...


def new_secret() -> str:
    """Of 32 random bytes. `rotate` makes it here: so a call that is repeated means the same one."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
