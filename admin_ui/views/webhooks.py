"""Webhooks: endpoints and how they are, deliveries and what became of each attempt."""

from __future__ import annotations

from typing import Final, cast, get_args

from flask import Blueprint, render_template

from admin_ui.access import current, needs
from admin_ui.bridge import Stores
from admin_ui.hiding import alike
from admin_ui.listing import AFTER, asked, first_page, page_after, tenant_choices, tenants_asked
from admin_ui.reading import cached
from fairlane.errors import InvalidRequest, NotFound
from fairlane.webhooks.delivery import DELIVERY_STATES, Counts, Delivery, DeliveryState
from fairlane.webhooks.finding import EndpointPage, EndpointSearch, EndpointState
from fairlane.webhooks.outbox import Outbox
from fairlane.webhooks.values import Endpoint

page = Blueprint("webhooks", __name__)
PAGE: Final = 50
ENDPOINT_STATES: Final[tuple[EndpointState, ...]] = get_args(EndpointState)
WORDS: Final = (("well", "well"), ("failing", "failing"), ("shut", "left alone"), ("disabled", "disabled"))


@page.get("/webhooks")
@needs("viewer")
def index() -> str:
    """Endpoints, the newest first."""
    tenants, state, after = tenants_asked(), asked("state"), asked(AFTER)
    if state is not None and state not in ENDPOINT_STATES:
        raise InvalidRequest(f"An endpoint is {', '.join(ENDPOINT_STATES)}.", param="state")
    found: EndpointPage = cached(
        ("endpoints", tenants, state, after),
        lambda stores: EndpointSearch(stores.queue).find(tenants, state, after, PAGE),
    )
    return render_template(
        "webhooks.html",
        found=found,
        counts=_counts() if current().sees(None) else None,
        tenants=tenant_choices(),
        choices=WORDS,
        following=page_after(found.after),
        first=first_page(),
        filtered=bool(state or asked("tenant")),
    )


@page.get("/webhooks/deliveries")
@needs("viewer")
def deliveries() -> str:
    """Deliveries, the newest first; of one endpoint with how that is."""
    tenants, endpoint, state, after = tenants_asked(), asked("to"), asked("state"), asked(AFTER)

    async def read(stores: Stores) -> tuple[list[Delivery], str | None, Endpoint | None]:
        found, following = await stores.deliveries.find(
            tenants, endpoint, cast("DeliveryState | None", state), after, PAGE, looks=1
        )
        return found, following, await _endpoint(stores, endpoint) if endpoint else None

    found, following, receiver = cached(("deliveries", tenants, endpoint, state, after), read)
    return render_template(
        "deliveries.html",
        found=found,
        receiver=receiver if receiver and current().sees(receiver.tenant) else None,
        tenants=tenant_choices(),
        choices=DELIVERY_STATES,
        following=page_after(following),
        first=first_page(),
        filtered=bool(endpoint or state or asked("tenant")),
    )


@page.get("/webhooks/deliveries/<delivery_id>")
@needs("viewer")
def show(delivery_id: str) -> str:
    """One delivery, without what it says. Raises NotFound, also for one of a tenant that the viewer may not see."""
    with alike():
        found: Delivery = cached(
            ("delivery", delivery_id), lambda stores: stores.deliveries.get(None, delivery_id, payload=False)
        )
    if not current().sees(found.tenant):
        raise NotFound()
    return render_template("delivery.html", delivery=found)


def _counts() -> Counts:
    return cached(("hook counts",), lambda stores: Outbox(stores.queue.store).counts())


async def _endpoint(stores: Stores, endpoint_id: str) -> Endpoint | None:
    """None: it was deleted."""
    try:
        tenant = await EndpointSearch(stores.queue).tenant_of(endpoint_id)
        return await stores.webhooks.get(tenant, endpoint_id)
    except NotFound:
        return None
