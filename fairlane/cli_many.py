"""`fairlane submit` of JSONL: as jobs, each answered as it ends, or as one batch."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO, cast

import typer

from fairlane import joblines
from fairlane.answers import Shown, line_of
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.following import WAITS, follow_batch, together
from fairlane.joblines import Given, JobLine
from fairlane.progress import Bar, Board
from fairlane.reaching import Reach, only
from fairlane.terminal import REFUSED, UNSUCCESSFUL
from fairlane.terminal import counted as in_words

if TYPE_CHECKING:
    from fairlane.job import Job
    from producer.client.client import AsyncClient
    from producer.client.handle import AsyncHandle

PATIENCE_S: Final = 60.0  # while the queue is full, or away
FEW: Final = 10
IN_BATCH: Final = frozenset({"model", "endpoint", "body", "idempotency_key", "metadata"})

Waiting = asyncio.Queue["tuple[str, AsyncHandle] | None"]


@dataclass(frozen=True, slots=True)
class Many:
    """JSONL that was asked for, what the command line says of all lines, and where the answers go."""

    stream: BinaryIO
    given: Given
    shown: Shown


async def submit_jobs(to: Reach, many: Many, wait: bool) -> None:
    """Each line a job. Raises Exit if one did not succeed, or was refused."""
    counted = joblines.count(many.stream, many.given)
    models = await to.models()  # if nobody is there, that is said now; later on it is waited for
    if counted.unnamed:
        many = replace(many, given=many.given.named(only(models)))
    run = _Run(many, counted.jobs)
    try:
        async with to.client(PATIENCE_S) as client:
            with many.shown.stream() as out, Bar(counted.jobs, quiet=many.shown.as_json or not wait) as bar:
                await run.go(client, out, bar, wait)
    except (asyncio.CancelledError, BrokenPipeError):  # Ctrl-C, or nobody reads on
        run.say_how_to_go_on()
        raise
    run.end(wait)


class _Run:
    """Some handles and ids are all that is held of the jobs, however many there are."""

    def __init__(self, many: Many, total: int) -> None:
        self._many = many
        self._total = total
        self._taken = self._refused = self._failed = 0

    async def go(self, client: AsyncClient, out: TextIO, bar: Bar, wait: bool) -> None:
        waiting: Waiting = asyncio.Queue()

        async def submit() -> None:
            for part in joblines.parts(self._many.stream, self._many.given):
                handles = await client.submit_many([line.item for line in part])
                for line, handle in zip(part, handles, strict=True):
                    self._landed(line, handle, out, bar, waiting if wait else None)
            for _ in range(WAITS):
                waiting.put_nowait(None)

        async def answer() -> None:
            while (one := await waiting.get()) is not None:
                custom_id, handle = one
                job = await _outcome(handle)
                failed = isinstance(job, FairlaneError) or job.state != "succeeded"
                self._failed += failed
                typer.echo(json.dumps(line_of(custom_id, job), ensure_ascii=False), file=out)
                bar.step(failed=failed)

        await together(submit(), *(answer() for _ in range(WAITS)))

    def _landed(self, line: JobLine, handle: AsyncHandle, out: TextIO, bar: Bar, waiting: Waiting | None) -> None:
        refused = handle.error
        if refused:
            self._refused += 1
            if self._refused <= FEW:
                typer.echo(f"line {line.number}: {refused.message}", err=True)
        else:
            self._taken += 1
        if waiting is not None and not refused:
            waiting.put_nowait((line.custom_id, handle))
            return
        if waiting is not None:
            bar.step(failed=True)
        as_json = waiting is not None or self._many.shown.as_json
        if as_json and refused:
            typer.echo(json.dumps(line_of(line.custom_id, refused)), file=out)
        elif as_json:
            typer.echo(json.dumps({"id": handle.id, "custom_id": line.custom_id}), file=out)
        elif not refused:
            typer.echo(handle.id, file=out)

    def end(self, wait: bool) -> None:
        """Says what was not as it should be. Raises Exit."""
        if self._refused:
            typer.echo(f"{in_words(self._refused, 'job was', 'jobs were')} refused.", err=True)
        if self._failed:
            typer.echo(f"{in_words(self._failed, 'job')} of {self._total:,} did not succeed.", err=True)
        if self._refused and not self._taken:
            raise typer.Exit(REFUSED)
        if self._refused or self._failed:
            raise typer.Exit(UNSUCCESSFUL)

    def say_how_to_go_on(self) -> None:
        left = self._total - self._taken - self._refused
        words = f"{in_words(self._taken, 'job goes', 'jobs go')} on"
        words += f"; {left:,} of {self._total:,} were not submitted yet" if left else ""
        again = "The same command, with the same input and"
        typer.echo(f"{words}. {again} --key {self._many.given.key}, goes on from here.", err=True)


async def _outcome(handle: AsyncHandle) -> Job | FairlaneError:
    try:
        return await handle.wait()
    except FairlaneError as error:  # it is past its retention, or the key was revoked
        return error


async def submit_batch(to: Reach, many: Many, wait: bool, webhook: str | None) -> None:
    """All lines as one batch, whose end `webhook` is told. Raises Exit if one did not succeed."""
    counted = joblines.count(many.stream, many.given)
    if counted.unnamed:
        many = replace(many, given=many.given.named(only(await to.models())))
    async with to.client() as client:
        lines = _batch_lines(joblines.jobs(many.stream, many.given))
        handle = await client.batches.submit(lines, idempotency_key=many.given.key, webhook=webhook)
        if not wait:
            many.shown.say_id(handle.id, (await handle.batch()).raw if many.shown.as_json else {})
            return
        try:
            with Board(sys.stderr, transient=True) as board:
                ended = await follow_batch(handle, board)
            await many.shown.batch(handle, ended)
        except (asyncio.CancelledError, BrokenPipeError):  # Ctrl-C, or nobody reads on
            typer.echo(f"{handle.id} goes on. Come back with: {to.again('watch', handle.id)}", err=True)
            raise


def _batch_lines(lines: Iterable[JobLine]) -> Iterator[Mapping[str, object]]:
    """The lines as OpenAI defines them. Raises InvalidRequest for what only jobs can have."""
    from producer.client.submission import submission_of

    first: tuple[str, str] | None = None
    for line in lines:
        metadata = cast("Mapping[str, object]", line.item.get("metadata") or {})
        wrong = [*(line.item.keys() - IN_BATCH), *(["metadata"] if metadata.keys() - {"custom_id"} else [])]
        if wrong:
            raise _no_batch(line, f"{', '.join(sorted(wrong))} cannot be said of a batch")
        asked = submission_of(line.item).request
        first = first or (asked.endpoint, asked.model)
        if first != (asked.endpoint, asked.model):
            raise _no_batch(
                line, f"a batch has one endpoint and one model, those of its first line: {', '.join(first)}"
            )
        body = {"model": asked.model, **asked.body}
        yield {"custom_id": line.custom_id, "method": "POST", "url": asked.endpoint, "body": body}


def _no_batch(line: JobLine, why: str) -> InvalidRequest:
    return InvalidRequest(f"Nothing was submitted:\nline {line.number}: {why}.", param="batch")
