"""Over HTTP: the front door's `/v1/jobs`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

from fairlane.errors import FairlaneError
from fairlane.job import Job, Json
from producer.client.door import Door
from producer.client.http_archive import HttpArchive
from producer.client.http_postbox import HttpPostbox
from producer.client.refusals import foreign, refusal
from producer.client.sse import Event, events_of, whole_answer
from producer.client.submission import Submission
from producer.client.transport import Page

GRACE_S: Final = 10.0  # for an answer that waits, after its time
WAITS_MOST: Final = 500  # at once: a process often may have 1,024 files open
CROWDED_S: Final = 10.0  # of each wait, when others queue behind it
PAGE_JOBS: Final = 100
EVENTS: Final = "text/event-stream"


class HttpTransport:
    """`url` may end in `/v1`, as OpenAI's does."""

    most_waits = 64

    def __init__(self, url: str, api_key: str | None, tenant: str | None) -> None:
        self._tenant = tenant
        self._waits = asyncio.Semaphore(WAITS_MOST)
        self._door = Door(url, api_key)
        self.archive = HttpArchive(self._door)
        self.postbox = HttpPostbox(self._door, tenant)

    async def submit(self, asked: Submission) -> str:
        return cast(str, (await self._door.call("POST", "/v1/jobs", self._wire(asked)))["id"])

    async def submit_many(self, asked: Sequence[Submission]) -> list[str | FairlaneError]:
        body = b'{"jobs":[' + b",".join(map(self._wire, asked)) + b"]}"
        answers = (await self._door.call("POST", "/v1/jobs", body))["jobs"]
        if len(answers) != len(asked):
            raise foreign(f"{len(answers)} answers to {len(asked)} jobs", 200)
        return [one["id"] if "id" in one else _refusal_of_one(one) for one in answers]

    async def job(self, job_id: str, wait_s: float = 0.0) -> Job:
        if not wait_s:
            return _job(await self._door.call("GET", _path(job_id)))
        async with self._waits:
            wait_s = min(wait_s, CROWDED_S) if self._waits.locked() else wait_s
            return _job(await self._door.call("GET", f"{_path(job_id)}?wait={wait_s:.3f}", answer_s=wait_s + GRACE_S))

    async def events(self, job_id: str, after: str | None) -> AsyncGenerator[Event]:
        headers = {"accept": EVENTS} | ({"last-event-id": after} if after else {})
        async with (
            self._door.streamed(f"{_path(job_id)}/stream", headers) as answer,
            aclosing(answer.pieces) as pieces,
        ):
            if answer.kind == EVENTS:
                async for event in events_of(pieces):
                    yield event
            else:
                for event in whole_answer(b"".join([piece async for piece in pieces])):
                    yield event

    async def cancel(self, job_id: str) -> Job:
        return _job(await self._door.call("DELETE", _path(job_id)))

    async def requeue(self, job_id: str) -> Job:
        return _job(await self._door.call("POST", f"{_path(job_id)}/requeue"))

    async def page(self, state: str | None, tier: str | None, cursor: str | None) -> Page:
        asked = {"state": state, "tier": tier, "cursor": cursor, "limit": str(PAGE_JOBS)}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        page = await self._door.call("GET", f"/v1/jobs?{query}")
        return Page([_job(one) for one in page["data"]], page["next_cursor"])

    async def explain(self, job_id: str) -> Mapping[str, Json]:
        return await self._door.call("GET", f"{_path(job_id)}/explain")

    async def close(self) -> None:
        await self._door.close()

    def _wire(self, asked: Submission) -> bytes:
        if asked.tenant is not None or self._tenant is None:
            return asked.wire
        return asked.wire[:-1] + b',"tenant":' + json.dumps(self._tenant).encode() + b"}"


def _path(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


def _job(raw: dict[str, Any]) -> Job:
    try:
        return Job.parse(raw)
    except ValueError as error:
        raise foreign(str(raw), 200) from error


def _refusal_of_one(said: Mapping[str, Any]) -> FairlaneError:
    """One job's refusal within a list: there is no status, but what may be tried again says when."""
    return refusal(said, 429 if "retry_after" in said["error"] else 400)
