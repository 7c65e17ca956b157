"""Files: what is known of them in the account's slot, what they hold in a store of contents (contents.py).

Nothing is left behind. Content is held (`uploads`) before its first byte is written, and becomes a file in one script;
what is given up, deleted or past its end is noted (`discarded`) until its content was deleted. Whoever dies in between
leaves a note that the next sweep finds; each upload and each deletion sweeps a little.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, cast

from fairlane.contents import Contents, Writer
from fairlane.errors import FilesUnavailable, NotFound, PayloadTooLarge, StoreUnavailable
from fairlane.ids import RANDOM_LENGTH, Ids, RandomIds
from fairlane.queue import keys, replies
from fairlane.queue.engine import Queue

HOLD_MS: Final = 600_000  # content that nobody held on for so long is given up
HOLD_ON_S: Final = 60.0  # how often whoever writes it says so
AGAIN_MS: Final = 60_000  # when a sweep comes back to content that could not be deleted
SWEEP: Final = 8  # files, uploads and contents that one sweep looks after
PAGE: Final = 500  # files that one read of a list looks at


@dataclass(frozen=True, slots=True)
class FileView:
    """A file. Times are ms since the epoch; `content` is what Contents knows its bytes by."""

    id: str
    tenant: str
    filename: str
    purpose: str
    bytes: int
    created_at_ms: int
    expires_at_ms: int | None
    content: str


@dataclass(frozen=True, slots=True)
class FilePage:
    """A part of a list, and whether there is more of it."""

    files: list[FileView]
    has_more: bool


class Files:
    """The files of all tenants. `url` is a folder, or a URL of fsspec (contents.py, which says what is refused).

    Every method may raise StoreUnavailable, StoreFull (Redis) and FilesUnavailable (the store of contents).
    """

    def __init__(self, queue: Queue, url: str, *, ids: Ids | None = None) -> None:
        self.contents = Contents(url)
        self._store = queue.store
        self._prefix = keys.prefix(queue.store.namespace, keys.ACCOUNT)
        self._ids = ids or RandomIds()

    async def put(
        self,
        tenant: str,
        filename: str,
        purpose: str,
        pieces: AsyncIterable[bytes],
        most: int,
        *,
        expires_after_s: int | None = None,
        file_id: str | None = None,
    ) -> FileView:
        """Makes a file of up to `most` bytes. Raises PayloadTooLarge.

        With a `file_id` (of `new_id`) it may be repeated, also by several at once: the first that comes to its end
        makes the file, and all get that one.
        """
        if file_id is not None:
            with suppress(NotFound):
                return await self.get(tenant, file_id)
        async with self.draft(most) as draft:
            async for piece in pieces:
                await draft.write(piece)
            return await draft.keep(tenant, filename, purpose, expires_after_s=expires_after_s, file_id=file_id)

    @asynccontextmanager
    async def draft(self, most: int) -> AsyncGenerator[Draft]:
        """For content whose name and purpose come after it. If it was not kept when the block ends, it is gone."""
        await self.sweep()
        content = await self.new_id()
        draft = Draft(self, content, await self.contents.begin(content), most)
        try:
            yield draft
        finally:
            await draft.drop()

    async def new_id(self) -> str:
        """An id that nobody has. Ids are in the order in which they were made."""
        return await self.hold("")

    async def get(self, tenant: str, file_id: str) -> FileView:
        """Raises NotFound, also if it is another tenant's."""
        _, files = await self._rows(tenant, f"[{file_id}", f"[{file_id}", "asc", 1)
        if not files:
            raise NotFound(f"There is no file {file_id[:100]!r}.")
        return files[0]

    async def list(
        self,
        tenant: str,
        *,
        after: str | None = None,
        limit: int = 10_000,
        order: str = "desc",
        purpose: str | None = None,
    ) -> FilePage:
        """Up to `limit` of the tenant's files, by age, the newest first unless `order` is `asc`; from behind the id
        `after` on, which may be gone by now."""
        found: list[FileView] = []
        low, high, last = "-", "+", after
        count = PAGE if purpose else min(PAGE, limit + 1)
        while len(found) <= limit:
            if last:
                low, high = ("-", f"({last}") if order == "desc" else (f"({last}", "+")
            last, files = await self._rows(tenant, low, high, order, count)
            found += [file for file in files if purpose in (None, file.purpose)]
            if last is None:
                break
        return FilePage(found[:limit], len(found) > limit)

    def read(self, file: FileView, start: int = 0) -> AsyncGenerator[bytes]:
        """What the file holds from the byte `start` on, in pieces. Raises NotFound if it was deleted meanwhile. To be
        closed."""
        return self.contents.read(file.content, start)

    async def delete(self, tenant: str, file_id: str) -> None:
        """Raises NotFound. It is gone at once; that its content could not be deleted yet is no error."""
        # repeated after a lost reply it would not be found
        content = replies.text(await self._store.run("remove_file", self._prefix, tenant, file_id, repeat=False))
        if not content:
            raise NotFound(f"There is no file {file_id[:100]!r}.")
        with suppress(FilesUnavailable, StoreUnavailable):
            await self.discard([content])
            await self.sweep()

    async def sweep(self, most: int = SWEEP) -> int:
        """Takes away files past their end, and deletes contents that belong to no file: how many of those."""
        names = replies.texts(await self._store.run("sweep_files", self._prefix, str(most), str(AGAIN_MS)))
        with suppress(FilesUnavailable):
            await self.discard(names)
        return len(names)

    # --- for a draft --------------------------------------------------------------------------------------------------

    async def hold(self, content: str) -> str:
        """Holds content for HOLD_MS more; '' makes a new name. Raises FilesUnavailable if it was given up."""
        token = self._ids.token(RANDOM_LENGTH)
        held = replies.text(await self._store.run("hold_content", self._prefix, content, token, str(HOLD_MS)))
        if not held:
            raise FilesUnavailable("The upload paused for too long. Send it again.")
        return held

    async def add(self, content: str, size: int, fields: NewFile) -> FileView:
        """Makes held content a file. If it was given up it is deleted, and FilesUnavailable raised."""
        ends = "" if fields.expires_after_s is None else str(1000 * fields.expires_after_s)
        args = (fields.tenant, fields.id or content, content, fields.filename, fields.purpose, str(size), ends)
        if not replies.number(await self._store.run("add_file", self._prefix, *args)):
            await self.discard([content])
            raise FilesUnavailable("The upload paused for too long. Send it again.")
        return await self.get(fields.tenant, fields.id or content)

    async def discard(self, contents: list[str]) -> None:
        """Deletes contents that belong to no file, and what was noted of them."""
        if contents:
            await self.contents.delete(contents)
            await self._store.run("forget_content", self._prefix, *contents)

    async def _rows(
        self, tenant: str, low: str, high: str, order: str, count: int
    ) -> tuple[str | None, list[FileView]]:
        """The files between two bounds; and the id behind which to read on, if there may be more."""
        args = (tenant, low, high, order, str(count))
        rows = cast("list[list[bytes]]", await self._store.run("list_files", self._prefix, *args))
        more = rows[-1][0].decode() if len(rows) == count else None
        return more, [_view(tenant, row) for row in rows if len(row) > 1]


@dataclass(frozen=True, slots=True)
class NewFile:
    """What a file is called, and whose it is."""

    tenant: str
    filename: str
    purpose: str
    expires_after_s: int | None
    id: str | None


class Draft:
    """Content on its way: it becomes a file by `keep`, or nothing at all. `Files.draft` makes it."""

    def __init__(self, files: Files, content: str, writer: Writer, most: int) -> None:
        self._files = files
        self._content = content
        self._writer = writer
        self._most = most
        self._held_at = time.monotonic()
        self._ours = True

    async def write(self, data: bytes) -> None:
        """Raises PayloadTooLarge."""
        if self._writer.size + len(data) > self._most:
            raise PayloadTooLarge(f"A file has {self._most} bytes at the most. Split it.", param="file")
        if time.monotonic() - self._held_at > HOLD_ON_S:
            await self._files.hold(self._content)
            self._held_at = time.monotonic()
        await self._writer.write(data)

    async def keep(
        self,
        tenant: str,
        filename: str,
        purpose: str,
        *,
        expires_after_s: int | None = None,
        file_id: str | None = None,
    ) -> FileView:
        """Makes it a file."""
        await self._writer.finish()
        self._ours = False  # if no answer comes it may be a file; if it is none, a sweep finds it
        fields = NewFile(tenant, filename, purpose, expires_after_s, file_id)
        return await self._files.add(self._content, self._writer.size, fields)

    async def drop(self) -> None:
        """Deletes it, unless it was kept. What cannot be deleted now, a sweep deletes."""
        if self._ours:
            await self._writer.abandon()
            with suppress(FilesUnavailable, StoreUnavailable):
                await self._files.discard([self._content])


def _view(tenant: str, row: list[bytes]) -> FileView:
    id_, content, name, purpose, size, created, ends = (field.decode() for field in row)
    return FileView(id_, tenant, name, purpose, int(size), int(created), int(ends) if ends else None, content)
