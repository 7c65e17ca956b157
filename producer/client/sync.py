"""Client: AsyncClient for code without an event loop. A thin face: each call runs in a background thread's loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Self

from fairlane.errors import FairlaneError
from fairlane.job import Job, JobState, Json
from producer.client.bulk import CHUNK_JOBS, Item, chunks
from producer.client.client import AsyncClient, Progress, tell
from producer.client.handle import AsyncHandle
from producer.client.mapping import BUFFER, Asking, requests_of
from producer.client.portal import Portal
from producer.client.stream import AsyncStream
from producer.client.submission import Submission, asking, submission
from producer.client.sync_batches import Batches, Files
from producer.client.sync_webhooks import Webhooks


class Handle:
    """One job, as AsyncHandle."""

    def __init__(self, portal: Portal, handle: AsyncHandle) -> None:
        self._portal = portal
        self.behind = handle

    @property
    def id(self) -> str:
        """The job's id. Raises `error` if the job was refused."""
        return self.behind.id

    @property
    def error(self) -> FairlaneError | None:
        """Why `submit_many` could not submit this job."""
        return self.behind.error

    def job(self) -> Job:
        """All about the job, as it is now."""
        return self._portal.call(self.behind.job)

    def status(self) -> JobState:
        """Its state now."""
        return self._portal.call(self.behind.status)

    def cancel(self) -> Job:
        """Cancels the job, unless it is finished; returns it as it is then."""
        return self._portal.call(self.behind.cancel)

    def requeue(self) -> Job:
        """Puts a dead job, failed at each of its attempts, back into its line. Raises IllegalTransition for others."""
        return self._portal.call(self.behind.requeue)

    def wait(self, timeout: float | None = None) -> Job:
        """The finished job, whatever its outcome. Raises WaitTimeout after `timeout` seconds; None waits for ever."""
        return self._portal.call(partial(self.behind.wait, timeout))

    def result(self, timeout: float | None = None) -> Json:
        """The body of the backend's answer. Raises JobFailed, JobCancelled, JobExpired; WaitTimeout."""
        return self._portal.call(partial(self.behind.result, timeout))

    def stream(self, after: str | None = None) -> Stream:
        """The chunks of a job that was submitted with `stream=True`, from the start or after the event `after`.

        The job goes on, whether they are read or not.
        """
        return Stream(self._portal, self.behind.stream(after))

    def __repr__(self) -> str:
        return repr(self.behind).replace(AsyncHandle.__name__, type(self).__name__, 1)


class Stream:
    """The chunks of one answer, as AsyncStream."""

    def __init__(self, portal: Portal, stream: AsyncStream) -> None:
        self._behind = stream
        self._chunks = portal.iterate(stream)

    @property
    def id(self) -> str | None:
        """The job's id; None before it is submitted."""
        return self._behind.id

    @property
    def position(self) -> int | None:
        """The job's place in the queue, as it was last said; None once it runs."""
        return self._behind.position

    @property
    def last_event_id(self) -> str | None:
        """After which event `Handle.stream` would go on, in whatever process."""
        return self._behind.last_event_id

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Mapping[str, Json]:
        return next(self._chunks)

    def close(self) -> None:
        """Reads no more. A job of `Client.stream` that goes on is cancelled."""
        self._chunks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client:
    """As AsyncClient, for code without an event loop. It may be used by many threads at once.

    Without `close` it ends with the program. After a fork the child makes connections of its own on its first call.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        tenant: str | None = None,
        retry_for_s: float = 60.0,
        namespace: str = "fl",
    ) -> None:
        self._face(AsyncClient(url, api_key, tenant=tenant, retry_for_s=retry_for_s, namespace=namespace))

    def _face(self, client: AsyncClient) -> None:
        self._client = client
        self._portal = Portal(client.close)
        self.files = Files(self._portal, client.files)
        self.batches = Batches(self._portal, client.batches)
        self.webhooks = Webhooks(self._portal, client.webhooks)

    @asking(submission)
    def submit(self, asked: Submission) -> Handle:
        """Submits one job. Raises InvalidRequest, UnknownTier, ModelNotFound, QueueFull and others of FairlaneError."""
        return Handle(self._portal, self._portal.call(partial(self._client.send, asked)))

    @asking(submission)
    def stream(self, asked: Submission) -> Stream:
        """Submits one job, and yields the chunks of its answer as they come: `for chunk in client.stream(…)`."""
        return Stream(self._portal, self._client.follow(asked))

    def submit_many(
        self, items: Iterable[Item], *, progress: Progress | None = None, chunk: int = CHUNK_JOBS
    ) -> list[Handle]:
        """As AsyncClient.submit_many; `items` is taken, and `progress` is called, in the caller's thread."""
        handles: list[Handle] = []
        bulk = self._client.bulk()

        def land(landed: list[AsyncHandle]) -> None:
            handles.extend(Handle(self._portal, one) for one in landed)
            tell(progress, len(handles), landed, items)

        try:
            for part in chunks(items, chunk):
                land(self._portal.call(partial(bulk.feed, part)))
            land(self._portal.call(bulk.landed))
        finally:
            self._portal.call(bulk.close)
        return handles

    def as_completed(self, handles: Iterable[Handle], timeout: float | None = None) -> Iterator[Handle]:
        """As AsyncClient.as_completed."""
        faces: dict[AsyncHandle, Handle] = {handle.behind: handle for handle in handles}
        for handle in self._portal.iterate(self._client.as_completed(faces, timeout)):
            yield faces[handle]

    def map(
        self,
        fn_or_requests: Asking,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        buffersize: int = BUFFER,
        return_exceptions: bool = False,
    ) -> Iterator[Json]:
        """As AsyncClient.map; the requests are taken, and the function is called, in the caller's thread."""
        window = self._client.window(buffersize, timeout, return_exceptions=return_exceptions)
        try:
            for request in requests_of(fn_or_requests, iterables):
                self._portal.call(partial(window.add, request))
                if window.full:
                    yield self._portal.call(window.take)
            while window:
                yield self._portal.call(window.take)
        finally:
            with suppress(RuntimeError):  # the client was closed meanwhile
                self._portal.call(window.close)

    def get(self, job_id: str) -> Handle:
        """The handle of a job that was submitted before, by whatever client. Nothing is asked yet."""
        return Handle(self._portal, self._client.get(job_id))

    def cancel(self, job_id: str) -> Job:
        """Cancels a job, unless it is finished; returns it as it is then. Raises NotFound."""
        return self.get(job_id).cancel()

    def jobs(self, *, state: JobState | None = None, tier: str | None = None) -> Iterator[Job]:
        """The tenant's jobs, without their results, read page by page. HTTP only: raises NotSupported."""
        return self._portal.iterate(self._client.jobs(state=state, tier=tier))

    def explain(self, job_id: str) -> Mapping[str, Json]:
        """Why a job waits: `position`, `ahead`, `gate` and `estimated_start_s`, as the front door says it."""
        return self._portal.call(partial(self._client.explain, job_id))

    def close(self) -> None:
        """Ends the connections and the thread. The jobs go on."""
        self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
