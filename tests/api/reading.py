"""Reads streamed answers over a socket, event by event, as a browser would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from fairlane import sse
from tests.api.door import CHAT, Served

STREAM = CHAT | {"stream": True}


@dataclass
class Read:
    """One answer as it comes. `events` are those with an id, which is taken off, into `ids`; `comments` the rest."""

    response: httpx.Response
    events: list[bytes] = field(default_factory=list[bytes])
    ids: list[str] = field(default_factory=list[str])
    comments: list[bytes] = field(default_factory=list[bytes])
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def job_id(self) -> str:
        return self.response.headers["x-fairlane-job-id"]

    @property
    def text(self) -> bytes:
        return b"".join(self.events)

    @property
    def error(self) -> dict[str, Any]:
        """The last event's."""
        return json.loads(sse.data_of(self.events[-1]) or b"")["error"]

    async def all(self) -> Read:
        """To the end."""
        await self.until(lambda: False)
        return self

    async def until(self, enough: Callable[[], bool]) -> Read:
        """Until so much came, or the end."""
        if enough():
            return self
        cutter = self._cutter
        async for part in self._parts:
            for event in cutter.cut(part):
                self._keep(event)
            if enough():
                return self
        for event in cutter.rest():
            self._keep(event)
        return self

    def _keep(self, event: bytes) -> None:
        lines = event.split(b"\n")
        numbered = [line for line in lines if line.startswith(b"id: ")]
        if event.startswith(b":") and not numbered:
            self.comments.append(event)
        else:
            self.ids += [line[4:].decode().strip() for line in numbered[-1:]]
            self.events.append(b"\n".join(line for line in lines if line not in numbered[-1:]))

    def __post_init__(self) -> None:
        self._parts = self.response.aiter_raw()
        self._cutter = sse.Cutter()


@asynccontextmanager
async def reading(
    door: Served, method: str = "POST", path: str = "/v1/chat/completions", tenant: str = "ann", **more: Any
) -> AsyncIterator[Read]:
    """A streamed answer, open while the block runs; at its end the caller hangs up."""
    if method == "POST":
        more.setdefault("json", STREAM)
    async with door.client(tenant, verify=False) as http, http.stream(method, path, **more) as response:
        yield Read(response)


async def whole(door: Served, **more: Any) -> Read:
    async with reading(door, **more) as read:
        return await read.all()


async def follow(door: Served, job_id: str, after: str | None = None, **more: Any) -> Read:
    """The rest of a job's stream, on another connection."""
    headers = {"last-event-id": after} if after else {}
    return await whole(door, method="GET", path=f"/v1/jobs/{job_id}/stream", headers=headers, **more)


async def soon(reached: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await reached():
            await asyncio.sleep(0.005)
