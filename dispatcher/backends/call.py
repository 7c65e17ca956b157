"""Calls a backend: over HTTP with httpx, or `null://`, which answers at once inside the process, for measuring.

A call that is cancelled closes its connection: that is how the backend learns to stop the work.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import httpx

from dispatcher.backends import wire
from dispatcher.backends.address import authorization, base_url, shown
from dispatcher.backends.answer import Answer, CallFailed, Fault, retry_after_s
from fairlane import sse
from fairlane.head import Head
from fairlane.model import BackendSpec

Hear = Callable[[bytes], None]
ENDPOINT: Final = re.compile(r"/v1/[A-Za-z0-9_/-]{1,100}")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long one attempt may take, in seconds: as a whole (a job may say otherwise), until the first byte of the
    answer, and from one byte to the next. None: no bound of its own."""

    total_s: float = 600.0
    first_byte_s: float | None = None
    idle_s: float | None = None


class Backend(Protocol):
    """One backend as a dispatcher calls it."""

    async def call(self, job_id: str, head: Head, body: bytes, hear: Hear | None = None) -> Answer:
        """Sends one request. What comes of a stream that was asked for, `hear` is told at once. Raises CallFailed."""
        ...

    async def close(self) -> None:
        """Lets go of its connections once the calls that are under way have ended."""
        ...


class NullBackend:
    """Answers at once; its answer names the job, so that each can be told from the others."""

    async def call(self, job_id: str, head: Head, body: bytes, hear: Hear | None = None) -> Answer:
        answer = b'{"id":"%b","object":"null"}' % job_id.encode()
        if not head.stream:
            return Answer(200, answer)
        events = b"data: %b\n\ndata: [DONE]\n\n" % answer
        if hear:
            hear(events)
        return Answer(200, events, streamed=True)

    async def close(self) -> None:
        pass


class HttpBackend:
    """An OpenAI-compatible server. `answer_most` is how many bytes of an answer are taken."""

    def __init__(
        self, spec: BackendSpec, timeouts: Timeouts, *, tls: ssl.SSLContext | bool = True, answer_most: int = 8 << 20
    ) -> None:
        self._base = base_url(spec.url)
        self._spec = spec
        self._timeouts = timeouts
        self._answer_most = answer_most
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._client = wire.connect(tls)

    async def call(self, job_id: str, head: Head, body: bytes, hear: Hear | None = None) -> Answer:
        if not ENDPOINT.fullmatch(head.endpoint):
            raise CallFailed("unsuitable", f"{head.endpoint!r} is no endpoint of an OpenAI-compatible server.")
        self._calls += 1
        self._idle.clear()
        try:
            async with _within(head.timeout_s or self._timeouts.total_s, "timeout", "did not answer whole"):
                return await self._exchange(job_id, head, body, hear)
        finally:
            self._calls -= 1
            if self._calls == 0:
                self._idle.set()

    async def _exchange(self, job_id: str, head: Head, body: bytes, hear: Hear | None) -> Answer:
        try:
            return await self._send(job_id, head, body, hear)
        except wire.ERRORS as error:
            fault, what = wire.fault_of(error)
            said = f"{shown(self._base)} {what}: {error or type(error).__name__}"
            raise CallFailed(fault, f"The backend {what}.", said) from error

    async def close(self) -> None:
        await self._idle.wait()
        await self._client.aclose()

    async def _send(self, job_id: str, head: Head, body: bytes, hear: Hear | None) -> Answer:
        url = self._base + head.endpoint
        request = self._client.build_request("POST", url, content=body, headers=self._headers(job_id))
        async with _within(self._timeouts.first_byte_s, "first_byte_timeout", "sent nothing"):
            response = await self._client.send(request, stream=True)
        streamed = head.stream and response.status_code == 200 and _is_stream(response)
        parts: list[bytes] = []
        try:
            if not 200 <= response.status_code <= 599:  # no caller could be given it
                raise CallFailed("reset", f"The backend answered with status {response.status_code}, which is none.")
            async for part in self._parts(response):
                parts.append(part)
                if streamed and hear:
                    hear(part)
        finally:
            await response.aclose()
        after_s = retry_after_s(response.headers.get("retry-after"))
        return Answer(response.status_code, b"".join(parts), after_s, streamed)

    async def _parts(self, response: httpx.Response) -> AsyncGenerator[bytes]:
        """The body, part by part, each within the idle timeout."""
        if response.headers.get("content-encoding", "identity") != "identity":
            # not asked for; and what a few bytes unpack to may not fit into memory
            raise CallFailed("too_large", "The backend's answer is compressed, which was not asked for.")
        length, parts = 0, response.aiter_raw()
        while True:
            if self._timeouts.idle_s is None:  # of a stream each token comes by here
                part = await anext(parts, None)
            else:
                async with _within(self._timeouts.idle_s, "idle_timeout", "fell silent within its answer"):
                    part = await anext(parts, None)
            if part is None:
                return
            length += len(part)
            if length > self._answer_most:
                raise CallFailed("too_large", f"The answer has more than {self._answer_most} bytes.")
            yield part

    def _headers(self, job_id: str) -> Mapping[str, str]:
        asked = {"content-type": "application/json", "accept-encoding": "identity", "x-request-id": job_id}
        return asked | authorization(self._spec)


def _is_stream(response: httpx.Response) -> bool:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower() == sse.MEDIA_TYPE


@asynccontextmanager
async def _within(seconds: float | None, fault: Fault, what: str) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise CallFailed(fault, f"The backend {what} within {seconds:g} s.") from error
