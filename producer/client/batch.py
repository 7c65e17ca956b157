"""A batch's handle: how far it is, and what came of its lines."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Final, TypeAlias

from fairlane.errors import BatchFailed, FairlaneError, WaitTimeout
from fairlane.job import Json
from producer.client.files import AsyncFiles
from producer.client.meter import Meter
from producer.client.ordering import InOrder
from producer.client.patience import patiently
from producer.client.records import Batch, BatchItem, BatchStatus, LineError, Progress, line_error
from producer.client.session import LATE_S, Session

FIRST_LOOK_S: Final = 0.2
LONGEST_S: Final = 5.0  # from one look to the next
GROWTH: Final = 1.5
TIER: Final = "batch"
TOLD: Final = 3  # of what is wrong in a file, within the error's message
Watcher: TypeAlias = Callable[[Progress], object]


class AsyncBatchHandle:
    """One batch, in whatever process: all that it knows by itself is the id."""

    def __init__(self, session: Session, batch_id: str) -> None:
        self.id = batch_id
        self._session = session
        self._files = AsyncFiles(session)
        self._meter = Meter()
        self._done = 0

    async def batch(self) -> Batch:
        """All about the batch, as it is now. Raises NotFound."""
        return await self._session.ask(lambda to: to.archive.batch(self.id))

    async def status(self) -> BatchStatus:
        """Its status now."""
        return (await self.batch()).status

    async def progress(self) -> Progress:
        """How far it is now. The rate, and so the time left, are known from the second look on."""
        return await self._progress(await self.batch())

    async def cancel(self) -> Batch:
        """Cancels what was not answered yet. Repeatable. Raises IllegalTransition if the batch has ended otherwise."""
        return await self._session.ask(lambda to: to.archive.cancel(self.id))

    async def watch(self, timeout: float | None = None) -> AsyncGenerator[Progress]:  # noqa: ASYNC109
        """How far the batch is, each time it is looked at, until it is finished. Raises WaitTimeout, NotFound.

        What passes, such as a restart of the front door, is waited out.
        """
        ends = None if timeout is None else time.monotonic() + timeout
        pause = FIRST_LOOK_S
        while True:
            progress = await self._look(ends)
            yield progress
            if progress.batch.finished:
                return
            left = LONGEST_S if ends is None else ends - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"{self.id} is not finished after {timeout:g} s. Wait again, or cancel it.")
            await asyncio.sleep(min(left, pause * random.uniform(0.8, 1.2)))
            pause = min(LONGEST_S, pause * GROWTH)

    async def wait(self, timeout: float | None = None, *, progress: Watcher | None = None) -> Batch:  # noqa: ASYNC109
        """The finished batch, whatever came of it; `progress` is called at each look. Raises WaitTimeout."""
        batch: Batch | None = None
        async with aclosing(self.watch(timeout)) as looks:
            async for seen in looks:
                batch = seen.batch
                if progress:
                    progress(seen)
        assert batch is not None  # noqa: S101  # it is looked at once at least
        return batch

    async def results(
        self,
        *,
        ordered: bool = True,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> AsyncGenerator[BatchItem]:
        """What came of each line, once it is known: in the order of the input file, or else as they finish.

        In order they come when the batch is finished. Of a batch that was cancelled or is past its end each line is
        among them too, with its error. Raises BatchFailed if the file was refused; WaitTimeout if the batch is not
        finished after `timeout` seconds.
        """
        async with aclosing(self.parts(ordered=ordered, timeout_s=timeout)) as parts:
            async for part in parts:
                for item in part:
                    yield item

    def parts(self, *, ordered: bool, timeout_s: float | None) -> AsyncGenerator[Sequence[BatchItem]]:
        """`results`, some at a time."""
        return self._in_order(timeout_s) if ordered else self._as_finished(timeout_s)

    async def errors(self) -> AsyncGenerator[LineError]:
        """What went wrong in a finished batch: the lines without a good answer, or why its file was refused."""
        batch = await self.batch()
        if batch.error_file_id is None:
            for fault in batch.errors:
                yield fault
            return
        async with aclosing(self._files.lines(batch.error_file_id)) as lines:
            async for line in lines:
                yield line_error(line)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    async def _in_order(self, timeout_s: float | None) -> AsyncGenerator[Sequence[BatchItem]]:
        batch = accepted(await self.wait(timeout_s))
        with InOrder() as outcomes:
            async for part in self._outcomes(batch):
                for line in part:
                    outcomes.add(line)
            async with aclosing(self._files.parts(batch.input_file_id)) as asked:
                async for part in asked:
                    yield [outcomes.of(line["custom_id"]) for line in part]

    async def _as_finished(self, timeout_s: float | None) -> AsyncGenerator[Sequence[BatchItem]]:
        """What the front door shows while the batch runs; and at the end what the files have beyond that."""
        seen: set[str] = set()

        def new(items: Iterable[BatchItem]) -> list[BatchItem]:
            fresh = {item.custom_id: item for item in items if item.custom_id not in seen}
            seen.update(fresh)
            return list(fresh.values())

        batch: Batch | None = None
        after: str | None = None
        async with aclosing(self.watch(timeout_s)) as looks:
            async for look in looks:
                batch = look.batch
                while True:
                    at = after
                    part = await self._session.ask(lambda to: to.archive.partial(self.id, at))  # noqa: B023
                    if part is None or not part.items:
                        break
                    yield new(part.items)
                    after = part.next
        assert batch is not None  # noqa: S101  # it is looked at once at least
        async for lines in self._outcomes(accepted(batch)):
            yield new(map(BatchItem.parse, lines))

    async def _outcomes(self, batch: Batch) -> AsyncGenerator[Sequence[Mapping[str, Json]]]:
        """The lines of the output and error files, some at a time."""
        for file_id in (batch.output_file_id, batch.error_file_id):
            if file_id is not None:
                async with aclosing(self._files.parts(file_id)) as parts:
                    async for part in parts:
                        yield part

    async def _look(self, ends: float | None) -> Progress:
        """One look, which outlives what passes, but not the time to wait."""
        try:
            async with asyncio.timeout(None if ends is None else max(LATE_S, ends - time.monotonic() + LATE_S)):
                return await self._progress(
                    await patiently(lambda: self._session.transport.archive.batch(self.id), None)
                )
        except TimeoutError as error:
            raise WaitTimeout(f"What {self.id} does could not be found out in time.") from error

    async def _progress(self, batch: Batch) -> Progress:
        """With the place in the queue, if nothing has happened since the last look."""
        done, self._done = self._done, batch.counts.completed + batch.counts.failed
        waits = batch.status == "in_progress" and done == self._done
        return self._meter.saw(batch, await self._place() if waits else None)

    async def _place(self) -> int | None:
        """How many jobs are before the next of the batch's own, as far as that can be told."""
        with suppress(FairlaneError):
            to = self._session.transport
            page = await to.page("queued", TIER, None)
            for job in page.jobs:
                if job.batch_id == self.id:
                    said = (await to.explain(job.id)).get("position")
                    return said if isinstance(said, int) else None
        return None


def accepted(batch: Batch) -> Batch:
    """The batch. Raises BatchFailed if its file was refused."""
    if batch.status != "failed":
        return batch
    told = "; ".join(
        error.message if error.line is None else f"line {error.line}: {error.message}" for error in batch.errors[:TOLD]
    )
    raise BatchFailed(f"The file of {batch.id} was refused: {told or 'it was not said why.'}")
