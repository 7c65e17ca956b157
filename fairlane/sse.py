"""Server-sent events as bytes: where one ends and the next begins, what is in it, and how to give it an id.

https://html.spec.whatwg.org/multipage/server-sent-events.html: an event ends with a blank line; a line ends with CR LF,
LF or CR. Where a text is cut does not depend on the parts in which it comes.
"""

from __future__ import annotations

import re
from typing import Final

MEDIA_TYPE: Final = "text/event-stream"
DONE: Final = b"[DONE]"  # the data of the last event of OpenAI's streams

# Two ends of lines in a row. A CR at the end of what has come so far may be half of a CR LF.
_BLANK: Final = re.compile(rb"(?>\r\n|\n|\r)(?:\r\n|\n|\r(?![\n]|\Z))")
_TAIL: Final = re.compile(rb"(?:(?>\r\n|\n|\r)(?P<blank>\r\n|\n|\r)|(?P<end>\r\n|\n|\r))\Z")
_LINE: Final = re.compile(rb"\r\n|\n|\r")
_REACH: Final = 3  # bytes before the end in which a blank line that is not whole yet may have begun


class Cutter:
    """Cuts what comes, part by part, into whole events."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._seen = 0  # so far there is no end of an event

    def cut(self, part: bytes) -> list[bytes]:
        """The events that are whole now, each with its blank line."""
        self._text += part
        events: list[bytes] = []
        start = 0
        while found := _BLANK.search(self._text, max(start, self._seen)):
            events.append(bytes(self._text[start : found.end()]))
            start = self._seen = found.end()
        del self._text[:start]
        self._seen = max(0, len(self._text) - _REACH)
        return events

    def rest(self) -> list[bytes]:
        """At the end of the text: what is left of it, an event that perhaps has no blank line."""
        text, self._text, self._seen = bytes(self._text), bytearray(), 0
        return [text] if text else []


def events_of(text: bytes) -> list[bytes]:
    """All events of a whole text; joined they are the text."""
    cutter = Cutter()
    return cutter.cut(text) + cutter.rest()


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
    lines = [line[5:].removeprefix(b" ") for line in _LINE.split(event) if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def is_stream(text: bytes) -> bool:
    """Whether a text of unknown type looks like events rather than like JSON or HTML."""
    start = text[:16].lstrip(b"\xef\xbb\xbf\r\n")
    return start.startswith((b"data:", b"event:", b"id:", b"retry:", b":"))
