"""`/v1/webhook_deliveries`: what is, or was, sent to a tenant's webhooks, and what came of each attempt."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from fairlane.webhooks.deliveries import PAGE_MOST
from fairlane.webhooks.delivery import DeliveryState
from producer.api.answers import Json
from producer.api.documents import RESPONSES
from producer.api.identity import Tenant
from producer.api.state import Shared, accepting
from producer.api.webhook_documents import DELIVERY, DELIVERY_PAGE
from producer.webhookview import delivery_view

router = APIRouter(prefix="/v1/webhook_deliveries", tags=["webhooks"], responses=RESPONSES)


@router.get("", responses={200: DELIVERY_PAGE}, response_model=None)
async def index(
    state: Shared,
    tenant: Tenant,
    endpoint: Annotated[str | None, Query(max_length=100)] = None,
    state_is: Annotated[DeliveryState | None, Query(alias="state")] = None,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MOST)] = 20,
) -> Response:
    """The tenant's deliveries, the newest first, page by page; payloads are left out."""
    found, following = await state.deliveries.list(tenant, endpoint, state_is, cursor, limit)
    return Json({"data": [delivery_view(one) for one in found], "next_cursor": following})


@router.get("/{delivery_id}", responses={200: DELIVERY}, response_model=None)
async def read(state: Shared, tenant: Tenant, delivery_id: str) -> Response:
    """The delivery with its payload and its attempts."""
    return Json(delivery_view(await state.deliveries.get(tenant, delivery_id)))


@router.post("/{delivery_id}/resend", responses={200: DELIVERY}, response_model=None)
async def resend(request: Request, tenant: Tenant, delivery_id: str) -> Response:
    """Sends it again, whatever became of it: now, by a fresh schedule, under the same `webhook-id`."""
    return Json(delivery_view(await accepting(request).deliveries.resend(tenant, delivery_id)))
