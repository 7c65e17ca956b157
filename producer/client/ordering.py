"""The outcomes of a batch's lines, to be read in another order than they came: in a temporary file, not in memory."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from typing import Final, Self

from fairlane.errors import NotFound
from producer.client.records import BatchItem

IN_MEMORY: Final = 8 << 20


class InOrder:
    """A context manager."""

    def __init__(self) -> None:
        self._lines = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  # closed with this
        self._places: dict[str, tuple[int, int]] = {}
        self._end = 0

    def add(self, line: Mapping[str, object]) -> None:
        """Keeps an outcome, by its `custom_id`."""
        text = json.dumps(line).encode()
        self._lines.write(text)
        self._places[str(line["custom_id"])] = (self._end, len(text))
        self._end += len(text)

    def of(self, custom_id: str) -> BatchItem:
        """Raises NotFound."""
        if custom_id not in self._places:
            raise NotFound(f"The batch's files hold no outcome of {custom_id!r}.")
        at, length = self._places[custom_id]
        self._lines.seek(at)
        return BatchItem.parse(json.loads(self._lines.read(length)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
