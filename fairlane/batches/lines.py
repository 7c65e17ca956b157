"""A file of requests (JSONL): cut into lines, and each line checked. Nothing here touches Redis or a disk."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, cast

from fairlane import strictjson
from fairlane.asking import asked, for_backend
from fairlane.batches.view import BatchFault
from fairlane.errors import InvalidRequest

MOST_LINES: Final = 50_000
MOST_BLANK: Final = 100_000
MOST_ID: Final = 512  # characters of a custom_id
AROUND: Final = 64 << 10  # bytes of a line beside the request's body
_BOM: Final = b"\xef\xbb\xbf"
_GROWS: Final = 5  # times that a body may be longer as we write it: 1e15 becomes 1000000000000000.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is not blank. `number` counts all lines from 1, `ordinal` the requests; `end` is the byte behind.

    `text` is None if the line is too long to be read.
    """

    number: int
    ordinal: int
    text: bytes | None
    end: int


@dataclass(frozen=True, slots=True)
class Request:
    """What a line asks for: a body as the backend gets it, less what is meant for us."""

    custom_id: str
    model: str
    body: Mapping[str, Any]


class _Bad(Exception):
    """What is wrong with a line."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        self.args = (code, message, param)


class TooManyBlanks(Exception):
    """There are more than MOST_BLANK lines with nothing in them."""


async def cut(
    pieces: AsyncIterable[bytes], most: int, *, ordinal: int = 0, offset: int = 0, number: int = 0
) -> AsyncGenerator[Line]:
    """The lines of a file, from the byte `offset` on, before which there were `ordinal` requests in `number` lines.

    Of a line of more than `most` bytes nothing is kept. Raises TooManyBlanks.
    """
    start, held, skipping, before = offset, b"", False, number - ordinal
    async for piece in pieces:
        *whole, rest = (held + piece).split(b"\n") if not skipping else piece.split(b"\n")
        for text in whole:
            number += 1
            start += len(text) + 1
            if skipping or len(text) > most:
                ordinal += 1
                yield Line(number, ordinal, None, start)
                skipping = False
            elif stripped := _stripped(text, first=start - len(text) - 1 == 0):
                ordinal += 1
                yield Line(number, ordinal, stripped, start)
            elif number - ordinal - before > MOST_BLANK:
                raise TooManyBlanks
        held = rest
        if skipping or len(held) > most:  # what is dropped counts all the same
            skipping, start, held = True, start + len(held), b""
    if skipping or held:
        stripped = None if skipping else _stripped(held, first=start == 0)
        if skipping or stripped:
            yield Line(number + 1, ordinal + 1, stripped, start + len(held))


def _stripped(text: bytes, *, first: bool) -> bytes:
    return (text.removeprefix(_BOM) if first else text).strip(b" \t\r")


class Checker:
    """Checks the lines of one file, in order: each by itself, and against those before it."""

    def __init__(self, endpoint: str, max_body_bytes: int) -> None:
        self._endpoint = endpoint
        self._most = max_body_bytes
        self._seen: dict[bytes, int] = {}  # digest of a custom_id -> its line
        self.model: str | None = None
        """The one model of the file, once a line has named it."""

    def fault(self, line: Line) -> BatchFault | None:
        """What is wrong with a line; the first thing, if it is more than one."""
        try:
            if line.ordinal > MOST_LINES:
                raise _Bad("too_many_requests", f"A batch has {MOST_LINES} requests at the most. Split the file.")
            if line.text is None:
                raise _Bad("request_too_large", f"A request's body has {self._most} bytes at the most.", "body")
            self._check(read_request(line.text, self._endpoint, self._most), line.number)
        except _Bad as bad:
            code, message, param = bad.args
            return BatchFault(code, message, line.number, param)
        return None

    def _check(self, request: Request, number: int) -> None:
        """Against the lines before it."""
        first = self._seen.setdefault(blake2b(request.custom_id.encode(), digest_size=16).digest(), number)
        if first != number:
            message = f"The custom_id {request.custom_id[:64]!r} is that of line {first} already."
            raise _Bad("duplicate_custom_id", message, "custom_id")
        self.model = self.model or request.model
        if request.model != self.model:
            message = f"All requests of a batch are for one model. This one is for {request.model[:64]!r}, "
            raise _Bad("mismatched_model", message + f"those before it for {self.model[:64]!r}.", "body.model")


def parse(text: bytes, endpoint: str, max_body_bytes: int) -> Request:
    """A line that was found good. Raises ValueError if it is not."""
    try:
        return read_request(text, endpoint, max_body_bytes)
    except _Bad as bad:
        raise ValueError(bad.args[1]) from bad


def read_request(text: bytes, endpoint: str, max_body_bytes: int) -> Request:
    """What a line by itself says."""
    try:
        value = strictjson.parse(text)
    except ValueError as error:
        raise _Bad("invalid_json_line", f"This line is no JSON that we can take: {error}.") from error
    if not isinstance(value, dict):
        raise _Bad("invalid_json_line", "This line is JSON, but no object.")
    fields = cast("dict[str, Any]", value)
    custom_id = fields.get("custom_id")
    if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= MOST_ID:
        raise _Bad("invalid_custom_id", f"custom_id is a text of 1 to {MOST_ID} characters.", "custom_id")
    if fields.get("method") != "POST":
        raise _Bad("invalid_method", "method is POST.", "method")
    if fields.get("url") != endpoint:
        raise _Bad("invalid_url", f"url is the batch's endpoint, {endpoint}.", "url")
    model, body = _body(fields.get("body"), endpoint)
    if _GROWS * len(text) > max_body_bytes:
        _check_size(endpoint, body, max_body_bytes)
    return Request(custom_id, model, body)


def _body(body: object, endpoint: str) -> tuple[str, dict[str, Any]]:
    if not isinstance(body, dict):
        raise _Bad("invalid_body", "body is an object: the request as the endpoint takes it.", "body")
    fields = cast("dict[str, Any]", body)
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise _Bad("missing_model", "body.model is the name of the model.", "body.model")
    if fields.get("stream"):
        raise _Bad("stream_not_allowed", "Nobody listens to a batch while it runs. Leave `stream` out.", "body.stream")
    try:
        return model, for_backend(endpoint, fields)
    except InvalidRequest as error:
        raise _Bad(error.code, error.message, f"body.{error.param}") from error


def _check_size(endpoint: str, body: Mapping[str, Any], most: int) -> None:
    try:
        size = len(asked(endpoint, body, with_prefix=False).body)
    except InvalidRequest as error:
        raise _Bad(error.code, error.message, "body") from error
    if size > most:
        raise _Bad("request_too_large", f"A request's body has {most} bytes at the most; this one has {size}.", "body")
