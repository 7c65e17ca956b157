"""What can be done to webhook endpoints and deliveries."""

from __future__ import annotations

import json
import time
from typing import Final

from flask import url_for

from admin_ui.acting import Act, Asked, Done, Field, Proposal, act
from admin_ui.bridge import Stores
from admin_ui.hiding import alike
from fairlane.errors import IllegalTransition, InvalidRequest
from fairlane.webhooks.delivery import Delivery, cut
from fairlane.webhooks.finding import EndpointSearch
from fairlane.webhooks.values import Endpoint

SHOWN_BYTES: Final = 16 << 10
RECOVER_STEPS: Final = 100  # of 200 deliveries: more than an endpoint's list holds
_HOUR_MS: Final = 3_600_000
SINCE: Final = (
    ("1", "the last hour"), ("6", "the last 6 hours"), ("24", "the last day"), ("72", "the last 3 days"),
    ("264", "all that is still kept (11 days)"),
)  # fmt: skip


@act("webhook.resend", role="operator", scoped=True)
class Resend(Act):
    """Sends a delivery again."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        delivery = await _delivery(stores, asked)
        return Proposal(
            title="Send this again?",
            button="Send again",
            target=f"delivery {delivery.id}",
            tenant=delivery.tenant,
            back=url_for("webhooks.show", delivery_id=delivery.id),
            before={"state": _words(delivery)},
            after={"state": "pending, due now"},
            tells=(
                f"{delivery.event} of {delivery.object_id} goes to {delivery.url} again, with the same webhook-id.",
                "If its receiver is left alone for now, that ends.",
            ),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        await stores.deliveries.resend(proposal.tenant or "", asked.param("delivery"))
        return Done("Sent again.")


@act("webhook.reveal", role="operator", scoped=True)
class Reveal(Act):
    """Shows what a delivery says."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        delivery = await _delivery(stores, asked)
        return Proposal(
            title="Show what is sent?",
            button="Show it",
            target=f"payload of delivery {delivery.id}",
            tenant=delivery.tenant,
            back=url_for("webhooks.show", delivery_id=delivery.id),
            tells=(f"It may hold what {delivery.tenant}'s users wrote, and what was answered. The audit notes it.",),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        delivery = await stores.deliveries.get(proposal.tenant, asked.param("delivery"))
        payload = delivery.payload or b""
        shown = cut(_indented(payload), SHOWN_BYTES)
        whole = f"It has {len(payload)} bytes"
        return Done(f"{whole}, of which this is the start." if len(shown) >= SHOWN_BYTES else f"{whole}.", shown=shown)


@act("webhook.recover", role="operator", scoped=True)
class Recover(Act):
    """Sends again what has failed of an endpoint's deliveries."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        endpoint = await _endpoint(stores, asked)
        if asked.viewer.sees(endpoint.tenant) and not endpoint.enabled:
            raise IllegalTransition("The endpoint is disabled. Enable it, and recover then.")
        return Proposal(
            title="Send again what has failed?",
            button="Send again",
            target=f"endpoint {endpoint.id}",
            tenant=endpoint.tenant,
            back=_back(endpoint),
            after={"failed deliveries": "pending, due now"},
            tells=(
                f"All that was to go to {endpoint.url} in that time, and has failed, is sent again, the oldest first.",
                "If the endpoint is left alone for now, that ends.",
            ),
            fields=(Field("hours", "Made in", "select", "24", SINCE),),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        hours = asked.values.get("hours", "24")
        if hours not in dict(SINCE):
            raise InvalidRequest("Choose one of the times.", param="hours")
        since_ms = round(1000 * time.time()) - int(hours) * _HOUR_MS
        total, cursor = 0, None
        for _ in range(RECOVER_STEPS):
            count, cursor = await stores.deliveries.recover(
                proposal.tenant or "", asked.param("endpoint_id"), since_ms, cursor
            )
            total += count
            if cursor is None:
                break
        more = "" if cursor is None else " There are more: do this again."
        return Done(
            f"Sent again: {total} {'delivery' if total == 1 else 'deliveries'}.{more}", after={"sent again": total}
        )


@act("webhook_endpoint.enable", role="operator", scoped=True)
class EnableEndpoint(Act):
    """Sends events to an endpoint again, with a clean record."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        endpoint = await _endpoint(stores, asked)
        return Proposal(
            title=f"Enable this endpoint of {endpoint.tenant}'s?",
            button="Enable",
            target=f"endpoint {endpoint.id}",
            tenant=endpoint.tenant,
            back=_back(endpoint),
            before={"state": _state(endpoint)},
            after={"state": "enabled"},
            tells=(
                f"{endpoint.url} gets its events again, from now on, and past failures are forgotten.",
                "What has failed meanwhile is sent by “Send failed again”.",
            ),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        await stores.webhooks.enable(proposal.tenant or "", asked.param("endpoint_id"))
        return Done("Enabled.")


@act("webhook_endpoint.disable", role="operator", scoped=True)
class DisableEndpoint(Act):
    """Sends nothing to an endpoint any more."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        endpoint = await _endpoint(stores, asked)
        return Proposal(
            title=f"Disable this endpoint of {endpoint.tenant}'s?",
            button="Disable",
            target=f"endpoint {endpoint.id}",
            tenant=endpoint.tenant,
            back=_back(endpoint),
            before={"state": _state(endpoint)},
            after={"state": "disabled (asked)"},
            tells=(
                f"Nothing more is sent to {endpoint.url}; what waits fails as it comes up.",
                "It can be enabled again, and what has failed can be sent then.",
            ),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        await stores.webhooks.disable(proposal.tenant or "", asked.param("endpoint_id"))
        return Done("Disabled.")


@act("webhook_endpoint.test", role="operator", scoped=True)
class TryEndpoint(Act):
    """Sends a test event to an endpoint."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        endpoint = await _endpoint(stores, asked)
        return Proposal(
            title="Send a test event?",
            button="Send it",
            target=f"endpoint {endpoint.id}",
            tenant=endpoint.tenant,
            back=_back(endpoint),
            tells=(f"{endpoint.url} gets a webhook.test, signed as all else. If it is left alone for now, that ends.",),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        delivery = await stores.webhooks.test(proposal.tenant or "", asked.param("endpoint_id"))
        return Done("The test was sent off.", to=url_for("webhooks.show", delivery_id=delivery.id))


async def _delivery(stores: Stores, asked: Asked) -> Delivery:
    with alike():
        return await stores.deliveries.get(None, asked.param("delivery"), payload=False)


async def _endpoint(stores: Stores, asked: Asked) -> Endpoint:
    endpoint_id = asked.param("endpoint_id")
    with alike():
        tenant = await EndpointSearch(stores.queue).tenant_of(endpoint_id)
        return await stores.webhooks.get(tenant, endpoint_id)


def _back(endpoint: Endpoint) -> str:
    return url_for("webhooks.deliveries", to=endpoint.id)


def _state(endpoint: Endpoint) -> str:
    return "enabled" if endpoint.enabled else f"disabled ({endpoint.disabled_reason})"


def _words(delivery: Delivery) -> str:
    return f"{delivery.state} ({delivery.reason})" if delivery.reason else delivery.state


def _indented(payload: bytes) -> str:
    return json.dumps(json.loads(payload), indent=2, ensure_ascii=False)
