"""`fairlane watch` and `tail`: what becomes of these jobs and batches, and what ends at all."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import typer

from fairlane.errors import NotFound
from fairlane.following import LOOK_S, WAITS, facts, follow, follow_batch, is_batch, outcome, together, unsuccessful
from fairlane.progress import STYLES, Board, Part
from fairlane.reaching import Reach, reaching
from fairlane.terminal import REFUSED, UNSUCCESSFUL, AsJson, Ids, PoolNames, duration, ids_of, pools_named, say_json

if TYPE_CHECKING:
    from fairlane.job import Job, JobState
    from fairlane.standing import Finish
    from producer.client.client import AsyncClient

ROWS_MOST: Final = 20  # of more jobs it is only told how they end
REFUSAL: Final = "not found"
FIRST: Final = 10
QUEUE_LOOK_S: Final = 0.5
AWAY_S: Final = 60.0  # so long a front door may be away
ALIVE: Final[tuple[JobState, ...]] = ("leased", "queued", "delayed")
ALIVE_MOST: Final = 500


@reaching(first="server")
def watch(to: Reach, ids: Ids, *, as_json: AsJson = False) -> None:
    """Show how it is with jobs or batches until all have ended. Exits 1 if one did not succeed.

    Ctrl-C ends the watching, not the work.
    """
    states = asyncio.run(_watch(to, ids_of(ids), as_json))
    if REFUSAL in states:
        raise typer.Exit(REFUSED)
    if unsuccessful(states):
        raise typer.Exit(UNSUCCESSFUL)


async def _watch(to: Reach, ids: Sequence[str], as_json: bool) -> list[str]:
    ended: dict[str, str] = {}
    try:
        async with to.client() as client:
            with Board(sys.stdout, as_json=as_json) as board:
                if len(ids) <= ROWS_MOST:
                    await together(*(_one(client, id_, board, ended) for id_ in ids))
                else:
                    await _many(client, ids, board, ended)
    except asyncio.CancelledError:  # Ctrl-C
        left = [id_ for id_ in ids if id_ not in ended]
        words = to.again("watch", *left) if len(left) <= ROWS_MOST else "the same command"
        more = "it goes on" if len(left) == 1 else "they go on"
        typer.echo(f"No longer watched; {more}. Come back with: {words}", err=True)
        raise
    return list(ended.values())


async def _one(client: AsyncClient, id_: str, board: Board, ended: dict[str, str]) -> None:
    try:
        if is_batch(id_):
            batch = await follow_batch(client.batches.get(id_), board)
            ended[id_] = "failed" if batch.counts.failed else batch.status
        else:
            ended[id_] = (await follow(client, client.get(id_), board)).state
    except NotFound as error:
        ended[id_] = REFUSAL
        board.note(f"{id_}: {error.message}")


async def _many(client: AsyncClient, ids: Sequence[str], board: Board, ended: dict[str, str]) -> None:
    """One row for all of them on a terminal; elsewhere a line for each as it ends."""
    left = iter(ids)
    failed = 0

    async def work() -> None:
        nonlocal failed
        for id_ in left:
            if is_batch(id_):
                await _one(client, id_, board, ended)
            else:
                await _ended(client, id_, board, ended)
            failed += unsuccessful([ended[id_]])
            if board.on_terminal:
                board.show("jobs", "", "", {}, Part(len(ended), len(ids), failed))

    with suppress(NotFound):  # if the queue is away, that is said now; later on it is waited for
        await client.explain(ids[0])
    await together(*(work() for _ in range(min(WAITS, len(ids)))))


async def _ended(client: AsyncClient, id_: str, board: Board, ended: dict[str, str]) -> None:
    try:
        job = await client.get(id_).wait()
    except NotFound as error:
        ended[id_] = REFUSAL
        board.note(f"{id_}: {error.message}")
        return
    ended[id_] = job.state
    if not board.on_terminal:
        board.show(job.id, job.state, outcome(job), facts(job))


# --- tail -------------------------------------------------------------------------------------------------------------


@reaching(first="redis")
def tail(to: Reach, *, pool: PoolNames = None, as_json: AsJson = False) -> None:
    """Show what goes on, until Ctrl-C: over Redis how each job of every tenant ends, the last ones first.

    With --server: your own jobs as they come, run and end, looked at once a second (what came and went in between is
    not seen).
    """
    asyncio.run(_tail_server(to, pool, as_json) if to.by_http else _tail_queue(to, pool, as_json))


async def _tail_queue(to: Reach, names: Sequence[str] | None, as_json: bool) -> None:
    from fairlane.queue.engine import Queue

    queue = await Queue.open(to.url, namespace=to.namespace)
    try:
        after: dict[str, str] = {}
        while True:
            first = not after
            found: list[tuple[str, Finish]] = []
            for pool in await pools_named(queue, names):
                ended, after[pool.code] = await queue.inspect.finishes(pool, after.get(pool.code, ""))
                found += [(pool.name, one) for one in ended]
            found.sort(key=lambda one: one[1].ended_at_ms)
            for name, one in found[-FIRST:] if first else found:
                _say_finish(name, one, as_json)
            await asyncio.sleep(QUEUE_LOOK_S)
    finally:
        await queue.close()


def _say_finish(pool: str, one: Finish, as_json: bool) -> None:
    if as_json:
        say_json({"pool": pool} | asdict(one))
        return
    ran = one.started_at_ms is not None
    waited = duration((one.started_at_ms if one.started_at_ms is not None else one.ended_at_ms) - one.ready_at_ms)
    words = f"waited {waited}" + (f", ran {duration(one.ended_at_ms - (one.started_at_ms or 0))}" if ran else "")
    tokens = f", {one.usage.input_tokens} + {one.usage.output_tokens} tokens" if one.usage else ""
    _say_line(one.ended_at_ms / 1000, one.state, one.job, f"{pool} {one.tier} {one.tenant}", words + tokens)


def _say_line(at: float, state: str, job_id: str, whose: str, words: str) -> None:
    clock = time.strftime("%H:%M:%S", time.localtime(at))
    word = typer.style(f"{'runs' if state == 'leased' else state:<9}", STYLES.get(state))
    typer.echo(f"{clock}  {word}  {job_id}  {whose}  {words}".rstrip())


async def _tail_server(to: Reach, names: Sequence[str] | None, as_json: bool) -> None:
    await to.models()  # if it is away now, that is said at once
    async with to.client(AWAY_S) as client:
        seen: dict[str, str] = {}
        while True:
            alive = {job.id: job for job in await _alive(client)}
            gone = [job for id_ in seen.keys() - alive.keys() if (job := await _now(client, id_))]
            for job in sorted([*gone, *alive.values()], key=lambda job: job.created_at):
                if seen.get(job.id) != job.state and (not names or job.pool in names):
                    _say_job(job, as_json)
            seen = {job.id: job.state for job in alive.values()}
            await asyncio.sleep(LOOK_S)


async def _now(client: AsyncClient, id_: str) -> Job | None:
    """The job as it is; nothing if it is past its retention."""
    with suppress(NotFound):
        return await client.get(id_).job()


async def _alive(client: AsyncClient) -> list[Job]:
    """The jobs that wait or run, of each state the first ALIVE_MOST."""
    found: list[Job] = []
    for state in ALIVE:
        most = len(found) + ALIVE_MOST
        async for job in client.jobs(state=state):
            found.append(job)
            if len(found) >= most:
                break
    return found


def _say_job(job: Job, as_json: bool) -> None:
    if as_json:
        say_json(facts(job))
        return
    words = outcome(job).removeprefix(job.state).lstrip(" ,:") if job.finished else ""
    _say_line(job.finished_at or time.time(), job.state, job.id, f"{job.pool} {job.tier}", words)
