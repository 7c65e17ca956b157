"""What can be done to a job, and to a pool's dead ones."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from flask import url_for

from admin_ui.acting import Act, Asked, Done, Field, Proposal, act
from admin_ui.bridge import Stores
from admin_ui.showing import number
from fairlane.errors import FairlaneError, IllegalTransition, InvalidRequest, NotFound
from fairlane.model import FINISHED, Job, State
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.search import JobFilter, Seen, look, search

SHOWN_MOST: Final = 16 << 10  # bytes of a request or a result
LAID_OUT_MOST: Final = 256 << 10  # bytes of JSON that are laid out before they are cut
DEAD_MOST: Final = 5000  # are requeued by one act
DEAD_STEP: Final = 100
DEAD_S: Final = 8.0  # no step begins later


@act("job.cancel", role="operator", scoped=True)
class CancelJob(Act):
    """Ends a job that waits or runs."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        job = (await _seen(stores, asked)).job
        if job.state in FINISHED:
            raise _ended(job.state)
        runs = "Its backend is told to stop; what it has answered by now is lost." if job.state == "leased" else ""
        return Proposal(
            title="Cancel this job?",
            button="Cancel the job",
            target=f"job {job.id}",
            tenant=job.tenant,
            back=url_for("jobs.show", job_id=job.id),
            before={"state": job.state},
            after={"state": "cancelled"},
            tells=tuple(filter(None, (f"It is one of {job.tenant}'s, who will get no answer to it.", runs))),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        was, _ = await stores.queue.end(asked.param("job"))
        if was in FINISHED:
            raise _ended(was)
        return Done("Cancelled.", before={"state": was})


@act("job.requeue", role="operator", scoped=True)
class RequeueJob(Act):
    """Lets a dead job run again."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        job = (await _seen(stores, asked)).job
        if not job.dead:
            raise IllegalTransition("Only a dead job can be requeued.")
        attempts = "attempt" if job.max_attempts == 1 else "attempts"
        return Proposal(
            title="Requeue this dead job?",
            button="Requeue the job",
            target=f"job {job.id}",
            tenant=job.tenant,
            back=url_for("jobs.show", job_id=job.id),
            before={"state": "dead", "error": job.error.code if job.error else None},
            after={"state": "queued"},
            tells=(f"It goes to the end of its line in {job.tier}, with {job.max_attempts} fresh {attempts}.",),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        await stores.queue.requeue(asked.param("job"))
        return Done("Requeued.")


@act("job.move", role="operator")
class MoveJob(Act):
    """Moves a waiting job to another tier or pool."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        seen = await _seen(stores, asked)
        job = seen.job
        if job.state not in ("queued", "delayed"):
            raise IllegalTransition(f"The job is {job.state}; only one that waits can be moved.")
        choices = [(f"tier {tier}", f"tier {tier}") for tier in seen.pool.policy.tiers if tier != job.tier]
        if job.batch_id is None:  # its answers are collected in its batch's pool
            pools = await stores.queue.pools.all()
            choices += [
                (f"pool {pool.name}", f"pool {pool.name}")
                for pool in pools
                if pool.code != seen.pool.code and job.tier in pool.policy.tiers
            ]
        if not choices:
            raise IllegalTransition("There is no other tier or pool that could take it.")
        return Proposal(
            title="Move this job",
            button="Move the job",
            target=f"job {job.id}",
            tenant=job.tenant,
            back=url_for("jobs.show", job_id=job.id),
            tells=(
                f"It waits in the tier {job.tier} of {seen.pool.name}. Its age is kept.",
                "In another tier it takes the place that its age gives it; in another pool the last one of its line.",
            ),
            fields=(Field("to", "To", "select", choices[0][0], tuple(choices)),),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        to = asked.values.get("to", "")
        if to not in dict(proposal.fields[0].choices):
            raise InvalidRequest("Choose where it goes.", param="to")
        seen, (what, _, name) = await _seen(stores, asked), to.partition(" ")
        if what == "tier":
            (error,) = await stores.queue.retier(seen.pool, [seen.job.id], name)
            if error is not None:
                raise error
        else:
            await stores.queue.move(seen.job.id, await stores.queue.pools.by_name(name))
        was = {"pool": seen.pool.name, "tier": seen.job.tier}
        return Done(f"Moved to the {to}.", before=was, after={**was, what: name})


@act("job.reveal", role="operator", scoped=True)
class RevealJob(Act):
    """Shows what a tenant has asked and was answered. That somebody has looked is in the audit."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        job = (await _seen(stores, asked)).job
        return Proposal(
            title="Show the request and its result?",
            button="Show them",
            target=f"job {job.id}",
            tenant=job.tenant,
            back=url_for("jobs.show", job_id=job.id),
            tells=(
                f"They are {job.tenant}'s, and may be confidential.",
                f"The audit keeps that you have looked. Of each at most {SHOWN_MOST >> 10} KiB are shown.",
            ),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        job = await stores.queue.inspect.job(asked.param("job"))
        parts = [_shown("Request", job.body), _shown("Result", job.result)]
        return Done("This is shown once, and kept nowhere.", shown="\n\n".join(parts))


@act("jobs.requeue_dead", role="operator", scoped=True)
class RequeueDead(Act):
    """Lets a pool's dead jobs run again, all or one tenant's."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        pool, tenant = await stores.queue.pools.by_name(asked.param("pool")), asked.params.get("tenant") or None
        if not asked.viewer.sees(tenant):
            raise NotFound()
        whose = f"{tenant}'s dead jobs in {pool.name}" if tenant else f"all dead jobs of {pool.name}"
        dead = await _dead(stores.queue, pool, tenant)
        if not dead:
            raise IllegalTransition(f"There are none of {whose}." if tenant else f"{pool.name} has no dead jobs.")
        return Proposal(
            title=f"Requeue {whose}?",
            button="Requeue them",
            target=f"dead jobs of {pool.name}" + (f" / {tenant}" if tenant else ""),
            tenant=tenant,
            back=url_for("jobs.index", pool=pool.name, tenant=tenant, state="dead"),
            before={"dead": dead},
            tells=(
                f"{dead} go to the end of their lines, each with fresh attempts.",
                "What made them fail may do so again: look at their errors first.",
                f"One call requeues at most {number(DEAD_MOST)}.",
            ),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        pool = await stores.queue.pools.by_name(asked.param("pool"))
        moved, refused, more = await _requeue(stores.queue, pool, proposal.tenant)
        words = f"Requeued: {number(moved)} {'job' if moved == 1 else 'jobs'}."
        if refused:
            words += f" {number(refused)} could not: their tier is gone, or others have requeued them."
        if more:
            words += " There are more: do it again."
        left = await _dead(stores.queue, pool, proposal.tenant)
        return Done(words, after={"requeued": moved, "refused": refused, "dead": left or "0"})


async def _dead(queue: Queue, pool: Pool, tenant: str | None) -> str:
    """How many dead jobs there are, in words; '' if there are none."""
    if tenant is None:
        n = (await queue.inspect.overview(pool)).dead
        return number(n) if n else ""
    found = await search(queue, JobFilter(pool=pool.name, tenant=tenant, state="dead"), limit=200)
    return f"{len(found.jobs)}{' or more' if found.cursor else ''}" if found.jobs or found.cursor else ""


async def _requeue(queue: Queue, pool: Pool, tenant: str | None) -> tuple[int, int, bool]:
    """How many were requeued, how many could not be, and whether there may be more. The latest dead go first: who dies
    meanwhile is not met again."""
    wanted, cursor, moved, refused = JobFilter(pool=pool.name, tenant=tenant, state="dead"), None, 0, 0
    end = time.monotonic() + DEAD_S
    while True:
        found = await search(queue, wanted, cursor=cursor, limit=DEAD_STEP)
        done = await _each(queue, found.jobs)
        moved, refused, cursor = moved + done, refused + len(found.jobs) - done, found.cursor
        if cursor is None:
            return moved, refused, False
        if moved + refused >= DEAD_MOST or time.monotonic() > end:
            return moved, refused, True


async def _each(queue: Queue, jobs: Sequence[Job]) -> int:
    """Requeues them, each on its own; how many it could."""

    async def one(job: Job) -> bool:
        try:
            await queue.requeue(job.id)
        except FairlaneError as error:
            if error.status >= 500:
                raise
            return False
        return True

    return sum(await asyncio.gather(*map(one, jobs)))


def _ended(state: State) -> IllegalTransition:
    return IllegalTransition(f"The job is {state} already; it cannot be cancelled any more.")


async def _seen(stores: Stores, asked: Asked) -> Seen:
    """The job that the parameter `job` names. Raises NotFound, also for one of a tenant that the viewer may not see."""
    seen = await look(stores.queue, asked.param("job"))
    if not asked.viewer.sees(seen.job.tenant):
        raise NotFound()
    return seen


def _shown(name: str, body: bytes | None) -> str:
    """Its start, as it is or, if it is JSON, laid out."""
    if not body:
        return f"--- {name}: none ---"
    text = body[:SHOWN_MOST].decode(errors="ignore" if len(body) > SHOWN_MOST else "replace")
    with suppress(ValueError, RecursionError):
        if len(body) <= LAID_OUT_MOST:
            text = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    cut = text.encode(errors="replace")[:SHOWN_MOST].decode(errors="ignore")
    more = "\n… (the rest is not shown)" if len(cut) < len(text) or len(body) > SHOWN_MOST else ""
    return f"--- {name}: {number(len(body))} bytes ---\n{cut}{more}"
