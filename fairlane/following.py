"""Following jobs to their end, and telling how it is with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from fairlane.errors import FairlaneError, WaitTimeout, failure
from fairlane.progress import Board, Part
from fairlane.terminal import counted, duration

if TYPE_CHECKING:
    from fairlane.job import Job
    from producer.client.batch import AsyncBatchHandle
    from producer.client.client import AsyncClient
    from producer.client.handle import AsyncHandle
    from producer.client.records import Batch, LineError

LOOK_S: Final = 1.0
WAITS: Final = 64  # at once


async def follow(client: AsyncClient, handle: AsyncHandle, board: Board) -> Job:
    """The job when it has its outcome; until then the board shows how it is with it.

    Raises what the first look at it raises, such as NotFound; later on, what may pass is waited out, and said.
    """
    job = await handle.job()
    away = False
    while True:
        board.show(job.id, job.state, await _words(client, job), facts(job))
        if job.finished:
            return job
        try:
            job = await handle.wait(LOOK_S)
        except WaitTimeout:
            try:
                job = await handle.job()
                away = False
            except FairlaneError as error:
                if not error.retryable:
                    raise
                if not away:
                    board.note(f"{error.message} Trying again; the work goes on.")
                away = True


def is_batch(id_: str) -> bool:
    """Whether an id is that of a batch."""
    return id_.startswith("batch_")


async def follow_batch(handle: AsyncBatchHandle, board: Board) -> Batch:
    """The batch when it has ended; as `follow`."""
    batch = await handle.batch()
    async with aclosing(handle.watch()) as looks:
        async for look in looks:
            batch = look.batch
            words = batch.status.replace("_", " ")
            if look.place:
                words += f"; about {counted(look.place, 'job starts', 'jobs start')} before its next"
            words += "".join(f"; {fault_of(error)}" for error in batch.errors[:1])
            part = Part(look.done, look.total, look.failed, look.rate) if look.total else None
            board.show(batch.id, batch.status, words, batch.raw, part)
    return batch


def fault_of(error: LineError) -> str:
    """What is wrong in a batch's file, and where."""
    return error.message if error.line is None else f"line {error.line}: {error.message}"


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Does all of it at once; the first error ends the rest, and is raised as it is."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _words(client: AsyncClient, job: Job) -> str:
    if job.finished:
        return outcome(job)
    now = time.time()
    if job.state == "leased":
        attempt = job.attempts[-1] if job.attempts else None
        return f"runs on {attempt.backend} for {duration(1000 * (now - attempt.started_at))}" if attempt else "runs"
    try:
        why = await client.explain(job.id)
    except FairlaneError:  # it may run by now; what matters is told by the next look
        return job.state
    return _waiting(job, why, now)


def _waiting(job: Job, why: Mapping[str, Any], now: float) -> str:
    words = job.state
    if job.state == "delayed" and job.not_before:
        words += f" for {duration(1000 * (job.not_before - now))}"
    if why["position"]:
        words += f"; {place(why['position'])}"
    if why["estimated_start_s"] is not None and job.state == "queued":
        words += f", it starts in about {duration(1000 * why['estimated_start_s'])}"
    for one in why["ahead"]:
        if one["what"] in SILENT:
            words += f"; {silence(one)}"
    return words


SILENT: Final = ("no_backend", "no_answer")


def silence(one: Mapping[str, Any]) -> str:
    """Why nobody takes a job, out of what explains that it waits."""
    if one["what"] == "no_backend":
        return "its pool has no backend; `fairlane pool add` gives it one"
    return f"no backend answers ({', '.join(map(_silent, one['backends']))})"


def _silent(backend: Mapping[str, Any]) -> str:
    words = f"{backend['name']}: {'not heard' if backend['reason'] == 'stale' else backend['reason']}"
    if backend["since"] is None:
        return words
    return f"{words} since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(backend['since']))}"


def place(position: int) -> str:
    """How many jobs are before one."""
    return f"about {counted(position, 'job starts', 'jobs start')} before it" if position else "it is next"


def outcome(job: Job) -> str:
    """How a job ended, in words: `succeeded in 1.2 s (waited 300 ms), 12 + 40 tokens`."""
    words: str = job.state
    if job.error and job.state == "failed":
        words += f": {failure(job)}"
    if job.state == "succeeded" and job.finished_at and job.started_at:
        waited = job.started_at - max(job.created_at, job.not_before or 0.0)
        words += f" in {duration(1000 * (job.finished_at - job.created_at))} (waited {duration(1000 * waited)})"
    if job.usage:
        words += f", {job.usage.prompt_tokens} + {job.usage.completion_tokens} tokens"
    return words


def facts(job: Job) -> Mapping[str, Any]:
    """The job's JSON without the answer: `fairlane results` gives that."""
    return {**job.raw, "result": None}


def unsuccessful(states: Sequence[str]) -> int:
    """How many of these outcomes are not what was hoped for."""
    return sum(state not in ("succeeded", "completed") for state in states)
