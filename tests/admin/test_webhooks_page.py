"""Webhooks on the page: endpoints, deliveries, and what can be done to them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from admin_ui.bridge import Stores
from fairlane.webhooks.delivery import NewDelivery, Outcome
from fairlane.webhooks.outbox import Outbox
from tests.admin.page import Page
from tests.contract.outgoing import ARRIVED, GONE, broke, exhausted

URL = "https://hooks.example.com/fairlane"
PAYLOAD = b'{"type": "job.succeeded", "data": "<b>what nobody need see</b>"}'
HUSH = "hush-hush"


@dataclass(frozen=True)
class Sent:
    """An endpoint, and what was sent there."""

    endpoint: str
    deliveries: tuple[str, ...]


def sent(page: Page, *outcomes: Outcome, tenant: str = "ann", then: int = 0) -> Sent:
    """An endpoint to which deliveries came out like this; `then` more wait."""

    async def send(stores: Stores) -> Sent:
        made, _ = await stores.webhooks.create(tenant, f"{URL}/{tenant}", headers={"authorization": HUSH})
        outbox, ids = Outbox(stores.queue.store), []
        for n in range(len(outcomes) + then):
            id_ = f"msg_{tenant}{n}"
            await outbox.add([NewDelivery(id_, tenant, made.id, made.id, None, "job.succeeded", "job_1", PAYLOAD)])
            ids.append(id_)
            if n < len(outcomes):
                (taken,) = await outbox.take(1, 30_000)
                await outbox.begin(*taken, 30_000)
                await outbox.settle(*taken, outcomes[n])
        return Sent(made.id, tuple(ids))

    return page.ask(send)


def state(page: Page, delivery_id: str) -> str:
    return page.ask(lambda stores: stores.deliveries.get(None, delivery_id)).state


def test_endpoints_are_listed_with_how_they_are(page: Page) -> None:
    ann, bob = sent(page, ARRIVED), sent(page, GONE, tenant="bob")
    shown = page.get("/webhooks").text
    assert "enabled" in shown
    assert "it answered 410" in shown
    assert ann.endpoint in shown
    assert ann.endpoint not in page.get("/webhooks?tenant=bob").text
    assert ann.endpoint not in page.get("/webhooks?state=disabled").text
    assert bob.endpoint in page.get("/webhooks?state=disabled").text
    assert page.get("/webhooks?state=lost").status_code == 400


def test_an_endpoint_that_is_left_alone_says_so_and_what_waits_for_it_too(page: Page) -> None:
    one = sent(page, *[broke()] * 5)
    for path in ("/webhooks?state=shut", f"/webhooks/deliveries?to={one.endpoint}"):
        shown = page.get(path).text
        assert "left alone" in shown
        assert "failing" in shown
    shown = page.get(f"/webhooks/deliveries/{one.deliveries[0]}").text
    assert re.search(r"in [23]\d\.\d s", shown), re.findall(r"[^>]*in \d[^<]*", shown)


def test_deliveries_are_filtered(page: Page) -> None:
    ann, bob = sent(page, ARRIVED, exhausted(), then=1), sent(page, ARRIVED, tenant="bob")
    everything = page.get("/webhooks/deliveries").text
    assert all(id_ in everything for id_ in (*ann.deliveries, *bob.deliveries))
    failed = page.get(f"/webhooks/deliveries?to={ann.endpoint}&state=failed").text
    assert [id_ in failed for id_ in ann.deliveries] == [False, True, False]
    assert bob.deliveries[0] not in page.get("/webhooks/deliveries?tenant=ann").text
    assert page.get("/webhooks/deliveries?to=whe_1").status_code == 404
    assert page.get("/webhooks/deliveries?state=lost").status_code == 400


def test_a_delivery_is_shown_with_its_attempts_but_not_what_it_says(page: Page) -> None:
    one = sent(page, broke(excerpt="<script>no</script>"))
    shown = page.get(f"/webhooks/deliveries/{one.deliveries[0]}").text
    assert "HTTP 500" in shown
    assert "&lt;script&gt;no" in shown
    assert "nobody need see" not in shown


def test_what_it_says_is_shown_to_whoever_asks_and_is_audited(page: Page) -> None:
    one = sent(page, ARRIVED)
    answer = page.as_("olga").act("webhook.reveal", delivery=one.deliveries[0])
    assert "&lt;b&gt;what nobody need see" in answer.text
    assert page.as_("vera").act("webhook.reveal", delivery=one.deliveries[0]).status_code == 403


def test_a_failed_delivery_is_sent_again(page: Page) -> None:
    one = sent(page, exhausted())
    answer = page.as_("olga").act("webhook.resend", delivery=one.deliveries[0])
    assert answer.status_code == 303
    assert state(page, one.deliveries[0]) == "pending"


def test_all_that_has_failed_at_an_endpoint_is_sent_again(page: Page) -> None:
    one = sent(page, exhausted(), ARRIVED, exhausted())
    page.act("webhook.recover", {"hours": "1"}, endpoint_id=one.endpoint)
    assert [state(page, id_) for id_ in one.deliveries] == ["pending", "delivered", "pending"]
    assert page.act("webhook.recover", {"hours": "x"}, endpoint_id=one.endpoint).status_code == 400


def test_an_endpoint_is_disabled_and_enabled_and_tried(page: Page) -> None:
    one = sent(page, ARRIVED)
    page.act("webhook_endpoint.disable", endpoint_id=one.endpoint)
    assert page.act("webhook.recover", endpoint_id=one.endpoint).status_code == 409
    assert page.act("webhook_endpoint.test", endpoint_id=one.endpoint).status_code == 409
    page.act("webhook_endpoint.enable", endpoint_id=one.endpoint)
    assert page.ask(lambda stores: stores.webhooks.get("ann", one.endpoint)).enabled
    answer = page.act("webhook_endpoint.test", endpoint_id=one.endpoint)
    assert "webhook.test" in page.get(answer.location).text


@pytest.mark.parametrize(
    "path",
    [
        "/webhooks/deliveries/{delivery}",
        "/webhooks/deliveries?to={endpoint}",
        "/webhooks/deliveries?tenant=bob",
        "/webhooks?tenant=bob",
        "/act/webhook.resend?delivery={delivery}",
        "/act/webhook.reveal?delivery={delivery}",
        "/act/webhook.recover?endpoint_id={endpoint}",
        "/act/webhook_endpoint.disable?endpoint_id={endpoint}",
        "/act/webhook_endpoint.enable?endpoint_id={endpoint}",
        "/act/webhook_endpoint.test?endpoint_id={endpoint}",
    ],
)
def test_who_sees_only_ann_sees_nothing_of_bobs(page: Page, path: str) -> None:
    one, otto = sent(page, GONE, tenant="bob"), page.as_("otto")
    answer = otto.get(path.format(delivery=one.deliveries[0], endpoint=one.endpoint))
    assert answer.status_code == 404
    for listed in ("/webhooks", "/webhooks/deliveries"):
        assert "bob" not in otto.get(listed).text


@pytest.mark.parametrize("path", ["/webhooks", "/webhooks/deliveries?to={endpoint}"])
def test_secrets_and_headers_are_never_shown(page: Page, path: str) -> None:
    one = sent(page, ARRIVED)
    secret = page.ask(lambda stores: stores.webhooks.secret("ann", one.endpoint))
    shown = page.get(path.format(endpoint=one.endpoint)).text
    assert URL in shown
    assert HUSH not in shown
    assert secret not in shown
