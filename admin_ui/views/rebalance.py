"""Rebalancing: the runs, a new one, and one with its dry run and its progress."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from flask import Blueprint, Response, abort, render_template, request

from admin_ui import rebalancing
from admin_ui.access import Viewer, current, needs
from admin_ui.acting import ACTS, may
from admin_ui.actions.rebalance import TO_POOL, tiers_of
from admin_ui.bridge import Stores
from admin_ui.hiding import alike
from admin_ui.listing import AFTER, asked, first_page, page_after
from admin_ui.numerals import whole
from admin_ui.reading import ask, cached
from fairlane.errors import InvalidRequest, NotFound
from fairlane.rebalance import Run

page = Blueprint("rebalance", __name__)
MOST_MS: Final = 10**15  # of a time: far more than any, and whole in Lua


@page.get("/rebalance")
@needs("viewer")
def index() -> str:
    """The runs of the last 7 days, the newest first; a viewer with some tenants sees those of one of theirs."""
    after = asked(AFTER)
    before = None if after is None else whole(after, MOST_MS)
    if after is not None and before is None:
        raise InvalidRequest("This is not a cursor that a page came with.", param=AFTER)
    runs, cursor = cached(("runs", before), lambda stores: stores.runs.list(before))
    mine = [run for run in runs if current().sees(run.plan.filter.tenant)]
    following = page_after(None if cursor is None else str(cursor))
    return render_template(
        "rebalance.html",
        runs=mine,
        next_url=following,
        first_url=first_page(),
        words=rebalancing,
        may_begin=may(current(), ACTS["run.create"]),
    )


@page.get("/rebalance/new")
@needs("operator")
def new() -> str:
    """What to choose and what becomes of it; other pages fill some of it in."""
    if not may(current(), ACTS["run.create"]):
        abort(403)
    pools = cached(("pools",), lambda stores: stores.queue.pools.all())
    return render_template(
        "rebalance_new.html",
        pools=pools,
        tiers=tiers_of(pools),
        given=request.args,
        to_pool=TO_POOL,
    )


@page.get("/rebalance/<run_id>")
@needs("viewer")
def show(run_id: str) -> str:
    """One run."""
    return render_template("rebalance_run.html", run=_run(run_id), words=rebalancing)


@page.get("/rebalance/<run_id>.json")
@needs("viewer")
def export(run_id: str) -> Response:
    """All of a run: plan, dry run and outcome."""
    answer = Response(json.dumps(_run(run_id).export(), indent=2), mimetype="application/json")
    answer.headers["Content-Disposition"] = f"attachment; filename={run_id}.json"
    return answer


def _run(run_id: str) -> Run:
    """Raises NotFound, also for a run that concerns tenants that the viewer does not see."""

    async def read(stores: Stores) -> Run:
        return await stores.runs.get(run_id)

    refreshes = request.headers.get("HX-Request")  # a page that is opened, after an act for instance, is of this moment
    with alike():
        run = cached(("run", run_id), read) if refreshes else ask(read)
    if not current().sees(run.plan.filter.tenant):
        raise NotFound()
    return _seen_by(current(), run)


def _seen_by(viewer: Viewer, run: Run) -> Run:
    """Without what it does to tenants that the viewer does not see."""
    if run.forecast is None:
        return run
    shifts = tuple(shift for shift in run.forecast.shifts if viewer.sees(shift.tenant))
    return replace(run, forecast=replace(run.forecast, shifts=shifts))
