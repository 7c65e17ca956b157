"""Server-sent events as bytes: where one ends and the next begins, what is in it, and how to give it an id.

https://html.spec.whatwg.org/multipage/server-sent-events.html: an event ends with a blank line; a line ends with CR LF,
LF or CR. Where a text is cut does not depend on the parts in which it comes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

MEDIA_TYPE: Final = "text/event-stream"
DONE: Final = b"[DONE]"  # the data of the last event of OpenAI's streams

# Two ends of lines in a row. A CR at the end of what has come so far may be half of a CR LF.
_BLANK: Final = re.compile(rb"(?>\r\n|\n|\r)(?:\r\n|\n|\r(?![\n]|\Z))")
_TAIL: Final = re.compile(rb"(?:(?>\r\n|\n|\r)(?P<blank>\r\n|\n|\r)|(?P<end>\r\n|\n|\r))\Z")
_LINE: Final = re.compile(rb"\r\n|\n|\r")
_WHOLE_LINE: Final = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|\Z)")
_REACH: Final = 3  # bytes before the end in which a blank line that is not whole yet may have begun


class Cutter:
    """Cuts what comes, part by part, into whole events."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._seen = 0  # so far there is no end of an event

    def cut(self, part: bytes) -> list[bytes]:
        """The events that are whole now, each with its blank line."""
        self._text += part
        ends = [found.end() for found in _BLANK.finditer(self._text, self._seen)]
        starts = [0, *ends]
        text = bytes(self._text[: starts[-1]])
        del self._text[: starts[-1]]
        self._seen = max(0, len(self._text) - _REACH)
        return [text[start:end] for start, end in zip(starts, ends, strict=False)]

    @property
    def pending(self) -> int:
        """How many bytes wait for the end of their event."""
        return len(self._text)

    def rest(self) -> list[bytes]:
        """At the end of the text: what is left of it, an event that perhaps has no blank line."""
        text, self._text, self._seen = bytes(self._text), bytearray(), 0
        return [text] if text else []


def events_of(text: bytes) -> list[bytes]:
    """All events of a whole text; joined they are the text."""
    return list(each_of(text))


def each_of(text: bytes) -> Iterator[bytes]:
    """`events_of`, one after the other: of a large text there may be millions."""
    start = 0
    for found in _BLANK.finditer(text):
        yield text[start : (start := found.end())]
    if start < len(text):
        yield text[start:]


def count_of(text: bytes) -> int:
    """How many events a whole text has."""
    return sum(1 for _ in each_of(text))


def with_id(event: bytes, id_: str) -> bytes:
    """The event with this id, which replaces one of its own for who reads it; nothing else is changed."""
    line, tail = b"id: " + id_.encode(), _TAIL.search(event, max(0, len(event) - 4))
    if tail is None:
        return event + b"\n" + line
    if blank := tail["blank"]:
        return event[: -len(blank)] + line + blank + blank
    return event + line + tail["end"]


def data_of(event: bytes) -> bytes | None:
    """What is in the event; None if it has no data (a comment)."""
    if b"data:" not in event:
        return None
    lines = [line[5:].removeprefix(b" ") for line in _LINE.split(event) if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def with_data(event: bytes, data: bytes) -> bytes:
    """The event with this data, of one line, instead of its own; nothing else is changed."""
    lines = _WHOLE_LINE.findall(event)
    # in the place of the last line of data: a CR before the blank line must not come to stand before its LF
    at = max(n for n, (line, _) in enumerate(lines) if line.startswith(b"data:"))
    lines[at] = (b"data: " + data, lines[at][1])
    return b"".join(line + end for n, (line, end) in enumerate(lines) if n >= at or not line.startswith(b"data:"))


def is_stream(text: bytes) -> bool:
    """Whether a text of unknown type looks like events rather than like JSON or HTML."""
    start = text[:16].lstrip(b"\xef\xbb\xbf\r\n")
    return start.startswith((b"data:", b"event:", b"id:", b"retry:", b":"))
