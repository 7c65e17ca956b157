"""A streamed answer: its chunks as they come, through broken connections, none lost and none twice."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from fairlane.errors import FairlaneError, Refused
from fairlane.job import Json
from producer.client.giving_up import give_up, submit_own
from producer.client.outcome import result_of
from producer.client.patience import pause_s
from producer.client.refusals import refusal
from producer.client.session import Session
from producer.client.sse import DONE, Event
from producer.client.submission import Submission

SAID_MOST: Final = 200  # characters of what is no chunk
FINAL: Final = 500  # the status of an error that is told in the midst of an answer with a code that is not ours
_PLACE: Final = re.compile(r"position (\d+)")


@dataclass
class _Reading:
    """How far a stream was read. `owned`: nobody else waits for the job, so it is cancelled when nobody reads on."""

    owned: bool
    job_id: str | None = None
    last_event_id: str | None = None
    position: int | None = None
    ended: bool = False


class AsyncStream:
    """The chunks of one answer, each a dict as the backend sent it. An async iterator, and a context manager.

    A broken connection is taken up again where it broke, for as long as the client's `retry_for_s` lets it be silent.
    Iterating raises JobFailed, JobCancelled, JobExpired; StreamBroken if the answer began anew elsewhere when a part of
    it had been read; and what `submit` raises. `Client.stream` submits its job at the first chunk, and cancels it if
    the stream is closed, or forgotten, before its end.
    """

    def __init__(self, session: Session, asked: Submission | str, after: str | None = None) -> None:
        """A job to submit, or the id of one that was submitted."""
        owned = isinstance(asked, Submission)
        self._at = _Reading(owned, None if isinstance(asked, Submission) else asked, after)
        # it must not refer to this object: then it ends with it
        self._chunks = _chunks(session, self._at, asked)

    @property
    def id(self) -> str | None:
        """The job's id; None before it is submitted."""
        return self._at.job_id

    @property
    def position(self) -> int | None:
        """The job's place in the queue, as it was last said; None once it runs."""
        return self._at.position

    @property
    def last_event_id(self) -> str | None:
        """After which event `AsyncHandle.stream` would go on, in whatever process."""
        return self._at.last_event_id

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Mapping[str, Json]:
        return await anext(self._chunks)

    async def aclose(self) -> None:
        """Reads no more. A job of `Client.stream` that goes on is cancelled."""
        await self._chunks.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _chunks(session: Session, at: _Reading, asked: Submission | str) -> AsyncGenerator[Mapping[str, Json]]:
    try:
        if isinstance(asked, Submission):
            at.job_id = await submit_own(session, asked)
        async with aclosing(_followed(session, at, cast(str, at.job_id))) as chunks:
            async for chunk in chunks:
                yield chunk
    finally:
        if at.owned and at.job_id and not at.ended:
            await give_up(session, at.job_id)


async def _followed(session: Session, at: _Reading, job_id: str) -> AsyncGenerator[Mapping[str, Json]]:
    """Ends at [DONE]; or where the events end, if the job was known to be finished before they were asked for.

    (`whole`: the answer was no stream, and came at once.)
    """
    heard_at, tries, finished, whole = time.monotonic(), 0, False, False
    while True:
        trouble: FairlaneError | None = None
        try:
            async with aclosing(session.transport.events(job_id, at.last_event_id)) as events:
                async for event in events:
                    if event.data == DONE:
                        at.ended = True
                        return
                    chunk = _chunk(event)  # an error that it tells of is no sign of life
                    heard_at, tries = time.monotonic(), 0
                    at.last_event_id = event.id or at.last_event_id
                    at.position = _place(event)
                    if chunk is not None:
                        whole = event.id is None
                        yield chunk
        except FairlaneError as error:
            trouble = error
        job = await session.ask(lambda to: to.job(job_id))
        if job.finished and job.state != "succeeded":
            at.ended = True
            result_of(job)
        if (finished and not trouble) or (whole and job.finished):
            at.ended = True
            return
        finished = job.finished
        if trouble:
            tries += 1
            pause = pause_s(tries, trouble.retry_after)
            if not trouble.retryable or time.monotonic() + pause > heard_at + session.retry_for_s:
                raise trouble
            await asyncio.sleep(pause)


def _chunk(event: Event) -> Mapping[str, Json] | None:
    """What an event holds; None for a comment. Raises the error that it tells of."""
    if event.data is None:
        return None
    try:
        said: object = json.loads(event.data)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise Refused(f"This is no chunk: {event.data[:SAID_MOST]}", code="unexpected_answer", status=FINAL)
    chunk = cast("dict[str, Any]", said)
    if chunk.get("error"):
        raise refusal(chunk, FINAL)
    return chunk


def _place(event: Event) -> int | None:
    found = _PLACE.search(event.comment)
    return int(found[1]) if found else None
