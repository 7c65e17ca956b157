"""AsyncClient: submit jobs, wait for them, cancel them; over HTTP or straight to Redis."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from fairlane.job import Job, JobState, Json
from producer.client.batches import AsyncBatches
from producer.client.bulk import CHUNK_JOBS, Bulk, Item, chunks, count_of
from producer.client.files import AsyncFiles
from producer.client.finishing import as_completed
from producer.client.handle import AsyncHandle
from producer.client.mapping import BUFFER, Asking, Window, requests_of
from producer.client.session import Session
from producer.client.stream import AsyncStream
from producer.client.submission import Submission, asking, streamed, submission
from producer.client.transport import transport_for
from producer.client.webhooks import AsyncWebhooks

Progress = Callable[[int, int | None], object]


class AsyncClient:
    """A client of the front door (`http(s)://`) or of the Redis behind it (`redis://`, `redis+cluster://` …).

    `api_key` is for HTTP; over Redis `tenant` says whose the jobs are (`anonymous` if not given), and `namespace` is
    that of the installation. What may pass (no connection, 429, 502, 503, 504) is tried again for `retry_for_s`
    seconds, never sooner than `Retry-After` says. It connects on first use; use it as a context manager, or close it.
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
        self._talk(Session(lambda: transport_for(url, api_key, tenant, namespace), retry_for_s))

    def _talk(self, session: Session) -> None:
        self._session = session
        self.files = AsyncFiles(session)
        self.batches = AsyncBatches(session)
        self.webhooks = AsyncWebhooks(session)

    @asking(submission)
    async def submit(self, asked: Submission) -> AsyncHandle:
        """Submits one job. Raises InvalidRequest, UnknownTier, ModelNotFound, QueueFull and others of FairlaneError."""
        return await self.send(asked)

    async def send(self, asked: Submission) -> AsyncHandle:
        """`submit`, of what is ready to be sent."""
        return AsyncHandle(self._session, await self._session.ask(lambda to: to.submit(asked)))

    @asking(submission)
    def stream(self, asked: Submission) -> AsyncStream:
        """Submits one job, and yields the chunks of its answer as they come: `async for chunk in client.stream(…)`."""
        return self.follow(asked)

    def follow(self, asked: Submission) -> AsyncStream:
        """`stream`, of what is ready to be sent."""
        return AsyncStream(self._session, streamed(asked))

    async def submit_many(
        self, items: Iterable[Item], *, progress: Progress | None = None, chunk: int = CHUNK_JOBS
    ) -> list[AsyncHandle]:
        """Submits many jobs, each the arguments of `submit` as a dict, or a JobRequest. Handles in the same order.

        Each job is taken in or refused on its own: the handle of one that was refused has an `error`. Jobs that are
        refused for now (the queue is full) are repeated while others are taken in, and for `retry_for_s` seconds after;
        then they, and all that follow, are refused. `items` is taken `chunk` jobs at a time; after each of these
        `progress(done, total)` is called, `total` None if `items` has no length.
        """
        handles: list[AsyncHandle] = []
        async with self.bulk() as bulk:
            for part in chunks(items, chunk):
                handles += (landed := await bulk.feed(part))
                tell(progress, len(handles), landed, items)
            handles += (landed := await bulk.landed())
            tell(progress, len(handles), landed, items)
        return handles

    def bulk(self) -> Bulk:
        """What sends chunks of jobs, for those who drive it themselves."""
        return Bulk(self._session)

    def as_completed(
        self,
        handles: Iterable[AsyncHandle],
        timeout: float | None = None,
    ) -> AsyncGenerator[AsyncHandle]:
        """Yields the handles as their jobs finish. Raises WaitTimeout if not all did after `timeout` seconds.

        One whose job was refused, or cannot be found any more, is yielded too: its `result` raises why.
        """
        return as_completed(self._session, handles, timeout)

    async def map(
        self,
        fn_or_requests: Asking,
        *iterables: Iterable[Any],
        timeout: float | None = None,  # noqa: ASYNC109
        buffersize: int = BUFFER,
        return_exceptions: bool = False,
    ) -> AsyncGenerator[Json]:
        """The answers to many requests, in their order, as `concurrent.futures.Executor.map` gives results.

        Takes the requests themselves (dicts with the arguments of `submit`, or JobRequests), or a function and the
        items that it makes requests of: `map(lambda text: {"model": "m", "prompt": text}, texts)`. At most `buffersize`
        of them are under way, or answered and not yet taken; so items may be endless.

        A request without a good answer raises what `result` would, when its turn comes; with `return_exceptions` the
        error stands in the answer's place. At an error, after `timeout` seconds since the first answer was asked for
        (WaitTimeout), and when it is closed before the end, the jobs that are under way are cancelled.
        """
        window = self.window(buffersize, timeout, return_exceptions=return_exceptions)
        try:
            for request in requests_of(fn_or_requests, iterables):
                await window.add(request)
                if window.full:
                    yield await window.take()
            while window:
                yield await window.take()
        finally:
            await window.close()

    def window(self, buffersize: int, timeout_s: float | None, *, return_exceptions: bool) -> Window:
        """What `map` works with, for those who drive it themselves."""
        return Window(self._session, buffersize, timeout_s, return_exceptions=return_exceptions)

    def get(self, job_id: str) -> AsyncHandle:
        """The handle of a job that was submitted before, by whatever client. Nothing is asked yet."""
        return AsyncHandle(self._session, job_id)

    async def cancel(self, job_id: str) -> Job:
        """Cancels a job, unless it is finished; returns it as it is then. Raises NotFound."""
        return await self.get(job_id).cancel()

    async def jobs(self, *, state: JobState | None = None, tier: str | None = None) -> AsyncGenerator[Job]:
        """The tenant's jobs, without their results, read page by page. HTTP only: raises NotSupported."""
        cursor: str | None = None
        while True:
            at = cursor
            page = await self._session.ask(lambda to: to.page(state, tier, at))  # noqa: B023
            for job in page.jobs:
                yield job
            if (cursor := page.cursor) is None:
                return

    async def explain(self, job_id: str) -> Mapping[str, Json]:
        """Why a job waits: `position`, `ahead`, `gate` and `estimated_start_s`, as the front door says it."""
        return await self._session.ask(lambda to: to.explain(job_id))

    async def close(self) -> None:
        """Ends the connections. The jobs go on."""
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def tell(progress: Progress | None, done: int, landed: Sequence[AsyncHandle], items: Iterable[Item]) -> None:
    """Reports a chunk that has landed."""
    if progress and landed:
        progress(done, count_of(items))
