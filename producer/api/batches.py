"""`/v1/batches`: create, look, list, cancel, as OpenAI has them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fairlane.batches.document import batch_view
from fairlane.batches.view import OUTPUT_S
from fairlane.webhooks.values import check_own
from producer.api.answers import Json
from producer.api.body import read_json
from producer.api.documents import RESPONSES
from producer.api.errors import fault_of
from producer.api.file_documents import BATCH, BATCH_BODY, BATCH_PAGE, BATCH_RESULTS
from producer.api.files import list_view
from producer.api.identity import KeyHeader, Tenant, Who
from producer.api.state import Shared, accepting
from producer.api.wire import WebhookIn

MOST_AFTER: Final = 10**9

router = APIRouter(prefix="/v1/batches", tags=["batches"], responses=RESPONSES)


class Expiry(BaseModel):
    """When the output and error files are deleted: `seconds` after each was made."""

    model_config = ConfigDict(extra="forbid", strict=True)

    anchor: Literal["created_at"]
    seconds: int


class BatchIn(BaseModel):
    """`POST /v1/batches`. What the values may be, `Batches.create` says."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input_file_id: Annotated[str, Field(min_length=1, max_length=100)]
    endpoint: Annotated[str, Field(max_length=100)]
    completion_window: Annotated[str, Field(max_length=100)]
    metadata: dict[str, str] | None = None
    output_expires_after: Expiry | None = None
    webhook: WebhookIn | None = None


@router.post("", openapi_extra={"requestBody": BATCH_BODY}, responses={200: BATCH}, response_model=None)
async def create(request: Request, caller: Who, key: KeyHeader = None) -> Response:
    """Starts the work on a file of requests; it is looked through first."""
    state = accepting(request)
    payload = await read_json(request, state.settings.max_body_bytes)
    try:
        asked = BatchIn.model_validate(payload)
    except ValidationError as error:
        raise fault_of(error.errors(include_url=False)) from error
    webhook = asked.webhook.model_dump(exclude_none=True) if asked.webhook else None
    if webhook is not None:
        check_own(webhook, state.guard)
    made = await state.batches.create(
        caller,
        asked.input_file_id,
        asked.endpoint,
        asked.completion_window,
        asked.metadata,
        key,
        output_lasts_s=asked.output_expires_after.seconds if asked.output_expires_after else OUTPUT_S,
        webhook=webhook,
    )
    return Json(batch_view(made))


@router.get("", responses={200: BATCH_PAGE}, response_model=None)
async def index(
    state: Shared,
    tenant: Tenant,
    after: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Response:
    """The tenant's own batches, the newest first, page by page; `after` is the last id of the page before."""
    found = await state.batches.list(tenant, after, limit)
    more = len(found) == limit and bool(await state.batches.list(tenant, found[-1].id, 1))
    return Json(list_view([batch_view(batch) for batch in found], has_more=more))


@router.get("/{batch_id}", responses={200: BATCH}, response_model=None)
async def read(state: Shared, tenant: Tenant, batch_id: str) -> Response:
    """The batch as it is."""
    return Json(batch_view(await state.batches.get(tenant, batch_id)))


@router.get("/{batch_id}/results", responses={200: BATCH_RESULTS}, response_model=None)
async def results(
    state: Shared, tenant: Tenant, batch_id: str, after: Annotated[int, Query(ge=0, le=MOST_AFTER)] = 0
) -> Response:
    """What the batch has while it runs, as lines of its files: the next after `next` of the answer before."""
    lines, following = await state.batches.results(tenant, batch_id, after)
    body = b'{"object":"list","data":[%b],"next":"%d"}' % (b",".join(lines), following)
    return Response(body, media_type="application/json")


@router.post("/{batch_id}/cancel", responses={200: BATCH}, response_model=None)
async def cancel(state: Shared, tenant: Tenant, batch_id: str) -> Response:
    """Ends the batch early; what was answered by then is in its files."""
    return Json(batch_view(await state.batches.cancel(tenant, batch_id)))
