"""Over HTTP: the front door's `/v1/webhook_endpoints` and `/v1/webhook_deliveries`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from fairlane.job import Json
from producer.client.door import Door
from producer.client.postbox import Act, Deliveries, EndpointFields, Wanted
from producer.client.refusals import foreign
from producer.client.webhook_records import WebhookDelivery, WebhookEndpoint

PAGE: Final = 100
T = TypeVar("T")


class HttpPostbox:
    """`tenant` is for who may say it, by an operator's key."""

    def __init__(self, door: Door, tenant: str | None) -> None:
        self._door = door
        self._headers = {} if tenant is None else {"x-fairlane-tenant": tenant}

    async def create(self, fields: EndpointFields) -> WebhookEndpoint:
        return _read(WebhookEndpoint.parse, await self._call("POST", "/v1/webhook_endpoints", fields.given()))

    async def endpoints(self) -> Sequence[WebhookEndpoint]:
        said = await self._call("GET", "/v1/webhook_endpoints")
        return [_read(WebhookEndpoint.parse, one) for one in said["data"]]

    async def endpoint(self, endpoint_id: str) -> WebhookEndpoint:
        return _read(WebhookEndpoint.parse, await self._call("GET", _endpoint(endpoint_id)))

    async def update(self, endpoint_id: str, fields: EndpointFields) -> WebhookEndpoint:
        return _read(WebhookEndpoint.parse, await self._call("POST", _endpoint(endpoint_id), fields.given()))

    async def delete(self, endpoint_id: str) -> None:
        await self._call("DELETE", _endpoint(endpoint_id))

    async def turn(self, endpoint_id: str, act: Act) -> WebhookEndpoint:
        return _read(WebhookEndpoint.parse, await self._call("POST", _endpoint(endpoint_id, act)))

    async def secret(self, endpoint_id: str) -> str:
        return (await self._call("GET", _endpoint(endpoint_id, "secret")))["secret"]

    async def rotate(self, endpoint_id: str, overlap_s: float, secret: str) -> str:
        asked = {"overlap_s": overlap_s, "secret": secret}
        return (await self._call("POST", _endpoint(endpoint_id, "rotate"), asked))["secret"]

    async def test(self, endpoint_id: str) -> WebhookDelivery:
        return _read(WebhookDelivery.parse, await self._call("POST", _endpoint(endpoint_id, "test")))

    async def recover(self, endpoint_id: str, since: float) -> int:
        return (await self._call("POST", _endpoint(endpoint_id, "recover"), {"since": since}))["recovered"]

    async def deliveries(self, wanted: Wanted) -> Deliveries:
        asked = {"endpoint": wanted.endpoint, "state": wanted.state, "cursor": wanted.cursor, "limit": str(PAGE)}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        said = await self._call("GET", f"/v1/webhook_deliveries?{query}")
        return Deliveries([_read(WebhookDelivery.parse, one) for one in said["data"]], said["next_cursor"])

    async def delivery(self, delivery_id: str) -> WebhookDelivery:
        return _read(WebhookDelivery.parse, await self._call("GET", _delivery(delivery_id)))

    async def resend(self, delivery_id: str) -> WebhookDelivery:
        return _read(WebhookDelivery.parse, await self._call("POST", f"{_delivery(delivery_id)}/resend"))

    async def _call(self, method: str, path: str, asked: Mapping[str, object] | None = None) -> dict[str, Any]:
        content = None if asked is None else json.dumps(asked).encode()
        return await self._door.call(method, path, content, headers=self._headers)


def _read(parse: Callable[[Mapping[str, Json]], T], raw: Mapping[str, Json]) -> T:
    try:
        return parse(raw)
    except ValueError as error:
        raise foreign(str(raw), 200) from error


def _endpoint(endpoint_id: str, *more: str) -> str:
    return "/".join(("/v1/webhook_endpoints", quote(endpoint_id, safe=""), *more))


def _delivery(delivery_id: str) -> str:
    return f"/v1/webhook_deliveries/{quote(delivery_id, safe='')}"
