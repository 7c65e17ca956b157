"""Files and batches over a transport: what it must offer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NoReturn, Protocol, TypeVar

from fairlane.errors import NotSupported
from producer.client.content import Content
from producer.client.records import Batch, BatchItem, File

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """Some of a list, the newest first, and after which id to go on; None: that was all."""

    data: Sequence[T]
    after: str | None


@dataclass(frozen=True, slots=True)
class Partial:
    """Outcomes of a batch that were not seen yet, and from where to go on."""

    items: Sequence[BatchItem]
    next: str | None


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """What a batch is made of. The same key and order is the same batch."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: Mapping[str, str] | None
    idempotency_key: str
    webhook: Mapping[str, object] | None = None


class Archive(Protocol):
    """Each call is one try, and safe to repeat (an upload then leaves a file too many). Raises fairlane.errors."""

    async def upload(self, content: Content, purpose: str) -> File: ...

    async def file(self, file_id: str) -> File: ...

    async def files(self, purpose: str | None, after: str | None) -> Listed[File]: ...

    async def delete(self, file_id: str) -> None: ...

    def content(self, file_id: str, start: int) -> AsyncGenerator[bytes]:
        """The bytes of a file from `start` on."""
        ...

    async def create(self, order: BatchOrder) -> Batch: ...

    async def batch(self, batch_id: str) -> Batch: ...

    async def batches(self, after: str | None) -> Listed[Batch]: ...

    async def cancel(self, batch_id: str) -> Batch: ...

    async def partial(self, batch_id: str, after: str | None) -> Partial | None:
        """What a batch has so far; None where that cannot be had, or not any more."""
        ...


def no_archive() -> NoReturn:
    """Raises NotSupported."""
    raise NotSupported("Files and batches are kept by the front door. Give the client its URL (http://…).")
