"""Who waits how long in which tier, what each got of the service, and which limit binds each: of one pool."""

from __future__ import annotations

from flask import Blueprint, render_template, request

from admin_ui.access import current, needs
from admin_ui.bridge import Stores
from admin_ui.reading import cached
from admin_ui.shares import ORDERS, Shares, shares
from fairlane.errors import InvalidRequest
from fairlane.queue.pools import Pool

page = Blueprint("fairness", __name__)


@page.get("/fairness")
@needs("viewer")
def index() -> str:
    """One pool's tenants; the first pool's if none is named."""
    name, order, scope = request.args.get("pool"), request.args.get("by", "age"), current().scope
    if order not in ORDERS:
        raise InvalidRequest(f"Tenants are ordered by {', '.join(ORDERS)}.", param="by")

    async def read(stores: Stores) -> tuple[list[Pool], Shares | None]:
        pools = await stores.queue.pools.all()
        chosen = await stores.queue.pools.by_name(name) if name else next(iter(pools), None)
        return pools, await shares(stores, chosen, scope, order) if chosen else None

    pools, found = cached(("fairness", name, order, scope), read)
    return render_template("fairness.html", pools=pools, found=found, order=order, orders=ORDERS)
