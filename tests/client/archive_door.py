"""A front door with files and batches alone, over the fake's own, and with faults that a test asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fairlane.errors import FairlaneError
from producer.client.archive import BatchOrder, Listed
from producer.client.content import Content
from producer.client.script import Script
from producer.client.scripted_archive import ScriptedArchive

PAGE = 2


class Lost(Response):
    """The connection breaks before the answer is whole."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"99999")]})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})


@dataclass
class ArchiveDoor:
    """`lose` counts the answers that are lost after the work was done; `cut` contents end after so many bytes."""

    script: Script = field(default_factory=lambda: Script("Hello.", []))
    lose: int = 0
    cut: list[int] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    parts: list[list[dict[str, Any]]] = field(default_factory=list)
    statuses: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.archive = ScriptedArchive(self.script)

    def app(self) -> Starlette:
        routes = [
            ("/v1/files", "POST", self._upload),
            ("/v1/files", "GET", self._files),
            ("/v1/files/{id}", "GET", self._file),
            ("/v1/files/{id}", "DELETE", self._delete),
            ("/v1/files/{id}/content", "GET", self._content),
            ("/v1/batches", "POST", self._create),
            ("/v1/batches", "GET", self._batches),
            ("/v1/batches/{id}", "GET", self._batch),
            ("/v1/batches/{id}/cancel", "POST", self._cancel),
            ("/v1/batches/{id}/results", "GET", self._results),
        ]
        return Starlette(routes=[Route(path, self._said(act), methods=[method]) for path, method, act in routes])

    def _said(self, act: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                said = await act(request)
            except FairlaneError as error:
                return JSONResponse({"error": {"code": error.code, "message": error.message}}, error.status)
            if self.lose and request.method == "POST":
                self.lose -= 1
                return Lost()
            return said if isinstance(said, Response) else JSONResponse(said)

        return answer

    async def _upload(self, request: Request) -> Any:
        form = await request.form()
        file: Any = form["file"]
        content = Content.of_bytes(await file.read(), file.filename)
        await file.close()
        return (await self.archive.upload(content, str(form["purpose"]))).raw

    async def _files(self, request: Request) -> Any:
        return _page(await self.archive.files(request.query_params.get("purpose"), None), request)

    async def _file(self, request: Request) -> Any:
        return (await self.archive.file(request.path_params["id"])).raw

    async def _delete(self, request: Request) -> Any:
        await self.archive.delete(request.path_params["id"])
        return {"deleted": True}

    async def _content(self, request: Request) -> Any:
        self.ranges.append(request.headers.get("range"))
        data = b"".join([piece async for piece in self.archive.content(request.path_params["id"], 0)])
        if self.cut:
            return Lost(data[: self.cut.pop(0)])
        return StreamingResponse(_pieces(data))

    async def _create(self, request: Request) -> Any:
        asked = await request.json()
        self.keys.append(request.headers["idempotency-key"])
        order = BatchOrder(**{"metadata": None, **asked}, idempotency_key=request.headers["idempotency-key"])
        return (await self.archive.create(order)).raw

    async def _batches(self, request: Request) -> Any:
        return _page(await self.archive.batches(None), request)

    async def _batch(self, request: Request) -> Any:
        raw = (await self.archive.batch(request.path_params["id"])).raw
        return {**raw, **self.statuses.pop(0)} if self.statuses else raw

    async def _cancel(self, request: Request) -> Any:
        return (await self.archive.cancel(request.path_params["id"])).raw

    async def _results(self, request: Request) -> Any:
        at = int(request.query_params.get("after", 0))
        if not self.parts:
            return JSONResponse({"error": {"code": "not_found", "message": "No."}}, 404)
        return {"data": self.parts[at] if at < len(self.parts) else [], "next": str(at + 1)}


def _page(listed: Listed[Any], request: Request) -> Any:
    data = [one.raw for one in listed.data]
    ids = [one["id"] for one in data]
    after = request.query_params.get("after")
    start = ids.index(after) + 1 if after else 0
    page = data[start : start + PAGE]
    return {"object": "list", "data": page, "has_more": start + PAGE < len(data)}


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 7):
        yield data[at : at + 7]
        await asyncio.sleep(0)


def line(custom_id: str) -> dict[str, Any]:
    """An outcome, as a batch's output file has it."""
    return {"custom_id": custom_id, "response": {"status_code": 200, "body": {}}, "error": None}
