"""`/v1/webhook_endpoints`: where a tenant wants events sent. What becomes of them: webhook_deliveries.py."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fairlane.errors import InvalidRequest
from fairlane.webhooks.endpoints import ENDPOINTS_MOST
from fairlane.webhooks.payload import endpoint_view
from fairlane.webhooks.values import ALL, DEFAULT, FILTERS, OVERLAP_S, URL_MOST, Endpoint
from producer.api.answers import Json
from producer.api.body import declared_length, read_json
from producer.api.documents import RESPONSES
from producer.api.errors import fault_of
from producer.api.identity import Tenant
from producer.api.state import Shared, accepting
from producer.api.webhook_documents import (
    DELIVERY,
    ENDPOINT,
    ENDPOINT_BODY,
    ENDPOINT_CHANGES,
    ENDPOINT_DELETED,
    ENDPOINT_PAGE,
    NEW_ENDPOINT,
    NEW_SECRET,
    RECOVER_BODY,
    RECOVERED,
    ROTATE_BODY,
    SECRET,
)
from producer.webhookview import delivery_view

BODY_MOST: Final = 64 << 10
LATEST_S: Final = 10**11  # a time in seconds, and none in milliseconds
SECRET_HEADERS: Final = {"cache-control": "no-store"}

router = APIRouter(prefix="/v1/webhook_endpoints", tags=["webhooks"], responses=RESPONSES)

Url = Annotated[str, Field(min_length=1, max_length=URL_MOST)]
Events = Annotated[list[Annotated[str, Field(max_length=100)]], Field(min_length=1, max_length=len(FILTERS))]
Body = TypeVar("Body", bound=BaseModel)


class EndpointChanges(BaseModel):
    """`POST /v1/webhook_endpoints/{id}`: what is absent, or null, stays. What the values may be, `Webhooks` says."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: Url | None = None
    events: Events | None = None
    description: str | None = None
    headers: dict[str, str] | None = None


class EndpointIn(EndpointChanges):
    """`POST /v1/webhook_endpoints`."""

    url: Url  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]
    secret: str | None = None


class RotateIn(BaseModel):
    """`POST …/rotate`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    overlap_s: float | None = None
    secret: str | None = None


class RecoverIn(BaseModel):
    """`POST …/recover`. `since`: Unix seconds."""

    model_config = ConfigDict(extra="forbid", strict=True)

    since: Annotated[float, Field(ge=0, le=LATEST_S, allow_inf_nan=False)]


@router.post("", openapi_extra=ENDPOINT_BODY, responses={201: NEW_ENDPOINT}, response_model=None, status_code=201)
async def create(request: Request, tenant: Tenant) -> Response:
    """Registers an endpoint. Asked for again with the same values it is the same one."""
    state = accepting(request)
    asked = await _read(request, EndpointIn)
    made, secret = await state.webhooks.create(
        tenant, asked.url, asked.events or ALL, asked.description or "", asked.headers, asked.secret
    )
    headers = SECRET_HEADERS | {"location": f"{router.prefix}/{made.id}"}
    return Json(endpoint_view(made) | {"secret": secret}, 201, headers)


@router.get("", responses={200: ENDPOINT_PAGE}, response_model=None)
async def index(
    state: Shared,
    tenant: Tenant,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=ENDPOINTS_MOST)] = ENDPOINTS_MOST,
) -> Response:
    """The tenant's endpoints, the oldest first; all of them are one page, unless you ask for less."""
    found = await state.webhooks.list(tenant)
    start = _start(found, cursor)
    page, more = found[start : start + limit], len(found) > start + limit
    return Json({"data": [endpoint_view(one) for one in page], "next_cursor": page[-1].id if more else None})


@router.get("/{endpoint_id}", responses={200: ENDPOINT}, response_model=None)
async def read(state: Shared, tenant: Tenant, endpoint_id: str) -> Response:
    """The endpoint, without its secret."""
    return Json(endpoint_view(await state.webhooks.get(tenant, endpoint_id)))


@router.post("/{endpoint_id}", openapi_extra=ENDPOINT_CHANGES, responses={200: ENDPOINT}, response_model=None)
async def update(request: Request, state: Shared, tenant: Tenant, endpoint_id: str) -> Response:
    """Changes what is named. What waits to be sent goes to the new URL."""
    asked = await _read(request, EndpointChanges)
    return Json(endpoint_view(await state.webhooks.set(tenant, endpoint_id, **asked.model_dump())))


@router.delete("/{endpoint_id}", responses={200: ENDPOINT_DELETED}, response_model=None)
async def delete(state: Shared, tenant: Tenant, endpoint_id: str) -> Response:
    """Forgets the endpoint and its secret. What waits to be sent to it fails."""
    await state.webhooks.delete(tenant, endpoint_id)
    return Json({"id": endpoint_id, "object": "webhook_endpoint", "deleted": True})


@router.post("/{endpoint_id}/enable", responses={200: ENDPOINT}, response_model=None)
async def enable(state: Shared, tenant: Tenant, endpoint_id: str) -> Response:
    """Sends to it again, whoever disabled it. Repeatable."""
    return Json(endpoint_view(await state.webhooks.enable(tenant, endpoint_id)))


@router.post("/{endpoint_id}/disable", responses={200: ENDPOINT}, response_model=None)
async def disable(state: Shared, tenant: Tenant, endpoint_id: str) -> Response:
    """Sends nothing to it any more; what waits to be sent fails, and can be recovered. Repeatable."""
    return Json(endpoint_view(await state.webhooks.disable(tenant, endpoint_id)))


@router.get("/{endpoint_id}/secret", responses={200: SECRET}, response_model=None)
async def secret(state: Shared, tenant: Tenant, endpoint_id: str) -> Response:
    """What its deliveries are signed with; of `default`: those to jobs' and batches' own webhooks without a secret."""
    return Json(_secret_view(endpoint_id, await state.webhooks.secret(tenant, endpoint_id)), 200, SECRET_HEADERS)


@router.post("/{endpoint_id}/rotate", openapi_extra=ROTATE_BODY, responses={200: NEW_SECRET}, response_model=None)
async def rotate(request: Request, state: Shared, tenant: Tenant, endpoint_id: str) -> Response:
    """Another secret. For a while, a day if you do not say, deliveries are signed with both."""
    asked = await _read(request, RotateIn) if _has_body(request) else RotateIn()
    overlap_s = OVERLAP_S if asked.overlap_s is None else asked.overlap_s
    new = await state.webhooks.rotate(tenant, endpoint_id, overlap_s, asked.secret)
    if endpoint_id == DEFAULT:
        return Json(_secret_view(endpoint_id, new), 200, SECRET_HEADERS)
    view = endpoint_view(await state.webhooks.get(tenant, endpoint_id))
    return Json(view | {"secret": new}, 200, SECRET_HEADERS)


@router.post("/{endpoint_id}/test", responses={200: DELIVERY}, response_model=None)
async def test(request: Request, tenant: Tenant, endpoint_id: str) -> Response:
    """Sends a `webhook.test` there, whatever its events are: the delivery, which tells later what came of it."""
    return Json(delivery_view(await accepting(request).webhooks.test(tenant, endpoint_id)))


@router.post("/{endpoint_id}/recover", openapi_extra=RECOVER_BODY, responses={200: RECOVERED}, response_model=None)
async def recover(request: Request, tenant: Tenant, endpoint_id: str) -> Response:
    """Sends again what was made since then and has failed. Repeatable: what waits to be sent again has not failed."""
    deliveries = accepting(request).deliveries
    since_ms = round(1000 * (await _read(request, RecoverIn)).since)
    recovered, cursor = await deliveries.recover(tenant, endpoint_id, since_ms)
    while cursor is not None:
        more, cursor = await deliveries.recover(tenant, endpoint_id, since_ms, cursor)
        recovered += more
    return Json({"recovered": recovered})


async def _read(request: Request, model: type[Body]) -> Body:
    try:
        return model.model_validate(await read_json(request, BODY_MOST))
    except ValidationError as error:
        # the input is left out: it may hold a secret
        raise fault_of(error.errors(include_url=False, include_input=False)) from None


def _has_body(request: Request) -> bool:
    return declared_length(request) > 0 or "transfer-encoding" in request.headers


def _start(found: list[Endpoint], cursor: str | None) -> int:
    """Where the page after the endpoint `cursor` begins; ids are in the order of time, and it may be gone."""
    if cursor is None:
        return 0
    if not cursor.startswith("whe_"):
        raise InvalidRequest("This cursor is not one that was given out.", param="cursor")
    return next((n for n, one in enumerate(found) if one.id > cursor), len(found))


def _secret_view(endpoint_id: str, secret: str) -> dict[str, Any]:
    return {"object": "webhook_secret", "id": endpoint_id, "secret": secret}
