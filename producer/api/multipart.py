"""Forms as `multipart/form-data` (RFC 7578), while they come in: part by part, piece by piece, nothing held whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Final

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from fairlane.errors import InvalidRequest, PayloadTooLarge
from producer.api.body import body_part, declared_length

KIND: Final = "multipart/form-data"
PARTS: Final = 16
AROUND: Final = 64 << 10  # bytes of a form that are not its file's
_PLAIN: Final = ("", "binary", "8bit", "7bit")


@dataclass(frozen=True, slots=True)
class Part:
    """One part's beginning; its content follows. `filename` is None for a plain field."""

    name: str
    filename: str | None


async def read_form(request: Request, most: int) -> AsyncGenerator[Part | bytes]:
    """Each part, followed by its content in pieces; the form has up to `most` bytes and AROUND more.

    Raises InvalidRequest for whatever is no whole form, PayloadTooLarge.
    """
    form = _Form(_boundary(request))
    length, most = declared_length(request), most + AROUND
    if length <= most:
        length = 0
        while length <= most and (data := await body_part(request)) is not None:
            length += len(data)
            for piece in form.feed(data):
                yield piece
    if length > most:
        raise PayloadTooLarge(f"A form has {most} bytes at the most. Send less.")
    if not form.ended:
        raise InvalidRequest("The form breaks off: its last boundary is missing.")


def _boundary(request: Request) -> bytes:
    kind, options = parse_options_header(request.headers.get("content-type"))
    if kind != KIND.encode():
        raise InvalidRequest(f"Send a form, with the header `Content-Type: {KIND}; boundary=…`.", param="content-type")
    boundary = options.get(b"boundary", b"")
    if not boundary:
        raise InvalidRequest("The content type names no boundary between the form's parts.", param="content-type")
    return boundary


class _Form:
    """The parser, and what it found in the data that it was fed last."""

    def __init__(self, boundary: bytes) -> None:
        self.ended = False
        self._parts = 0
        self._found: list[Part | bytes] = []
        self._headers: dict[str, str] = {}
        self._name = self._value = b""
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._headers.clear,
                    "on_header_begin": self._header_begin,
                    "on_header_field": self._header_field,
                    "on_header_value": self._header_value,
                    "on_header_end": self._header_end,
                    "on_headers_finished": self._part,
                    "on_part_data": lambda data, start, end: self._found.append(data[start:end]),
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise InvalidRequest(f"This is no boundary: {error}.", param="content-type") from error

    def feed(self, data: bytes) -> list[Part | bytes]:
        self._found = []
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise InvalidRequest(f"The body is no form that can be understood: {error}.") from error
        return self._found

    def _header_begin(self) -> None:
        self._name = self._value = b""

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        name = self._name.decode("latin-1").lower()
        if name in self._headers:
            raise InvalidRequest(f"A part of the form has the header {name!r} twice.")
        self._headers[name] = self._value.decode("latin-1")

    def _part(self) -> None:
        self._parts += 1
        if self._parts > PARTS:
            raise InvalidRequest(f"A form has {PARTS} parts at the most.")
        self._found.append(_part_of(self._headers))

    def _end(self) -> None:
        self.ended = True


def _part_of(headers: Mapping[str, str]) -> Part:
    kind, options = parse_options_header(headers.get("content-disposition"))
    if kind != b"form-data" or b"name" not in options:
        raise InvalidRequest('Each part of the form says `Content-Disposition: form-data; name="…"`.')
    if headers.get("content-transfer-encoding", "").strip().lower() not in _PLAIN:
        raise InvalidRequest("A part of the form is encoded. Send it as it is.", param="content-transfer-encoding")
    if headers.get("content-type", "").strip().lower().startswith("multipart/"):
        raise InvalidRequest("A part of the form is itself made of parts. Send each file on its own.")
    try:
        name, filename = (options[key].decode() if key in options else None for key in (b"name", b"filename"))
    except UnicodeDecodeError as error:
        raise InvalidRequest("The name of a part, or of its file, is not UTF-8.") from error
    return Part(name or "", filename)
