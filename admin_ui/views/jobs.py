"""Jobs: looked for by what they are, one by one with all that happened to them; and the lines in which they wait."""

from __future__ import annotations

import time
from typing import Final

from flask import Blueprint, redirect, render_template, url_for
from werkzeug.wrappers import Response

from admin_ui.access import current, needs
from admin_ui.ahead import Wait, wait_of
from admin_ui.bridge import Stores
from admin_ui.hiding import alike
from admin_ui.lines import TierLines, lines
from admin_ui.listing import AFTER, asked, first_page, page_after, tenant_choices, tenants_asked
from admin_ui.numerals import decimal
from admin_ui.reading import ask, cached
from admin_ui.timeline import moments, stretches, waited_ms
from fairlane.errors import InvalidRequest, NotFound
from fairlane.head import Head
from fairlane.ids import parse_job_id
from fairlane.queue.pools import Pool
from fairlane.search import STATES, JobFilter, Page, Seen, look, search

page = Blueprint("jobs", __name__)
AGE_MOST_S: Final = 1e9
LIVE_LOOKS: Final = 1000  # a page for which more entries are looked at does not refresh by itself
AGES: Final = (("10", "10 s"), ("60", "1 min"), ("600", "10 min"), ("3600", "1 h"), ("86400", "1 d"))
PURPOSE: Final = {"queued": "waiting", "leased": "running"}


@page.get("/jobs")
@needs("viewer")
def index() -> str | Response:
    """Those that are looked for, page by page; an id leads straight to its job."""
    wanted, job_id, after, scope = _filter(), asked("id"), asked(AFTER), current().tenants
    if job_id is not None and (found := _known(job_id)):
        return redirect(url_for("jobs.show", job_id=found))
    tenants_asked()  # raises NotFound for a tenant that the viewer may not see

    async def read(stores: Stores) -> tuple[list[Pool], Page]:
        pools = await stores.queue.pools.all()
        if job_id is not None:
            return pools, Page((), None, 0)
        return pools, await search(stores.queue, wanted, scope=scope, cursor=after)

    pools, jobs = cached(("jobs", scope, wanted, after, job_id), read)
    return render_template(
        "jobs.html",
        found=jobs,
        wanted=wanted,
        job_id=job_id,
        pools=[pool.name for pool in pools],
        tiers=tuple(dict.fromkeys(tier for pool in pools for tier in pool.policy.tiers)),
        tenants=tenant_choices(),
        states=[(state, _state_words(state)) for state in STATES],
        ages=_ages,
        is_live=jobs.looked <= LIVE_LOOKS,
        following=page_after(jobs.cursor),
        first=first_page(),
    )


@page.get("/queues")
@needs("viewer")
def queues() -> str:
    """The lines of one pool, the first pool's if none is named; of one tier, or of each those that wait longest."""
    name, tier, scope = asked("pool"), asked("tier"), current().scope

    async def read(stores: Stores) -> tuple[list[Pool], Pool | None, list[TierLines]]:
        pools = await stores.queue.pools.all()
        chosen = await stores.queue.pools.by_name(name) if name else next(iter(pools), None)
        if chosen and tier and tier not in chosen.policy.tiers:
            raise NotFound(f"The pool {chosen.name!r} has no tier {tier[:100]!r}.")
        return pools, chosen, await lines(stores, chosen, tier, scope) if chosen else []

    pools, chosen, found = cached(("queues", name, tier, scope), read)
    return render_template("queues.html", pools=pools, chosen=chosen, found=found, tier=tier, scoped=scope is not None)


@page.get("/jobs/<job_id>")
@needs("viewer")
def show(job_id: str) -> str:
    """One job. Raises NotFound, also for one of a tenant that the viewer may not see."""

    async def read(stores: Stores) -> tuple[Seen, Wait | None]:
        seen = await look(stores.queue, job_id)
        return seen, await wait_of(stores, seen.pool, seen.job)

    with alike():
        seen, wait = cached(("job", job_id), read)
    if not current().sees(seen.job.tenant):
        raise NotFound()
    job, now_ms = seen.job, round(time.time() * 1000)
    return render_template(
        "job.html",
        job=job,
        head=_head(job.head),
        seen=seen,
        wait=wait,
        error_body=_text(seen.error_body),
        stretches=stretches(job, now_ms),
        moments=moments(job),
        waited_ms=waited_ms(job, now_ms),
        may_move=job.state in ("queued", "delayed"),
    )


def _filter() -> JobFilter:
    return JobFilter(
        pool=asked("pool"),
        tier=asked("tier"),
        tenant=asked("tenant"),
        state=asked("state"),
        older_than_s=_seconds("older"),
        younger_than_s=_seconds("younger"),
        batch=asked("batch"),
    )


def _seconds(name: str) -> float | None:
    """Raises InvalidRequest."""
    text = asked(name)
    found = None if text is None else decimal(text, AGE_MOST_S)
    if text is not None and found is None:
        raise InvalidRequest(f"{name} is a number of seconds.", param=name)
    return found


def _ages(name: str) -> list[tuple[str, str]]:
    """What the filter offers for an age: a few, and the one that was asked for."""
    text = asked(name)
    known = [*AGES] if text is None or text in dict(AGES) else [*AGES, (text, f"{text} s")]
    return sorted(known, key=lambda age: float(age[0]))


def _known(job_id: str) -> str | None:
    """The id, if there is such a job that the viewer may see."""
    if parse_job_id(job_id) is None:
        return None
    try:
        seen = ask(lambda stores: look(stores.queue, job_id))
    except NotFound:
        return None
    return job_id if current().sees(seen.job.tenant) else None


def _state_words(state: str) -> str:
    return f"{state} ({PURPOSE[state]})" if state in PURPOSE else state


def _head(head: bytes) -> Head | None:
    try:
        return Head.decode(head)
    except ValueError:
        return None


def _text(body: bytes) -> str:
    return body.decode(errors="replace")
