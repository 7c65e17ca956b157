"""One front door: sends requests, and makes errors of what is no good answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import urlsplit

from fairlane.errors import ConnectionFailed, FairlaneError, InvalidRequest
from producer.client.connections import CONNECT_S, Connections, httpx
from producer.client.refusals import foreign, refusal

ANSWER_S: Final = 30.0  # for an answer that need not wait
SILENCE_S: Final = 60.0  # of a stream, before it is taken for broken


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer whose body is read while it comes: its HTTP status and media type."""

    status: int
    kind: str
    pieces: AsyncGenerator[bytes]


class Door:
    """`url` may end in `/v1`, as OpenAI's does."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        headers = {"content-type": "application/json"}
        if api_key is not None:
            headers["authorization"] = f"Bearer {api_key}"
        try:
            if not urlsplit(url).hostname:
                raise ValueError("it names no host")
            self._connections = Connections(self._url, headers)
        except (httpx.InvalidURL, ValueError) as error:  # a ValueError: an API key that is not ASCII, too
            raise InvalidRequest(f"This is no URL, or no API key: {error}.", param="url") from error

    async def call(
        self,
        method: str,
        path: str,
        content: bytes | AsyncIterable[bytes] | None = None,
        answer_s: float = ANSWER_S,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The JSON object that is answered. Raises what the answer says, or ConnectionFailed."""
        timeout = httpx.Timeout(answer_s, connect=CONNECT_S, pool=None)
        try:
            with self._connections.one() as http:
                answer = await http.request(method, path, content=content, timeout=timeout, headers=headers)
        except httpx.RequestError as error:
            raise self._unreachable(error) from error
        said = _json(answer)
        if answer.is_success and isinstance(said, dict):
            return cast("dict[str, Any]", said)
        raise _refused(answer, said)

    @asynccontextmanager
    async def streamed(self, path: str, headers: Mapping[str, str]) -> AsyncGenerator[Streamed]:
        """A good answer, while it comes. Raises as `call` does."""
        timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_S, pool=None)
        with self._connections.one() as http:
            try:
                async with http.stream("GET", path, timeout=timeout, headers=dict(headers)) as answer:
                    if not answer.is_success:
                        await answer.aread()
                        raise _refused(answer, _json(answer))
                    kind = answer.headers.get("content-type", "").partition(";")[0].strip()
                    yield Streamed(answer.status_code, kind, self._pieces(answer))
            except httpx.RequestError as error:
                raise self._unreachable(error) from error

    async def _pieces(self, answer: httpx.Response) -> AsyncGenerator[bytes]:
        try:
            async for piece in answer.aiter_bytes():
                yield piece
        except httpx.RequestError as error:
            raise self._unreachable(error) from error

    async def close(self) -> None:
        await self._connections.close()

    def _unreachable(self, error: httpx.RequestError) -> ConnectionFailed:
        what = str(error) or type(error).__name__
        return ConnectionFailed(f"The front door at {self._url} cannot be reached: {what}.")


def _json(answer: httpx.Response) -> object:
    try:
        return answer.json()
    except ValueError:
        return None


def _refused(answer: httpx.Response, said: object) -> FairlaneError:
    if not isinstance(said, dict) or "error" not in said:
        return foreign(answer.text, answer.status_code, _retry_after(answer))
    return refusal(cast("dict[str, Any]", said), answer.status_code, _retry_after(answer))


def _retry_after(answer: httpx.Response) -> float | None:
    try:
        return max(0.0, float(answer.headers["retry-after"]))
    except (KeyError, ValueError):  # a date: then as if there were none
        return None
