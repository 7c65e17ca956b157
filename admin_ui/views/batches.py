"""Batches: what runs, how far it is, and what became of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flask import Blueprint, render_template

from admin_ui.access import current, needs
from admin_ui.hiding import alike
from admin_ui.listing import AFTER, asked, first_page, page_after, tenant_choices, tenants_asked
from admin_ui.reading import cached
from fairlane.batches import BatchState
from fairlane.batches.finding import BatchPage, BatchSearch, BatchStanding
from fairlane.batches.view import ENDED, TURNS
from fairlane.errors import InvalidRequest, NotFound

page = Blueprint("batches", __name__)
FAULTS_SHOWN: Final = 50
# What the filter offers: states by themselves, and two groups of them.
CHOICES: Final[Mapping[str, tuple[BatchState, ...]]] = {
    "running": tuple(TURNS),
    "ended": tuple(sorted(ENDED)),
    **{state: (state,) for state in (*TURNS, *sorted(ENDED))},
}
MOMENTS: Final = ("in_progress", "finalizing", "cancelling", "completed", "failed", "expired", "cancelled")


@page.get("/batches")
@needs("viewer")
def index() -> str:
    """The newest first."""
    tenants, state, after = tenants_asked(), asked("state"), asked(AFTER)
    if state is not None and state not in CHOICES:
        raise InvalidRequest(f"A batch is {', '.join(CHOICES)}.", param="state")
    states = CHOICES[state] if state else ()
    found: BatchPage = cached(
        ("batches", tenants, states, after),
        lambda stores: BatchSearch(stores.queue).find(tenants, states, after),
    )
    return render_template(
        "batches.html",
        found=found,
        tenants=tenant_choices(),
        choices=tuple(CHOICES),
        following=page_after(found.after),
        first=first_page(),
        filtered=bool(state or asked("tenant")),
    )


@page.get("/batches/<batch_id>")
@needs("viewer")
def show(batch_id: str) -> str:
    """One batch. Raises NotFound, also for one of a tenant that the viewer may not see."""
    with alike():
        standing: BatchStanding = cached(("batch", batch_id), lambda stores: BatchSearch(stores.queue).get(batch_id))
    if not current().sees(standing.batch.tenant):
        raise NotFound()
    return render_template(
        "batch.html", s=standing, batch=standing.batch, moments=_moments(standing), most=FAULTS_SHOWN
    )


def _moments(standing: BatchStanding) -> list[tuple[str, int]]:
    """What has happened to it, in order: in words, and when (Unix, ms)."""
    batch = standing.batch
    known = [(name.replace("_", " "), getattr(batch, f"{name}_at_ms")) for name in MOMENTS]
    return sorted(((name, at) for name, at in known if at is not None), key=lambda moment: moment[1])
