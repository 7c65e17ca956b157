"""`/v1/files`: upload, list, look, read, delete, as OpenAI has them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from fairlane.errors import InvalidRequest, PayloadTooLarge
from fairlane.files import Draft, FileView
from producer.api.answers import Json
from producer.api.body import discard
from producer.api.documents import RESPONSES
from producer.api.file_documents import CONTENT, DELETED, FILE, FILE_PAGE, UPLOAD
from producer.api.file_form import FileForm
from producer.api.identity import Tenant
from producer.api.multipart import Part, read_form
from producer.api.state import Shared, State, accepting

MOST: Final = 200_000_000  # bytes of one file
LISTED: Final = 10_000

router = APIRouter(prefix="/v1/files", tags=["files"], responses=RESPONSES)


@router.post("", openapi_extra={"requestBody": UPLOAD}, responses={200: FILE}, response_model=None)
async def create(request: Request, tenant: Tenant) -> Response:
    """Takes in a file of up to 200 MB, as a form with the parts `purpose` and `file`."""
    state = accepting(request)
    _check_site(request)
    try:
        return Json(file_view(await _take_in(state, tenant, request)))
    except PayloadTooLarge:
        await discard(request, MOST)
        raise


@router.get("", responses={200: FILE_PAGE}, response_model=None)
async def index(
    state: Shared,
    tenant: Tenant,
    after: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=LISTED)] = LISTED,
    order: Literal["asc", "desc"] = "desc",
    purpose: Annotated[str | None, Query(max_length=64)] = None,
) -> Response:
    """The tenant's own files, page by page; `after` is the last id of the page before."""
    page = await state.files.list(tenant, after=after, limit=limit, order=order, purpose=purpose)
    return Json(list_view([file_view(file) for file in page.files], has_more=page.has_more))


@router.get("/{file_id}", responses={200: FILE}, response_model=None)
async def read(state: Shared, tenant: Tenant, file_id: str) -> Response:
    """What is known of a file."""
    return Json(file_view(await state.files.get(tenant, file_id)))


@router.get("/{file_id}/content", responses={200: CONTENT}, response_model=None)
async def content(state: Shared, tenant: Tenant, file_id: str) -> Response:
    """What the file holds, byte by byte."""
    file = await state.files.get(tenant, file_id)
    pieces = state.files.read(file)
    first = await anext(pieces, b"")  # what cannot be read is refused before the answer begins
    headers = {
        "content-length": str(file.bytes),
        "content-disposition": f"attachment; filename*=UTF-8''{quote(file.filename, safe='')}",
        "x-content-type-options": "nosniff",
    }
    kind = "application/jsonl" if file.purpose.startswith("batch") else "application/octet-stream"
    return StreamingResponse(_all(first, pieces), headers=headers, media_type=kind)


@router.delete("/{file_id}", responses={200: DELETED}, response_model=None)
async def delete(state: Shared, tenant: Tenant, file_id: str) -> Response:
    """Deletes a file for good."""
    await state.files.delete(tenant, file_id)
    return Json({"id": file_id, "object": "file", "deleted": True})


def file_view(file: FileView) -> dict[str, Any]:
    """OpenAI's file object."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at_ms // 1000,
        "expires_at": None if file.expires_at_ms is None else file.expires_at_ms // 1000,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def list_view(data: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """OpenAI's list object."""
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": has_more}


def _check_site(request: Request) -> None:
    """A browser lets any page send a form anywhere, without asking us first; but it says so."""
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise InvalidRequest("Files are not taken from another site's page.", param="sec-fetch-site")


async def _take_in(state: State, tenant: str, request: Request) -> FileView:
    """Writes the file while it comes in; whatever goes wrong, nothing of it is left."""
    form = FileForm()
    draft: Draft | None = None
    async with AsyncExitStack() as stack, aclosing(read_form(request, MOST)) as pieces:
        async for piece in pieces:
            if not isinstance(piece, Part):
                if form.in_file and draft:
                    await draft.write(piece)
                else:
                    form.add(piece)
                continue
            form.begin(piece)
            if form.in_file:
                draft = await stack.enter_async_context(state.files.draft(MOST))
        asked = form.end()
        assert draft is not None  # noqa: S101  # the form has its file
        return await draft.keep(tenant, asked.filename, asked.purpose, expires_after_s=asked.expires_after_s)


async def _all(first: bytes, pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(pieces):
        if first:
            yield first
        async for piece in pieces:
            yield piece
