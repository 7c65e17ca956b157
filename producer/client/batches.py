"""Batches, `client.batches`: many requests in one file, done by the next day."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from typing import Final, TypeAlias

from fairlane.errors import FairlaneError, InvalidRequest
from producer.client.archive import BatchOrder
from producer.client.batch import AsyncBatchHandle
from producer.client.bulk import Item
from producer.client.content import Content
from producer.client.files import AsyncFiles
from producer.client.lines import ENDPOINT, Lines, endpoint_of
from producer.client.records import Batch, File
from producer.client.session import Session
from producer.client.submission import KEY_BYTES, hook_of

Requests: TypeAlias = "str | PathLike[str] | File | Iterable[Item]"
NAME: Final = "batch.jsonl"
WINDOW: Final = "24h"


@dataclass(frozen=True, slots=True)
class Terms:
    """What is said of a batch beside its file."""

    completion_window: str
    metadata: Mapping[str, str] | None
    idempotency_key: str | None
    webhook: str | Mapping[str, object] | None

    def order(self, file_id: str, endpoint: str) -> BatchOrder:
        """With a key of its own, if none was given."""
        key = self.idempotency_key or secrets.token_hex(KEY_BYTES)
        return BatchOrder(file_id, endpoint, self.completion_window, self.metadata, key, hook_of(self.webhook))


class AsyncBatches:
    """Batches at the front door. Over Redis each call raises NotSupported."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._files = AsyncFiles(session)

    async def submit(
        self,
        requests: Requests,
        *,
        endpoint: str | None = None,
        model: str | None = None,
        metadata: Mapping[str, str] | None = None,
        completion_window: str = WINDOW,
        idempotency_key: str | None = None,
        webhook: str | Mapping[str, object] | None = None,
    ) -> AsyncBatchHandle:
        """Submits a batch of up to 50,000 requests to one model.

        `requests` is the path of a JSONL file as OpenAI defines it, or a File that was uploaded before, or any iterable
        of requests: whole lines (`custom_id`, `method`, `url`, `body`), or those arguments of `Client.submit` that make
        up a request's body, and a `custom_id` (else `request-<n>`, from 1). Those that name no model are for `model`.
        The `endpoint` follows from the first request, unless it is given; that of a File is chat.

        The same `idempotency_key` and order is the same batch; without one each call has its own, the same over its
        retries. `webhook`, as of `Client.submit`, is told when the batch has ended. The front door looks at the lines
        later: what is wrong in them, `results` and `errors` say. Raises InvalidRequest, PayloadTooLarge, NotFound (the
        File) and others of FairlaneError.
        """
        terms = Terms(completion_window, metadata, idempotency_key, webhook)
        if isinstance(requests, File):
            return await self.create(requests.id, endpoint or ENDPOINT, terms)
        content, lines = prepared(requests, endpoint, model)
        for _ in content.fill():
            await asyncio.sleep(0)  # others have their turn
        return await self.send(content, lines.endpoint, terms)

    async def send(self, content: Content, endpoint: str | None, terms: Terms) -> AsyncBatchHandle:
        """`submit`, of what is ready to be sent; closes it."""
        with content:
            if not (first := content.first_line()).strip():
                raise InvalidRequest("A batch has one request at least.", param="requests")
            named = endpoint or endpoint_of(first)
            file = await self._files.send(content, "batch")
        return await self.create(file.id, named, terms, own_file=True)

    async def create(self, file_id: str, endpoint: str, terms: Terms, *, own_file: bool = False) -> AsyncBatchHandle:
        """A batch of a file that was uploaded; if that was for this order, and it was given before, it is deleted."""
        order = terms.order(file_id, endpoint)
        batch = await self._session.ask(lambda to: to.archive.create(order))
        if own_file and batch.input_file_id != file_id:
            with suppress(FairlaneError):
                await self._files.delete(file_id)
        return AsyncBatchHandle(self._session, batch.id)

    def get(self, batch_id: str) -> AsyncBatchHandle:
        """The handle of a batch that was submitted before, by whatever process. Nothing is asked yet."""
        return AsyncBatchHandle(self._session, batch_id)

    async def list(self) -> AsyncGenerator[Batch]:
        """The tenant's batches, the newest first, read page by page."""
        after: str | None = None
        while True:
            at = after
            page = await self._session.ask(lambda to: to.archive.batches(at))  # noqa: B023
            for batch in page.data:
                yield batch
            if (after := page.after) is None:
                return


def prepared(
    requests: str | PathLike[str] | Iterable[Item], endpoint: str | None, model: str | None
) -> tuple[Content, Lines]:
    """The content to upload, yet to be filled, and what makes its lines. Raises InvalidRequest."""
    lines = Lines(endpoint, model)
    if isinstance(requests, str | PathLike):
        return Content.of_path(requests, None), lines
    return Content.of_pieces((lines.of(item) for item in requests), NAME), lines
