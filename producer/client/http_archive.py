"""Over HTTP: the front door's `/v1/files` and `/v1/batches`."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from fairlane.errors import FairlaneError
from producer.client.archive import BatchOrder, Listed, Partial
from producer.client.content import Content
from producer.client.door import Door
from producer.client.records import Batch, BatchItem, File
from producer.client.refusals import foreign

STORED_S: Final = 120.0  # for the answer to a whole file
PAGE: Final = 100
PARTIAL_OK: Final = 206
ABSENT: Final = frozenset({404, 405, 409, 501})
T = TypeVar("T")


class HttpArchive:
    """OpenAI's endpoints, as ours has them."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def upload(self, content: Content, purpose: str) -> File:
        boundary = secrets.token_hex(16)
        before, after = _around(boundary, content.filename, purpose)
        headers = {
            "content-type": f"multipart/form-data; boundary={boundary}",
            "content-length": str(len(before) + content.size + len(after)),
        }

        async def body() -> AsyncGenerator[bytes]:
            yield before
            async with aclosing(content.pieces()) as pieces:
                async for piece in pieces:
                    yield piece
            yield after

        return _read(File.parse, await self._door.call("POST", "/v1/files", body(), STORED_S, headers))

    async def file(self, file_id: str) -> File:
        return _read(File.parse, await self._door.call("GET", _path("files", file_id)))

    async def files(self, purpose: str | None, after: str | None) -> Listed[File]:
        return await self._listed(File.parse, "files", {"purpose": purpose, "after": after})

    async def delete(self, file_id: str) -> None:
        await self._door.call("DELETE", _path("files", file_id))

    async def content(self, file_id: str, start: int) -> AsyncGenerator[bytes]:
        headers = {"range": f"bytes={start}-"} if start else {}
        async with (
            self._door.streamed(f"{_path('files', file_id)}/content", headers) as answer,
            aclosing(answer.pieces) as pieces,
        ):
            skip = 0 if answer.status == PARTIAL_OK else start
            async for piece in pieces:
                if len(piece) > skip:
                    yield piece[skip:]
                skip = max(0, skip - len(piece))

    async def create(self, order: BatchOrder) -> Batch:
        fields = {
            "input_file_id": order.input_file_id,
            "endpoint": order.endpoint,
            "completion_window": order.completion_window,
            "metadata": order.metadata,
            "webhook": order.webhook,
        }
        body = json.dumps({name: value for name, value in fields.items() if value is not None}).encode()
        headers = {"idempotency-key": order.idempotency_key}
        return _read(Batch.parse, await self._door.call("POST", "/v1/batches", body, headers=headers))

    async def batch(self, batch_id: str) -> Batch:
        return _read(Batch.parse, await self._door.call("GET", _path("batches", batch_id)))

    async def batches(self, after: str | None) -> Listed[Batch]:
        return await self._listed(Batch.parse, "batches", {"after": after})

    async def cancel(self, batch_id: str) -> Batch:
        return _read(Batch.parse, await self._door.call("POST", f"{_path('batches', batch_id)}/cancel"))

    async def partial(self, batch_id: str, after: str | None) -> Partial | None:
        query = "" if after is None else f"?{urlencode({'after': after})}"
        try:
            said = await self._door.call("GET", f"{_path('batches', batch_id)}/results{query}")
        except FairlaneError as error:
            if error.status in ABSENT:
                return None
            raise
        return Partial([_read(BatchItem.parse, one) for one in said["data"]], said.get("next"))

    async def _listed(
        self, parse: Callable[[Mapping[str, Any]], T], what: str, asked: Mapping[str, str | None]
    ) -> Listed[T]:
        query = urlencode({"limit": PAGE} | {name: value for name, value in asked.items() if value is not None})
        said = await self._door.call("GET", f"/v1/{what}?{query}")
        data: list[dict[str, Any]] = said["data"]
        return Listed([_read(parse, one) for one in data], data[-1]["id"] if data and said["has_more"] else None)


def _read(parse: Callable[[Mapping[str, Any]], T], raw: Mapping[str, Any]) -> T:
    try:
        return parse(raw)
    except ValueError as error:
        raise foreign(str(raw), 200) from error


def _path(what: str, id_: str) -> str:
    return f"/v1/{what}/{quote(id_, safe='')}"


def _around(boundary: str, filename: str, purpose: str) -> tuple[bytes, bytes]:
    """What stands before the content in a multipart form, and what after it, as browsers write it."""
    name = filename.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    before = (
        f'--{boundary}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\n{purpose}\r\n'
        f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n'
        "content-type: application/octet-stream\r\n\r\n"
    )
    return before.encode(), f"\r\n--{boundary}--\r\n".encode()
