"""Streamed answers over HTTP: server-sent events that say their position, keep-alives, errors after the first byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

import structlog
from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from fairlane import sse, strictjson
from fairlane.errors import FairlaneError, StoreUnavailable, StreamBroken
from fairlane.model import Job
from fairlane.queue.streams import Position
from producer.api.errors import error_body, error_response
from producer.api.outcome import answer, error_of, is_backends_own, origin, origin_headers
from producer.api.presence import CLOSED, gone, unless_gone
from producer.api.protocol import ABORT
from producer.api.state import State
from producer.streaming import Ended, Event, Item, Pause

Transform = Callable[[bytes], bytes]
Tell = Callable[[dict[str, Any]], bytes]
HEADERS: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}  # who stands before us must not hold it up
STALLED_S: Final = 60.0  # how long a caller may take nothing
PIECE: Final = 16 << 10  # bytes that count as something
log = structlog.get_logger()


def openai_error(error: dict[str, Any]) -> bytes:
    """The event that tells of a failure after the first byte: `{"error": {…}}`, as OpenAI's clients know it."""
    return b"data: %b\n\n" % strictjson.dump(error)


async def stream_response(
    request: Request,
    state: State,
    job_id: str,
    *,
    after: Position | None = None,
    cancel_on_disconnect: bool,
    transform: Transform | None = None,
    tell: Tell = openai_error,
) -> Response:
    """The job's events as `text/event-stream`, each with an `id: <token>-<ordinal>`; or, if it ends before its first
    event, what an ordinary request would be answered (its status and body, or the error).

    Headers are held until the job has said something, or 2 s; then comments tell the place in the queue. `transform`
    makes of an event what is sent instead (b"": nothing). `tell` makes of `{"error": {…}}` the event that tells of a
    failure after the first byte. A caller who hangs up cancels the job if `cancel_on_disconnect`.
    """
    job = _Followed(state, job_id, cancel_on_disconnect)
    items = state.streams.events(job_id, after, state.cut)
    try:
        first = await unless_gone(request, _next(items))
    except StoreUnavailable as error:  # the job goes on: its id says where to look for it
        return error_response(error, **{"x-fairlane-job-id": job_id})
    except FairlaneError as error:
        await job.abandon()  # nobody reads it
        return error_response(error, **{"x-fairlane-job-id": job_id})
    except asyncio.CancelledError:  # the server cuts us off
        await asyncio.shield(job.abandon())
        raise
    if first is None:
        await job.abandon()
        return Response(status_code=CLOSED)
    if isinstance(first, Ended) and after is None:
        return answer(first.job)
    headers = HEADERS | await job.origin(first)
    return EventStream(job.sent(first, items, after is not None, transform, tell), job.abandon, headers)


class EventStream(Response):
    """Sends what `parts` gives until it ends, or until the caller hangs up: then `abandon` is called. One who takes
    nothing for STALLED_S has hung up as well: what waits to be sent costs memory."""

    media_type = sse.MEDIA_TYPE

    def __init__(
        self, parts: AsyncGenerator[bytes], abandon: Callable[[], Awaitable[None]], headers: dict[str, str]
    ) -> None:
        super().__init__(None, 200, headers)
        del self.headers["content-length"]
        self._parts = parts
        self._abandon = abandon

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(gone(receive))
        try:
            await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not isinstance(sending.exception(), TimeoutError):
                sending.result()
                return
            if sending.done():
                log.info("stalled", path=scope["path"])
                scope.get("extensions", {}).get(ABORT, lambda: None)()
                await asyncio.wait([leaving], timeout=1.0)
        finally:
            leaving.cancel()
            sending.cancel()
            await asyncio.wait([sending])
            await self._parts.aclose()
        await self._abandon()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for part in self._parts:
            for start in range(0, len(part), PIECE):
                body = part[start : start + PIECE]
                async with asyncio.timeout(STALLED_S):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        async with asyncio.timeout(STALLED_S):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


@dataclass(frozen=True, slots=True)
class _Followed:
    """A job that one caller follows."""

    state: State
    id: str
    is_the_callers: bool

    async def abandon(self) -> None:
        """Cancels the job if it runs for this caller alone."""
        if self.is_the_callers:
            await self.state.abandoned.cancel(self.id)

    async def origin(self, first: Item) -> dict[str, str]:
        """The headers about the job, as far as they are known by now."""
        if isinstance(first, list):
            if told := first[0].origin:
                return origin_headers(self.id, *told)
            with suppress(FairlaneError):
                return origin(await self.state.queue.inspect.outcome(self.id))
        return {"x-fairlane-job-id": self.id}

    async def sent(
        self, first: Item, items: AsyncGenerator[Item], has_begun: bool, transform: Transform | None, tell: Tell
    ) -> AsyncGenerator[bytes]:
        """What goes out, part by part. `has_begun`: the caller has had events before."""
        item: Item | None = first
        try:
            while item is not None:
                match item:
                    case Pause():
                        yield await self._comment()
                    case Ended(job):
                        yield _last_word(job, has_begun, tell)
                    case _:
                        has_begun = True
                        if part := b"".join(_numbered(event, transform) for event in item):
                            yield part
                item = await anext(items, None)
        except FairlaneError as error:
            if isinstance(error, StreamBroken):
                await self.abandon()  # it began anew, and nobody reads that
            yield tell(error_body(error))
        finally:
            await items.aclose()

    async def _comment(self) -> bytes:
        """A keep-alive that tells the place in the queue."""
        try:
            why = await self.state.queue.inspect.explain(self.id)
            if why.state not in ("queued", "delayed"):
                return b": running\n\n"
            pool = await self.state.queue.home(self.id)
            estimate = await self.state.estimates.of(pool, why, None)
            return b": queued, position %d\n\n" % estimate.position
        except FairlaneError:
            return b": queued\n\n"


async def _next(items: AsyncGenerator[Item]) -> Item:
    return await anext(items)


def _numbered(event: Event, transform: Transform | None) -> bytes:
    data = transform(event.data) if transform else event.data
    return sse.with_id(data, str(event.position)) if data else b""


def _last_word(job: Job, has_begun: bool, tell: Tell) -> bytes:
    """After the first byte: nothing if all is well; an answer that was no stream, in one event; or why it failed."""
    if job.state == "succeeded":
        return b"" if has_begun else _as_event(job.result or b"")
    return tell(_backends_error(job) or error_body(error_of(job)))


def _as_event(body: bytes) -> bytes:
    return b"".join(b"data: %b\n" % line for line in body.splitlines()) + b"\n" if body else b""


def _backends_error(job: Job) -> dict[str, Any] | None:
    """The backend's own error, if it is in OpenAI's shape."""
    if not is_backends_own(job):
        return None
    try:
        body: object = json.loads(job.result or b"")
    except (ValueError, RecursionError):
        return None
    known = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    return known if isinstance(known.get("error"), dict) else None
