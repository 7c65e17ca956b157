"""Server-sent events as a client reads them."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass
from typing import Final

from fairlane import sse

DONE: Final = sse.DONE.decode()
_ID: Final = re.compile(rb"^id: ?([^\r\n\0]*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Event:
    """One event with its `id`; or, if `data` is None, a comment: whoever answers is alive."""

    data: str | None
    id: str | None = None
    comment: str = ""


PULSE: Final = Event(None)


def whole_answer(body: bytes) -> tuple[Event, ...]:
    """The events that stand for an answer which was asked for as a stream, and is none."""
    return (Event(body.decode("utf-8", "replace")), Event(DONE))


def event_of(text: bytes, id_: str | None = None) -> Event:
    """The event that these bytes are; with `id_`, if it names none itself."""
    data = sse.data_of(text)
    if data is None:
        return Event(None, comment=text.decode("utf-8", "replace").strip())
    named = _ID.findall(text.replace(b"\r", b"\n"))
    return Event(data.decode("utf-8", "replace"), named[-1].decode("utf-8", "replace") if named else id_)


async def events_of(pieces: AsyncIterable[bytes]) -> AsyncGenerator[Event]:
    """The events in a stream, and its comments, each when it is whole. What is cut off at the end is left out."""
    cutter = sse.Cutter()
    async for piece in pieces:
        for text in cutter.cut(piece):
            yield event_of(text)
