"""What files hold: bytes in a folder, or in any store that fsspec knows (`s3://…` with s3fs installed, `memory://…`).

They are written and read in pieces, in threads, and never held whole. Names are ours: nothing that a caller sends
becomes part of a path.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar, cast

import fsspec  # pyright: ignore[reportMissingTypeStubs]
import structlog
from fsspec.implementations.local import LocalFileSystem  # pyright: ignore[reportMissingTypeStubs]
from fsspec.implementations.memory import MemoryFileSystem  # pyright: ignore[reportMissingTypeStubs]

from fairlane.errors import FilesUnavailable, InvalidRequest, NotFound

PIECE: Final = 1 << 20  # bytes that go to a thread at once
BLOCK: Final = 8 << 20  # what an object store's client holds of one file: at 10,000 blocks, files of 80 GB
THREADS: Final = 8
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
T = TypeVar("T")
log = structlog.get_logger()


class _Stream(Protocol):
    def read(self, most: int, /) -> bytes: ...
    def seek(self, position: int, /) -> object: ...
    def write(self, data: bytes, /) -> object: ...
    def flush(self) -> None: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class _InThread(Protocol):
    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


class _Filesystem(Protocol):
    def open(self, path: str, mode: str, block_size: int) -> _Stream: ...
    def cat_file(self, path: str) -> bytes: ...
    def rm_file(self, path: str) -> None: ...


class Contents:
    """The store at `url`: a folder, made with mode 0700 when it is first written to, or a URL of fsspec.

    Raises InvalidRequest if there is no such kind of store, or what it needs is not installed. All methods raise
    FilesUnavailable.
    """

    def __init__(self, url: str) -> None:
        try:
            system, root = cast("tuple[object, str]", fsspec.url_to_fs(url))  # pyright: ignore[reportUnknownMemberType]
        except (ImportError, ValueError) as error:
            raise InvalidRequest(
                f"FAIRLANE_FILES_URL: files cannot be kept at {url.partition('://')[0]}://…: {error}."
            ) from error
        self._system = cast(_Filesystem, system)
        self._root = root.rstrip("/")
        self._local = isinstance(system, LocalFileSystem)
        self._in_memory = isinstance(system, MemoryFileSystem)
        self._threads = ThreadPoolExecutor(THREADS, "files")

    async def begin(self, name: str) -> Writer:
        """Writes anew; `finish` or `abandon` must follow."""
        path = self._path(name)
        return Writer(self._in_thread, await self._in_thread(lambda: self._open(path)), on_disk=self._local)

    @asynccontextmanager
    async def write(self, name: str) -> AsyncGenerator[Writer]:
        """Writes anew. It is there, and safe on a disk, when the block ends; after an error in it, it is gone."""
        writer = await self.begin(name)
        try:
            yield writer
            await writer.finish()
        except BaseException:
            await writer.abandon()
            with suppress(FilesUnavailable):
                await self.delete([name])
            raise

    async def read(self, name: str, start: int = 0) -> AsyncGenerator[bytes]:
        """All of it from the byte `start` on, piece by piece. Raises NotFound."""
        path = self._path(name)
        stream = await self._in_thread(lambda: self._open_to_read(path))
        try:
            if start:
                await self._in_thread(lambda: stream.seek(start))
            while piece := await self._in_thread(lambda: stream.read(PIECE)):
                yield piece
        finally:
            await self._in_thread(stream.close)

    async def delete(self, names: Iterable[str]) -> None:
        """Deletes those that are there."""
        for path in map(self._path, names):
            with suppress(NotFound):
                await self._in_thread(lambda path=path: self._system.rm_file(path))

    def _path(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no content's name")
        return f"{self._root}/{name}"

    def _open_to_read(self, path: str) -> _Stream:
        if self._in_memory:  # fsspec gives all readers of a file in memory one stream, which has one position
            return io.BytesIO(self._system.cat_file(path))
        return self._system.open(path, "rb", block_size=BLOCK)

    def _open(self, path: str) -> _Stream:
        if self._local:
            Path(self._root).mkdir(0o700, parents=True, exist_ok=True)
        return self._system.open(path, "wb", block_size=BLOCK)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Also a cancelled call waits for its thread to end: two threads must never hold one stream."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            while not future.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([future])
            future.exception()
            raise
        except FileNotFoundError as error:
            raise NotFound("The content of this file is gone.") from error
        except Exception as error:
            log.warning("files_unavailable", why=repr(error))
            raise FilesUnavailable() from error


class Writer:
    """One content that is being written; `size` is what was given to it so far, in bytes."""

    def __init__(self, in_thread: _InThread, stream: _Stream, *, on_disk: bool) -> None:
        self.size = 0
        self._in_thread = in_thread
        self._stream = stream
        self._on_disk = on_disk
        self._gathered = bytearray()

    async def write(self, data: bytes) -> None:
        self._gathered += data
        self.size += len(data)
        if len(self._gathered) >= PIECE:
            await self._flush()

    async def finish(self) -> None:
        """Writes the rest, to the disk itself if it is one of ours."""
        await self._flush()
        await self._in_thread(self._close)

    async def abandon(self) -> None:
        """Ends it, whatever was written; what is left of it is to be deleted."""
        with suppress(FilesUnavailable, NotFound):
            await self._in_thread(self._stream.close)

    async def _flush(self) -> None:
        piece = bytes(self._gathered)
        self._gathered.clear()
        await self._in_thread(lambda: self._stream.write(piece))

    def _close(self) -> None:
        if self._on_disk:
            self._stream.flush()
            os.fsync(self._stream.fileno())
        self._stream.close()
