"""Files at the front door, `client.files`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from os import PathLike
from typing import Final, TypeAlias

from fairlane.errors import FairlaneError, Refused
from fairlane.job import Json
from producer.client.content import Content
from producer.client.patience import pause_s
from producer.client.records import File
from producer.client.session import Session

Source: TypeAlias = "str | PathLike[str] | bytes | Iterable[bytes | str]"
UNNAMED: Final = "upload.jsonl"


class AsyncFiles:
    """Files at the front door. Over Redis each call raises NotSupported."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def upload(self, source: Source, *, filename: str | None = None, purpose: str = "batch") -> File:
        """Uploads a file: a path (a str is one), bytes, or pieces of it from any iterable. It is never whole in memory.

        Raises InvalidRequest, PayloadTooLarge and others of FairlaneError. A try whose answer is lost may leave a
        second copy of the file.
        """
        content = opened(source, filename)
        for _ in content.fill():
            await asyncio.sleep(0)  # others have their turn
        return await self.send(content, purpose)

    async def send(self, content: Content, purpose: str) -> File:
        """`upload`, of what is ready to be sent; closes it."""
        with content:
            return await self._session.ask(lambda to: to.archive.upload(content, purpose))

    async def get(self, file_id: str) -> File:
        """What is known of a file. Raises NotFound."""
        return await self._session.ask(lambda to: to.archive.file(file_id))

    async def list(self, *, purpose: str | None = None) -> AsyncGenerator[File]:
        """The tenant's files, the newest first, read page by page."""
        after: str | None = None
        while True:
            at = after
            page = await self._session.ask(lambda to: to.archive.files(purpose, at))  # noqa: B023
            for file in page.data:
                yield file
            if (after := page.after) is None:
                return

    async def content(self, file_id: str) -> AsyncGenerator[bytes]:
        """The file's bytes, piece by piece. A broken connection is taken up again where it broke. Raises NotFound."""
        done = tries = 0
        heard_at = time.monotonic()
        while True:
            try:
                async with aclosing(self._session.transport.archive.content(file_id, done)) as pieces:
                    async for piece in pieces:
                        done, tries = done + len(piece), 0
                        yield piece
                        heard_at = time.monotonic()
                return
            except FairlaneError as error:
                tries += 1
                pause = pause_s(tries, error.retry_after)
                if not error.retryable or time.monotonic() + pause > heard_at + self._session.retry_for_s:
                    raise
            await asyncio.sleep(pause)

    async def lines(self, file_id: str) -> AsyncGenerator[Json]:
        """What the lines of a JSONL file hold, one after the other."""
        async with aclosing(self.parts(file_id)) as parts:
            async for part in parts:
                for value in part:
                    yield value

    async def parts(self, file_id: str) -> AsyncGenerator[Sequence[Json]]:
        """`lines`, some at a time."""
        async with aclosing(self.content(file_id)) as pieces:
            rest: list[bytes] = []
            async for piece in pieces:
                first, *others = piece.split(b"\n")
                rest.append(first)
                if others:
                    yield _parsed([b"".join(rest), *others[:-1]], file_id)
                    rest = [others[-1]]
            yield _parsed([b"".join(rest)], file_id)

    async def delete(self, file_id: str) -> None:
        """Deletes a file. Raises NotFound."""
        await self._session.ask(lambda to: to.archive.delete(file_id))


def opened(source: Source, filename: str | None) -> Content:
    """The content of a file to upload; that of an iterable is yet to be filled."""
    if isinstance(source, str | PathLike):
        return Content.of_path(source, filename)
    if isinstance(source, bytes):
        return Content.of_bytes(source, filename or UNNAMED)
    return Content.of_pieces(source, filename or UNNAMED)


def _parsed(lines: Iterable[bytes], file_id: str) -> list[Json]:
    """The values of those lines that are not empty."""
    try:
        return [json.loads(line) for line in lines if line.strip()]
    except ValueError as error:
        raise Refused(f"{file_id} is no JSONL: {error}.", code="unexpected_answer", status=502) from error
