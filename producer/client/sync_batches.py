"""`client.files` and `client.batches` for code without an event loop: thin faces, as sync.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from fairlane.job import Json
from producer.client.batch import AsyncBatchHandle, Watcher
from producer.client.batches import ENDPOINT, WINDOW, AsyncBatches, Requests, Terms, prepared
from producer.client.content import Content
from producer.client.files import AsyncFiles, Source, opened
from producer.client.portal import Portal
from producer.client.records import Batch, BatchItem, BatchStatus, File, LineError, Progress


class Files:
    """As AsyncFiles."""

    def __init__(self, portal: Portal, files: AsyncFiles) -> None:
        self._portal = portal
        self._files = files

    def upload(self, source: Source, *, filename: str | None = None, purpose: str = "batch") -> File:
        """As AsyncFiles.upload; an iterable is read in the caller's thread."""
        content = _filled(opened(source, filename))
        return self._portal.call(partial(self._files.send, content, purpose))

    def get(self, file_id: str) -> File:
        """What is known of a file. Raises NotFound."""
        return self._portal.call(partial(self._files.get, file_id))

    def list(self, *, purpose: str | None = None) -> Iterator[File]:
        """The tenant's files, the newest first, read page by page."""
        return self._portal.iterate(self._files.list(purpose=purpose))

    def content(self, file_id: str) -> Iterator[bytes]:
        """The file's bytes, piece by piece. A broken connection is taken up again where it broke. Raises NotFound."""
        return self._portal.iterate(self._files.content(file_id))

    def lines(self, file_id: str) -> Iterator[Json]:
        """What the lines of a JSONL file hold, one after the other."""
        return self._portal.flat(self._files.parts(file_id))

    def delete(self, file_id: str) -> None:
        """Deletes a file. Raises NotFound."""
        self._portal.call(partial(self._files.delete, file_id))


class BatchHandle:
    """One batch, as AsyncBatchHandle."""

    def __init__(self, portal: Portal, handle: AsyncBatchHandle) -> None:
        self._portal = portal
        self._behind = handle

    @property
    def id(self) -> str:
        return self._behind.id

    def batch(self) -> Batch:
        """All about the batch, as it is now. Raises NotFound."""
        return self._portal.call(self._behind.batch)

    def status(self) -> BatchStatus:
        """Its status now."""
        return self._portal.call(self._behind.status)

    def progress(self) -> Progress:
        """How far it is now. The rate, and so the time left, are known from the second look on."""
        return self._portal.call(self._behind.progress)

    def cancel(self) -> Batch:
        """Cancels what was not answered yet. Repeatable. Raises IllegalTransition if the batch has ended otherwise."""
        return self._portal.call(self._behind.cancel)

    def watch(self, timeout: float | None = None) -> Iterator[Progress]:
        """How far the batch is, each time it is looked at, until it is finished. Raises WaitTimeout, NotFound."""
        return self._portal.iterate(self._behind.watch(timeout))

    def wait(self, timeout: float | None = None, *, progress: Watcher | None = None) -> Batch:
        """As AsyncBatchHandle.wait; `progress` is called in the caller's thread."""
        if progress is None:
            return self._portal.call(partial(self._behind.wait, timeout))
        *_, last = (self._told(progress, look) for look in self.watch(timeout))
        return last

    def results(self, *, ordered: bool = True, timeout: float | None = None) -> Iterator[BatchItem]:
        """As AsyncBatchHandle.results."""
        return self._portal.flat(self._behind.parts(ordered=ordered, timeout_s=timeout))

    def errors(self) -> Iterator[LineError]:
        """What went wrong in a finished batch: the lines without a good answer, or why its file was refused."""
        return self._portal.iterate(self._behind.errors())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    @staticmethod
    def _told(progress: Watcher, look: Progress) -> Batch:
        progress(look)
        return look.batch


class Batches:
    """As AsyncBatches."""

    def __init__(self, portal: Portal, batches: AsyncBatches) -> None:
        self._portal = portal
        self._batches = batches

    def submit(
        self,
        requests: Requests,
        *,
        endpoint: str | None = None,
        model: str | None = None,
        metadata: Mapping[str, str] | None = None,
        completion_window: str = WINDOW,
        idempotency_key: str | None = None,
        webhook: str | Mapping[str, object] | None = None,
    ) -> BatchHandle:
        """As AsyncBatches.submit; an iterable is read in the caller's thread."""
        terms = Terms(completion_window, metadata, idempotency_key, webhook)
        if isinstance(requests, File):
            create = partial(self._batches.create, requests.id, endpoint or ENDPOINT, terms)
            return BatchHandle(self._portal, self._portal.call(create))
        content, lines = prepared(requests, endpoint, model)
        content = _filled(content)
        return BatchHandle(self._portal, self._portal.call(partial(self._batches.send, content, lines.endpoint, terms)))

    def get(self, batch_id: str) -> BatchHandle:
        """The handle of a batch that was submitted before, by whatever process. Nothing is asked yet."""
        return BatchHandle(self._portal, self._batches.get(batch_id))

    def list(self) -> Iterator[Batch]:
        """The tenant's batches, the newest first, read page by page."""
        return self._portal.iterate(self._batches.list())


def _filled(content: Content) -> Content:
    for _ in content.fill():
        pass
    return content
