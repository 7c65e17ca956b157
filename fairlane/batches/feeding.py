"""A batch on its way into the queue: its file is checked, and its requests are submitted in windows.

A request that is submitted again, after a crash before that was noted, is the same job: its idempotency key says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from fairlane.asking import asked
from fairlane.batches.answers import Outcome, error_line
from fairlane.batches.checking import Check
from fairlane.batches.collecting import Collector
from fairlane.batches.ledger import Ledger, Record, idempotency_key, packed_faults
from fairlane.batches.lines import AROUND, MOST_BLANK, Line, TooManyBlanks, cut, parse
from fairlane.batches.stopping import Stopper
from fairlane.batches.store import tier_of
from fairlane.batches.view import BatchFault
from fairlane.errors import FairlaneError, NotFound
from fairlane.files import Files
from fairlane.head import Head
from fairlane.model import JobSpec, Submitted
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool

# Jobs of a batch in the queue. A collector that died may have marked EVENTS of them that are still there.
WINDOW: Final = 1_500
WINDOW_BYTES: Final = 32 << 20  # of their bodies, but for the last one
WINDOW_ANSWERS: Final = 64 << 20  # bytes of answers that they may have, as far as those before tell
FIRST: Final = 100  # while no answer has told
CHUNK: Final = 100
CHUNK_BYTES: Final = 4 << 20
STEP_S: Final = 1.0  # a step of feeding, so that other batches have their turn
MOST_CHECKS: Final = 2  # files that are half checked
FILE_MOST: Final = 1 << 40
PURPOSE: Final = "batch_output"
GONE: Final = "The input file was deleted."


def window(record: Record) -> int:
    """How many jobs of a batch may be in the queue: their answers, until they are collected, must not fill Redis."""
    return max(1, min(WINDOW, FIRST + 2 * record.marked, WINDOW_ANSWERS // max(1, record.answer_bytes)))


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Lines that were submitted together: the jobs that came of them, and those that the queue will never take."""

    jobs: list[tuple[str, int, int]]
    refused: list[Outcome]
    last: Line | None
    full: bool


class Feeder:
    """What brings batches into the queue. `max_attempts` and `max_body_bytes` are as for any job."""

    def __init__(
        self, queue: Queue, files: Files, ledger: Ledger, collector: Collector, max_attempts: int, max_body_bytes: int
    ) -> None:
        self._queue = queue
        self._files = files
        self._ledger = ledger
        self._collector = collector
        self._stopper = Stopper(queue, ledger, collector)
        self._checks: dict[str, Check] = {}
        self._max_attempts = max_attempts
        self._max_body_bytes = max_body_bytes

    # --- checking -----------------------------------------------------------------------------------------------------

    async def validate(self, record: Record, who: str) -> None:
        """Checks the file, for STEP_S; once all of it is checked the batch is in progress, or has failed."""
        batch = record.view
        check = self._checks.pop(batch.id, None) or Check(batch, self._max_body_bytes)
        try:
            await self._check(record, check)
        except NotFound:
            return await self._fail(record, who, Check.failed(batch, BatchFault("file_not_found", GONE)))
        if not check.done:
            self._checks[batch.id] = check
            while len(self._checks) > MOST_CHECKS:  # the oldest may be another worker's by now; else it begins anew
                del self._checks[next(iter(self._checks))]
            return None
        if check.count:
            return await self._fail(record, who, check)
        pool = await self._pool(record, check.model)
        if isinstance(pool, BatchFault):
            return await self._fail(record, who, Check.failed(batch, pool))
        fields = {"model": pool.name, "pool": pool.code, "total": check.requests}
        await self._ledger.turn(batch.id, who, "in_progress", fields)

    async def _check(self, record: Record, check: Check) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + STEP_S
        file = await self._files.get(record.view.tenant, record.view.input_file_id)
        place = {"ordinal": check.requests, "offset": check.offset, "number": check.lines}
        try:
            async with (
                aclosing(self._files.read(file, check.offset)) as pieces,
                aclosing(cut(pieces, self._max_body_bytes + AROUND, **place)) as lines,
            ):
                async for line in lines:
                    if not check.take(line) or loop.time() > until:
                        return
        except TooManyBlanks:
            check.blame(BatchFault("too_many_lines", f"A file has {MOST_BLANK} blank lines at the most."))
        check.done = True

    async def _pool(self, record: Record, model: str | None) -> Pool | BatchFault:
        if model is None:
            return BatchFault("empty_file", "The file has no requests.")
        unknown = BatchFault("model_not_found", f"No pool serves the model {model[:256]!r}.", 1, "body.model")
        if record.pools is not None and model not in record.pools:
            return unknown
        try:
            pool = await self._queue.pools.by_name(model)
        except NotFound:
            return unknown
        tier = tier_of(pool.policy)
        if record.tiers is not None and tier not in record.tiers:
            return BatchFault("tier_forbidden", f"The key that made the batch may not use its tier {tier!r}.")
        return pool

    async def _fail(self, record: Record, who: str, check: Check) -> None:
        batch, error_id = record.view, record.error_id
        if not error_id:
            error_id = await self._files.new_id()
            if not await self._ledger.note(batch.id, who, "validating", {"error_id": error_id}):
                return

        async def content() -> AsyncGenerator[bytes]:
            yield bytes(check.text)

        await self._files.put(
            batch.tenant,
            f"{batch.id}_errors.jsonl",
            PURPOSE,
            content(),
            FILE_MOST,
            expires_after_s=batch.output_lasts_s,
            file_id=error_id,
        )
        counts = {"total": check.count, "failed": check.count}
        fields = {"faults": packed_faults(check.faults), "error_file_id": error_id, **counts}
        await self._ledger.turn(batch.id, who, "failed", fields)

    async def _lines(self, record: Record) -> AsyncGenerator[Line]:
        """The batch's file from where it was fed to. Raises NotFound."""
        file = await self._files.get(record.view.tenant, record.view.input_file_id)
        most = self._max_body_bytes + AROUND
        async with (
            aclosing(self._files.read(file, record.offset)) as pieces,
            aclosing(cut(pieces, most, ordinal=record.fed, offset=record.offset)) as lines,
        ):
            async for line in lines:
                yield line

    # --- feeding ------------------------------------------------------------------------------------------------------

    async def feed(self, record: Record, who: str, pool: Pool) -> bool:
        """Submits what fits into the window, for STEP_S at the most. Returns whether the queue is full.

        Raises NotFound if the file was deleted meanwhile.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + STEP_S
        room, room_bytes = window(record) - record.open_jobs, WINDOW_BYTES - record.open_bytes
        async with aclosing(self._lines(record)) as lines:
            while room > 0 and room_bytes > 0 and loop.time() < until:
                ahead = await _ahead(lines, min(room, CHUNK), min(room_bytes, CHUNK_BYTES))
                if not ahead or not await self._ledger.note(
                    record.view.id, who, "in_progress", {"sent": ahead[-1].ordinal}
                ):
                    return False
                chunk = await self._submit(record, pool, ahead)
                if chunk.refused:
                    await self._collector.keep(record.view.id, chunk.refused)
                if chunk.last:
                    fed = chunk.last.ordinal
                    if not await self._ledger.fed(record, who, fed, chunk.last.end, chunk.jobs):
                        await self._take_back(record, pool, chunk)
                        return False
                if chunk.full or chunk.last is None or chunk.last.ordinal == record.view.total:
                    return chunk.full
                room -= len(chunk.jobs)
                room_bytes -= sum(size for _, _, size in chunk.jobs)
        return False

    async def _take_back(self, record: Record, pool: Pool, chunk: _Chunk) -> None:
        """These came too late. If the batch goes on, those of requests that are not done are another feeder's too."""
        batch_id, jobs = record.view.id, {job: ordinal for job, ordinal, _ in chunk.jobs}
        try:
            goes_on = (await self._ledger.load(batch_id)).view.status == "in_progress"
        except NotFound:
            goes_on = False
        if goes_on:
            marked = await self._ledger.marked(batch_id, list(jobs.values()))
            jobs = {job: ordinal for (job, ordinal), done in zip(jobs.items(), marked, strict=True) if done}
        await self._stopper.withdraw(pool, batch_id, jobs)

    async def _submit(self, record: Record, pool: Pool, chunk: Sequence[Line]) -> _Chunk:
        """These lines, up to the first that the queue has no room for."""
        batch_id = record.view.id
        marked = await self._ledger.marked(batch_id, [line.ordinal for line in chunk])
        todo = [line for line, done in zip(chunk, marked, strict=True) if not done]
        specs = [self._spec(record, pool, line) for line in todo]
        answers = iter(await self._queue.submit_many(pool, [spec for spec in specs if isinstance(spec, JobSpec)]))
        made, known = _Chunk([], [], chunk[-1], full=False), list[Line]()
        for line, spec in zip(todo, specs, strict=True):
            answer = next(answers) if isinstance(spec, JobSpec) else spec
            if isinstance(answer, Submitted):
                made.jobs.append((answer.id, line.ordinal, len(line.text or b"")))
            elif isinstance(answer, FairlaneError) and answer.code == "idempotency_mismatch":
                known.append(line)  # the tier has changed since it was submitted: that job stands
            elif isinstance(answer, FairlaneError) and (answer.retryable or answer.code == "unknown_tier"):
                if answer.code != "queue_full" and answer.code != "unknown_tier":
                    raise answer
                before = next((one for one in reversed(chunk) if one.ordinal < line.ordinal), None)
                made = replace(made, last=before, full=True)
                break
            else:
                made.refused.append(_refused(batch_id, line, answer))
        sizes = {line.ordinal: len(line.text or b"") for line in known}
        stand = await self._ledger.find_jobs(pool, record.view, list(sizes), bar=False)
        made.jobs.extend((job, ordinal, sizes[ordinal]) for job, ordinal in stand.items())
        return made

    def _spec(self, record: Record, pool: Pool, line: Line) -> JobSpec | Exception:
        batch = record.view
        try:
            request = parse(line.text or b"", batch.endpoint, self._max_body_bytes)
            what = asked(batch.endpoint, request.body, with_prefix=pool.policy.affinity == "prefix")
        except (ValueError, FairlaneError) as error:  # it was found good; this version is stricter than that one was
            return error
        head = Head(batch.endpoint, pool.name, line=line.ordinal, custom_id=request.custom_id)
        return JobSpec(
            tenant=batch.tenant,
            tier=tier_of(pool.policy),
            body=what.body,
            head=head.encode(),
            input_tokens=what.input_tokens,
            output_tokens=what.output_tokens,
            expected_ms=what.expected_ms,
            max_attempts=self._max_attempts,
            deadline_ms=max(0, batch.expires_at_ms - record.now_ms),
            idempotency_key=idempotency_key(batch.id, line.ordinal),
            batch_id=batch.id,
            prefix=what.prefix,
        )


async def _ahead(lines: AsyncIterator[Line], most: int, most_bytes: int) -> list[Line]:
    """The next lines, one at least if there is any."""
    ahead, size = list[Line](), 0
    while len(ahead) < most and size < most_bytes and (line := await anext(lines, None)):
        ahead.append(line)
        size += len(line.text or b"")
    return ahead


def _refused(batch_id: str, line: Line, why: Exception) -> Outcome:
    code = why.code if isinstance(why, FairlaneError) else "invalid_request"
    return Outcome(line.ordinal, "", "bad", error_line(batch_id, line.ordinal, None, code, str(why)))
