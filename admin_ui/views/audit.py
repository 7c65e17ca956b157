"""What was done on the page, by whom, and what came of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final, NamedTuple

from flask import Blueprint, abort, render_template, request
from flask.wrappers import Response

from admin_ui.access import Viewer, current, needs
from admin_ui.acting import ACTS
from admin_ui.bridge import Stores
from admin_ui.reading import ask, cached
from fairlane.audit import FILTERS, Entry, state_of

page = Blueprint("audit", __name__)
PAGE: Final = 50
READS_MOST: Final = 5  # for one page; see audit.LOOKED_MOST
EXPORTED_MOST: Final = 2000
EXPORT_READS_MOST: Final = 20
SIGNING_IN: Final = (("login.", "login.… (signing in)"),)


class Found(NamedTuple):
    """Entries, where to go on, and how many were looked at for them."""

    entries: list[Entry]
    following: str | None
    looked: int


@page.get("/audit")
@needs("viewer")
def index() -> str:
    """The newest entries first, filtered."""
    wanted, before = _filters(), request.args.get("before", "")
    viewer = current()
    key = ("audit", tuple(wanted.values()), before, viewer.scope)
    found = cached(key, lambda stores: _read(stores, viewer, wanted, before, PAGE, READS_MOST))
    return render_template(
        "audit.html", found=found, wanted=wanted, before=before, acts=_acts(), state_of=state_of, live=not before
    )


@page.get("/audit.json")
@needs("viewer")
def export() -> Response:
    """The same as JSON, up to EXPORTED_MOST entries; `following` is the `before` of the next part."""
    wanted, before, viewer = _filters(), request.args.get("before", ""), current()
    found = ask(lambda stores: _read(stores, viewer, wanted, before, EXPORTED_MOST, EXPORT_READS_MOST))
    told = {"entries": [asdict(entry) for entry in found.entries], "following": found.following}
    headers = {"Content-Disposition": "attachment; filename=fairlane-audit.json"}
    return Response(json.dumps(told, indent=1), mimetype="application/json", headers=headers)


@page.get("/audit/<entry_id>")
@needs("viewer")
def entry(entry_id: str) -> str:
    """All that is known of one entry."""
    found = ask(lambda stores: stores.audit.entry(entry_id))
    if found is None or not current().sees(found.tenant):
        abort(404)
    return render_template("audit_entry.html", entry=found, state=state_of(found))


def _filters() -> dict[str, str]:
    return {name: request.args.get(name, "").strip() for name in FILTERS}


async def _read(stores: Stores, viewer: Viewer, wanted: dict[str, str], before: str, most: int, reads: int) -> Found:
    """Up to `most` entries, of at most so many bounded reads."""
    entries: list[Entry] = []
    following: str | None = before
    looked = 0
    while following is not None and len(entries) < most and reads > 0:
        limit = min(500, most - len(entries))
        part = await stores.audit.read(following, **wanted, scope=viewer.tenants, limit=limit)
        entries += part.entries
        following, looked, reads = part.following, looked + part.looked, reads - 1
    return Found(entries, following, looked)


def _acts() -> tuple[tuple[str, str], ...]:
    """What can be filtered by: all acts on a thing, or one of them."""
    things = sorted({name.split(".")[0] for name in ACTS})
    choices = [
        choice
        for thing in things
        for choice in [(f"{thing}.", f"{thing}.… (all)"), *((n, n) for n in sorted(ACTS) if n.startswith(f"{thing}."))]
    ]
    return (*choices, *SIGNING_IN)
