"""What is uploaded: bytes that can be read again from the start, since an upload may be tried again."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import AsyncGenerator, Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import IO, Final, Self

from fairlane.errors import InvalidRequest

PIECE: Final = 256 << 10
IN_MEMORY: Final = 1 << 20
BREATH: Final = 100


class Content:
    """A context manager: it closes what it reads from."""

    def __init__(self, source: IO[bytes], filename: str, pieces: Iterable[bytes | str] = ()) -> None:
        self._source = source
        self._pieces = pieces
        self.filename = filename

    @classmethod
    def of_path(cls, path: str | PathLike[str], filename: str | None) -> Content:
        """Raises InvalidRequest."""
        try:
            return cls(Path(path).open("rb"), filename or Path(path).name)
        except OSError as error:
            raise InvalidRequest(f"The file cannot be read: {error}.", param="path") from error

    @classmethod
    def of_bytes(cls, content: bytes, filename: str) -> Content:
        return cls(io.BytesIO(content), filename)

    @classmethod
    def of_pieces(cls, pieces: Iterable[bytes | str], filename: str) -> Content:
        """What it is filled with is kept in memory while it is small, else in a temporary file."""
        return cls(tempfile.SpooledTemporaryFile(IN_MEMORY), filename, pieces)

    def fill(self) -> Iterator[None]:
        """Takes all of the pieces, BREATH of them at each step. Closes if one cannot be had."""
        try:
            for n, piece in enumerate(self._pieces):
                self._source.write(piece.encode() if isinstance(piece, str) else piece)
                if n % BREATH == BREATH - 1:
                    yield
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """In bytes."""
        return self._source.seek(0, io.SEEK_END)

    def first_line(self) -> bytes:
        self._source.seek(0)
        return self._source.readline()

    async def pieces(self) -> AsyncGenerator[bytes]:
        """All of it, from the start."""
        self._source.seek(0)
        while piece := await asyncio.to_thread(self._source.read, PIECE):
            yield piece

    def close(self) -> None:
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
