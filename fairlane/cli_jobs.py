"""`fairlane results` and `cancel`: what was answered, and what shall not be."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlane.answers import Shown
from fairlane.errors import FairlaneError, IllegalTransition
from fairlane.following import facts, is_batch
from fairlane.reaching import Reach, reaching
from fairlane.terminal import REFUSED, AsJson, Ids, Output, ids_of, say_json

if TYPE_CHECKING:
    from producer.client.client import AsyncClient


@reaching(first="server")
def results(
    to: Reach,
    id_: Annotated[str, typer.Argument(metavar="ID", help="Of a job or a batch.")],
    *,
    to_file: Output = None,
    as_json: AsJson = False,
) -> None:
    """Print what a job's backend answered, or a batch's outcomes as JSONL: answers and errors, a line each.

    Exits 1 if it did not succeed, 3 if it has not ended. With --json all about a job.
    """
    asyncio.run(_results(to, id_, Shown(to_file, as_json)))


async def _results(to: Reach, id_: str, shown: Shown) -> None:
    async with to.client() as client:
        if is_batch(id_):
            await _batch_results(to, client, id_, shown)
            return
        job = await client.get(id_).job()
    if not job.finished:
        raise IllegalTransition(f"{id_} has not ended (it is {job.state}). `{to.again('watch', id_)}` waits for it.")
    shown.body(job)


async def _batch_results(to: Reach, client: AsyncClient, id_: str, shown: Shown) -> None:
    handle = client.batches.get(id_)
    batch = await handle.batch()
    if not batch.finished:
        raise IllegalTransition(f"{id_} has not ended (it is {batch.status}). `{to.again('watch', id_)}` waits for it.")
    await shown.batch(handle, batch)


@reaching(first="server")
def cancel(to: Reach, ids: Ids, *, as_json: AsJson = False) -> None:
    """Cancel jobs or batches, also those that run. One that has ended stays as it is; exits 3 if one is not there."""
    if asyncio.run(_cancel(to, ids_of(ids), as_json)):
        raise typer.Exit(REFUSED)


async def _cancel(to: Reach, ids: list[str], as_json: bool) -> int:
    """How many were refused. Raises what stands for all of them: that the queue is away, or the key is refused."""
    refused = 0
    async with to.client() as client:
        for id_ in ids:
            try:
                state, facts = await _cancelled(client, id_)
            except FairlaneError as error:
                if len(ids) == 1 or error.status not in (400, 404, 409):
                    raise
                refused += 1
                typer.echo(f"{id_}: {error.message}", err=True)
                continue
            if as_json:
                say_json(facts)
            else:
                typer.echo(f"{id_}  {state}")
    return refused


async def _cancelled(client: AsyncClient, id_: str) -> tuple[str, Mapping[str, Any]]:
    """Its state then, and its JSON."""
    if is_batch(id_):
        batch = await client.batches.get(id_).cancel()
        return batch.status, batch.raw
    job = await client.cancel(id_)
    return job.state, facts(job)
