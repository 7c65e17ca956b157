"""Streamed answers: appended event by event while a lease holds, and read again from any position.

The stream `chunks:<id>` has an entry for each chunk: `<token>-<ordinal of its last event>`, with its events' own bytes.
Within an attempt (one fencing token) events are numbered from 1; a later attempt has a larger token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model import State
from fairlane.queue import replies
from fairlane.queue.chunks import send_in_chunks
from fairlane.queue.pools import Pool
from fairlane.queue.replies import MovedAway
from fairlane.queue.store import Store

KEPT_MS: Final = 600_000  # after the last chunk; then a finished job's result has the whole text
PAGE: Final = 100  # chunks in one read
PAGE_BYTES: Final = 128 << 10  # … after which it takes no further one
_POSITION: Final = re.compile(r"([1-9]\d{0,14})-([1-9]\d{0,14})")


class Position(NamedTuple):
    """An event's place: its attempt's fencing token, and its number within that, from 1."""

    token: int
    ordinal: int

    def __str__(self) -> str:
        return f"{self.token}-{self.ordinal}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """The inverse of `str`. Raises InvalidRequest."""
        match = _POSITION.fullmatch(text)
        if match is None:
            raise InvalidRequest("A position in a stream is `<number>-<number>`, as the id of an event says it.")
        return cls(int(match[1]), int(match[2]))


class Origin(NamedTuple):
    """Where an attempt runs, and how long its job had waited for it."""

    backend: str
    queued_ms: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole events of one attempt, numbers `first` to `last`. `events` is None in a message that leaves them out.

    The message about an attempt's first chunk tells its `origin`.
    """

    token: int
    first: int
    last: int
    events: bytes | None = field(repr=False)
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A job at one moment, and its attempt's next chunks after some position. `token` is 0 before its first lease.

    `last`: the number of the attempt's last event by now, 0 if there is none. `more`: there are further chunks. In a
    finished job's last page nothing is left out: chunks come before outcomes. While a job waits it has none.
    """

    state: State
    token: int
    chunks: tuple[tuple[Position, bytes], ...]
    last: int
    more: bool


Appended = FairlaneError | str


async def append(store: Store, pool: Pool, chunks: Sequence[tuple[str, Chunk]]) -> list[Appended]:
    """See Queue.append."""

    def pack(part: Sequence[tuple[str, Chunk]]) -> list[str | bytes]:
        return [
            word
            for id_, chunk in part
            for word in (id_, str(chunk.token), str(chunk.first), str(chunk.last), chunk.events or b"")
        ]

    async def send(args: list[str | bytes]) -> list[Appended]:
        return list(replies.texts(await store.run("append", pool.prefix, str(KEPT_MS), *args)))

    return await send_in_chunks(chunks, lambda one: len(one[1].events or b""), pack, send)


def heard(message: str) -> Chunk:
    """The chunk that a message on the channel `chunks:<id>` tells of; a large one's events are not in it."""
    head, whole, events = message.partition("\n")
    token, first, last, *said = head.split()
    origin = Origin(said[0], int(said[1])) if said else None
    text = events.encode(errors="surrogateescape") if whole else None
    return Chunk(int(token), int(first), int(last), text, origin)


async def read(store: Store, pool: Pool, job_id: str, after: Position | None) -> Page:
    """The job, and its latest attempt's next chunks that end after `after`: PAGE, or PAGE_BYTES and what the last one
    has beyond that, at the most. Raises NotFound, MovedAway."""
    args = (job_id, str(after or ""), str(PAGE), str(PAGE_BYTES))
    state, token, moved_to, last, *found = cast("list[bytes]", await store.run("read_chunks", pool.prefix, *args))
    if state in (b"moving", b"moved"):
        raise MovedAway(state.decode(), moved_to.decode())
    chunks = tuple((_position(id_), events) for id_, events in zip(found[::2], found[1::2], strict=True))
    end = _position(last).ordinal if last else 0
    more = bool(chunks) and chunks[-1][0].ordinal < end
    return Page(cast(State, state.decode()), int(token or 0), chunks, end, more)


def _position(id_: bytes) -> Position:
    token, _, ordinal = id_.partition(b"-")
    return Position(int(token), int(ordinal))
