"""The end of a batch: its files are put together from the parts, and what it took is given back.

Each request has one line in one of the two files: the first answer that was marked, or why it has none.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from typing import Final, cast

import structlog

from fairlane import strictjson
from fairlane.batches.answers import LOST, WHY, Kind, Seen, error_line, read_part
from fairlane.batches.feeding import FILE_MOST, PURPOSE
from fairlane.batches.ledger import Ending, Ledger, Record
from fairlane.batches.lines import cut
from fairlane.errors import NotFound
from fairlane.files import Files
from fairlane.queue.engine import Queue

PARTS: Final = 100
LINE_MOST: Final = 1 << 40
MARKS: Final = 1_000  # looked up by one call
GOOD: Final = ord("o")
LOST_KIND: Final = ord("l")
log = structlog.get_logger()


class Finisher:
    """What brings batches to their end."""

    def __init__(self, queue: Queue, files: Files, ledger: Ledger) -> None:
        self._queue = queue
        self._files = files
        self._ledger = ledger

    async def freeze(self, record: Record, who: str, ending: Ending) -> None:
        """From here on nothing is marked any more."""
        batch = record.view
        fields = {
            "ending": ending,
            "output_id": await self._files.new_id(),
            "error_id": await self._files.new_id(),
        }
        if ending == "cancelled":
            await self._ledger.note(batch.id, who, "cancelling", fields)
        else:
            await self._ledger.turn(batch.id, who, "finalizing", fields)

    async def finish(self, record: Record, who: str, ending: Ending) -> None:
        """Writes both files, unless they are there, and ends the batch."""
        batch = record.view
        kinds = await self._kinds(record)
        completed = kinds.count(GOOD)
        failed = batch.total - completed
        fields: dict[str, object] = {"completed": completed, "failed": failed}
        for name, good, count, id_ in (
            ("output", True, completed, record.output_id),
            ("error", False, failed, record.error_id),
        ):
            if count:
                filename = f"{batch.id}_{'output' if good else 'errors'}.jsonl"
                async with aclosing(self._file_lines(record, kinds, ending, good=good)) as lines:
                    lasts = batch.output_lasts_s
                    await self._files.put(
                        batch.tenant, filename, PURPOSE, lines, FILE_MOST, expires_after_s=lasts, file_id=id_
                    )
                fields[f"{name}_file_id"] = id_
        if ending == "failed":
            fields["faults"] = '[{"code": "file_not_found", "message": "The input file was deleted."}]'
        await self._ledger.turn(batch.id, who, ending, fields)

    async def clean(self, record: Record) -> bool:
        """Deletes what an ended batch does not need any more; True when all is gone."""
        batch_id = record.view.id
        with suppress(NotFound):  # the pool is gone, or the batch never had one
            await self._ledger.leave(await self._queue.pools.by_code(record.pool), batch_id)
        parts = await self._ledger.parts(batch_id, 0, PARTS)
        if parts:
            await self._files.contents.delete(parts)
            await self._ledger.parts(batch_id, 0, 1, take_off=len(parts))
        return not parts

    async def _kinds(self, record: Record) -> bytearray:
        """Where each request has its line, by ordinal; LOST also what was marked and is in none of the parts."""
        kinds = bytearray(record.view.total + 1)
        gaps = 0
        async for ordinal, kind, _ in self._answers(record):
            if ordinal == 0:
                gaps += 1
            elif not kinds[ordinal]:
                kinds[ordinal] = ord(kind)
        if gaps:  # a part is gone, and nobody knows which of the lines without an answer were in it
            missing = [ordinal for ordinal in range(1, len(kinds)) if not kinds[ordinal]]
            for start in range(0, len(missing), MARKS):
                some = missing[start : start + MARKS]
                for ordinal, marked in zip(some, await self._ledger.marked(record.view.id, some), strict=True):
                    kinds[ordinal] = LOST_KIND if marked else 0
        return kinds

    async def _file_lines(
        self, record: Record, kinds: bytearray, ending: Ending, *, good: bool
    ) -> AsyncGenerator[bytes]:
        """The lines of the output file, or of the error file."""
        seen, wanted = Seen(record.view.total), "o" if good else "e"
        async for ordinal, kind, text in self._answers(record):
            if ordinal and seen.first(ordinal) and kind == wanted:
                yield text + b"\n"
        if not good:
            missing = (ordinal for ordinal in range(1, len(kinds)) if kinds[ordinal] in (0, LOST_KIND))
            async for ordinal, custom_id in self._named(record, missing):
                code, message = LOST if kinds[ordinal] else WHY[ending]
                yield error_line(record.view.id, ordinal, custom_id, code, message)

    async def _answers(self, record: Record) -> AsyncGenerator[tuple[int, Kind, bytes]]:
        """What is in the parts, in the order in which they were marked; the ordinal 0 for a part that is gone."""
        first = 0
        while names := await self._ledger.parts(record.view.id, first, PARTS):
            for name in names:
                try:
                    async with aclosing(self._files.contents.read(name)) as pieces:
                        async for line in cut(pieces, LINE_MOST):
                            yield read_part(line.text or b"")
                except NotFound:
                    log.error("part_of_a_batch_is_gone", batch=record.view.id, part=name)
                    yield 0, "l", b""
            first += len(names)

    async def _named(self, record: Record, ordinals: Iterator[int]) -> AsyncGenerator[tuple[int, str | None]]:
        """The custom_ids of some requests, read from the input file again; None if that was deleted."""
        batch = record.view
        wanted = next(ordinals, 0)
        try:
            file = await self._files.get(batch.tenant, batch.input_file_id)
            async with aclosing(self._files.read(file)) as pieces:
                async for line in cut(pieces, LINE_MOST):
                    if line.ordinal == wanted:
                        yield wanted, _custom_id(line.text or b"")
                        wanted = next(ordinals, 0)
                    if not wanted:
                        return
        except NotFound:
            pass
        for ordinal in (wanted, *ordinals):
            yield ordinal, None


def _custom_id(text: bytes) -> str:
    return cast(str, strictjson.parse(text)["custom_id"])
