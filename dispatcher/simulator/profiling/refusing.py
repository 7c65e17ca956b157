"""Why a backend cannot be profiled, in words that say what to do."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

import httpx

from dispatcher.backends import wire
from dispatcher.backends.address import shown
from fairlane import sse, strictjson
from fairlane.errors import FairlaneError

ENDPOINT: Final = "/v1/chat/completions"
UNKNOWN_FIELD: Final = frozenset({400, 422})
UNAUTHORIZED: Final = frozenset({401, 403})
NOT_FOUND: Final = 404
TOO_MANY: Final = 429
SAID_MOST: Final = 300  # characters of a server's own words
BODY_MOST: Final = 65_536  # bytes of an error


class CannotProfile(FairlaneError):
    """This backend cannot be profiled. See what it said."""

    code, status = "cannot_profile", 502


class Answered(CannotProfile):
    """The backend refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.answered = status


@contextmanager
def understood(url: str) -> Generator[None]:
    """Connection errors as CannotProfile."""
    try:
        yield
    except wire.ERRORS as error:
        fault, words = wire.fault_of(error)
        advice = {
            "refused": "Does it run, and is the URL right?",
            "reset": "It may have crashed: look at its log.",
        }.get(fault, "Is the URL right?")
        raise CannotProfile(f"{shown(url)} {words}. {advice}") from error


async def check(response: httpx.Response, url: str, model: str, key: str = "") -> None:
    """Raises CannotProfile for anything but a stream; `key` is not repeated."""
    status = response.status_code
    if status == 200:
        kind = printable(response.headers.get("content-type", ""))
        if not kind.startswith(sse.MEDIA_TYPE):
            raise CannotProfile(
                f"{shown(url)} does not stream ({kind or 'no content type'}), so that its first token cannot be seen. "
                "Let it stream, or name another server of the same kind."
            )
        return
    words = words_in(await beginning(response, BODY_MOST), key)
    raise Answered(status, told(status, shown(url), model, words))


def told(status: int, where: str, model: str, words: str) -> str:
    """What a refusal means, and what to do."""
    if status in UNAUTHORIZED:
        return f"{where} answered {status}: name the variable that holds its key by --key-env VAR. It said: {words}"
    if status == NOT_FOUND:
        return f"{where} has no {ENDPOINT} for the model {model!r}; --model names another. It said: {words}"
    if status == TOO_MANY:
        return (
            f"{where} answered 429: somebody limits it. Ask it directly, or say --concurrency lower. It said: {words}"
        )
    return f"{where} answered {status} to a streamed request. It said: {words}"


async def beginning(response: httpx.Response, most: int) -> bytes:
    """No more than so many bytes of its body: what a server sends has no end that one could rely on."""
    found = bytearray()
    async for part in response.aiter_bytes():
        found += part
        if len(found) >= most:
            break
    return bytes(found[:most])


def object_in(data: bytes | None) -> dict[str, Any]:
    """The JSON object; empty if it is none."""
    try:
        found = strictjson.parse_answer(data or b"{}")
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def words_in(body: bytes, key: str = "") -> str:
    """The message of an error's body, or its beginning; without the key, which some servers repeat."""
    said: Any = object_in(body).get("error")
    text = cast("dict[str, Any]", said).get("message") if isinstance(said, dict) else said
    words = text if isinstance(text, str) else body.decode(errors="replace")
    return printable(words.replace(key, "…") if key else words)


def printable(text: str) -> str:
    """A server's words, for a terminal: without what would steer it."""
    return "".join(one if one.isprintable() else " " for one in text[:SAID_MOST])


def key_of(headers: Mapping[str, str]) -> str:
    """The key that they carry, if any."""
    return headers.get("authorization", "").rpartition(" ")[2]
