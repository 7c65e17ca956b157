"""`client.webhooks`, over HTTP and straight to Redis: endpoints, secrets and deliveries, each tenant's own."""

from __future__ import annotations

import time
from typing import Any

import pytest

from fairlane import AsyncClient
from fairlane.errors import IllegalTransition, InvalidRequest, NotFound
from fairlane.queue.engine import Queue
from fairlane.webhooks.delivery import Outcome, Try
from fairlane.webhooks.outbox import Outbox
from tests.client.conftest import Reach
from tests.client.doors import CUT, Said, Stub, serving

URL = "https://hooks.example.com/fairlane"
ASK: dict[str, Any] = {"model": "llama", "prompt": "x"}


async def attempted(queue: Queue, outcome: Outcome) -> None:
    """The one delivery that is due is tried, and so it came out."""
    outbox = Outbox(queue.store)
    ((delivery_id, token),) = await outbox.take(10, 5_000)
    assert await outbox.begin(delivery_id, token, 5_000)
    await outbox.settle(delivery_id, token, outcome)


def failed() -> Outcome:
    return Outcome(Try(round(1000 * time.time()), 7, 500, "it answered 500", "Oh no."), "failed", reason="exhausted")


async def test_an_endpoint_is_made_changed_and_forgotten(client: AsyncClient) -> None:
    made = await client.webhooks.create(URL, events=["job.*"], description="mine", headers={"x-key": "k"})
    assert (made.url, made.events, made.description, made.headers) == (URL, ("job.*",), "mine", {"x-key": "k"})
    assert (made.tenant, made.enabled, made.disabled_reason, made.last_attempt_at) == ("ann", True, None, None)
    assert time.time() - 60 < made.created_at < time.time() + 60
    changed = await client.webhooks.update(made.id, events=["batch.*"], description="")
    assert (changed.url, changed.events, changed.description, changed.secret) == (URL, ("batch.*",), "", None)
    assert [one.id for one in await client.webhooks.list()] == [made.id]
    await client.webhooks.delete(made.id)
    assert list(await client.webhooks.list()) == []
    with pytest.raises(NotFound):
        await client.webhooks.get(made.id)


async def test_all_events_are_sent_unless_it_is_said_which(client: AsyncClient) -> None:
    assert (await client.webhooks.create(URL)).events == ("*",)


async def test_what_was_asked_twice_is_there_once(client: AsyncClient) -> None:
    made = await client.webhooks.create(URL, headers={"x-key": "k"})
    assert await client.webhooks.create(URL, headers={"x-key": "k"}) == made
    with pytest.raises(IllegalTransition, match=made.id):
        await client.webhooks.create(URL)


async def test_it_is_disabled_and_enabled(client: AsyncClient) -> None:
    made = await client.webhooks.create(URL)
    assert (await client.webhooks.disable(made.id)).disabled_reason == "asked"
    with pytest.raises(IllegalTransition):
        await client.webhooks.test(made.id)
    assert (await client.webhooks.enable(made.id)).enabled


async def test_each_endpoint_has_a_secret_and_the_tenant_one_for_all_else(client: AsyncClient) -> None:
    made = await client.webhooks.create(URL)
    assert made.secret
    assert await client.webhooks.secret(made.id) == made.secret
    default = await client.webhooks.secret()
    assert default == await client.webhooks.secret("default") != made.secret
    for which, old in ((made.id, made.secret), ("default", default)):
        new = await client.webhooks.rotate(which, overlap_s=60)
        assert new == await client.webhooks.secret(which) != old


async def test_a_delivery_shows_its_attempts_and_is_sent_again(client: AsyncClient, queue: Queue) -> None:
    made = await client.webhooks.create(URL, events=["batch.*"])
    sent = await client.webhooks.test(made.id)
    assert (sent.event, sent.state, sent.endpoint_id, sent.url) == ("webhook.test", "pending", made.id, URL)
    await attempted(queue, failed())
    seen = await client.webhooks.delivery(sent.id)
    assert (seen.state, seen.reason, seen.next_attempt_at) == ("failed", "exhausted", None)
    ((at, took_ms, status, error, excerpt),) = [
        (one.at, one.duration_ms, one.status, one.error, one.excerpt) for one in seen.attempts
    ]
    assert time.time() - 60 < at < time.time() + 60
    assert (took_ms, status, error, excerpt) == (7, 500, "it answered 500", "Oh no.")
    assert (seen.payload["type"], seen.payload["data"]["id"]) == ("webhook.test", made.id)
    assert (await client.webhooks.get(made.id)).last_status == 500
    assert (await client.webhooks.resend(sent.id)).state == "pending"
    assert [one async for one in client.webhooks.deliveries(state="failed")] == []


async def test_what_failed_since_then_is_recovered(client: AsyncClient, queue: Queue) -> None:
    made = await client.webhooks.create(URL)
    sent = await client.webhooks.test(made.id)
    await attempted(queue, failed())
    assert await client.webhooks.recover(made.id, time.time() + 60) == 0
    assert await client.webhooks.recover(made.id, time.time() - 60) == 1
    assert (await client.webhooks.delivery(sent.id)).state == "pending"


@pytest.mark.parametrize("page", [3])
async def test_all_deliveries_are_listed_the_newest_first(
    client: AsyncClient, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("http_postbox", "direct_postbox"):
        monkeypatch.setattr(f"producer.client.{module}.PAGE", page)
    made = await client.webhooks.create(URL)
    other = await client.webhooks.create(f"{URL}/other")
    sent = [(await client.webhooks.test(made.id)).id for _ in range(7)]
    await client.webhooks.test(other.id)
    listed = [one async for one in client.webhooks.deliveries(endpoint=made.id)]
    assert {one.id for one in listed} == set(sent)
    assert [one.created_at for one in listed] == sorted((one.created_at for one in listed), reverse=True)
    assert listed[0].payload is None
    assert len([one async for one in client.webhooks.deliveries()]) == 8


async def test_what_is_another_tenants_is_not_there(reach: Reach, client: AsyncClient) -> None:
    made = await client.webhooks.create(URL)
    sent = await client.webhooks.test(made.id)
    async with reach.client("bob") as bob:
        for ask in (bob.webhooks.get, bob.webhooks.delete, bob.webhooks.secret, bob.webhooks.test, bob.webhooks.rotate):
            with pytest.raises(NotFound):
                await ask(made.id)
        for ask in (bob.webhooks.delivery, bob.webhooks.resend):
            with pytest.raises(NotFound):
                await ask(sent.id)
        assert list(await bob.webhooks.list()) == []
        assert [one async for one in bob.webhooks.deliveries()] == []


async def test_an_address_within_is_refused_with_the_reason(client: AsyncClient) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await client.webhooks.create("http://10.0.0.1/")
    assert refused.value.param == "url"
    with pytest.raises(InvalidRequest):
        await client.submit(**ASK, webhook="http://10.0.0.1/")


async def test_a_job_and_its_webhook_are_taken_in(client: AsyncClient) -> None:
    assert (await client.submit(**ASK, webhook=URL)).id
    (handle,) = await client.submit_many([{**ASK, "webhook": {"url": URL, "headers": {"x-key": "k"}}}])
    assert handle.error is None


# --- over HTTP --------------------------------------------------------------------------------------------------------


async def test_a_lost_answer_means_the_same_secret_again() -> None:
    door = Stub()
    door.answers = [CUT, Said(200, {"secret": "whsec_x"})]
    async with serving(door.app()) as url, AsyncClient(url) as client:
        await client.webhooks.rotate("whe_1")
    first, second = door.asked
    assert first == second
    assert first["secret"].startswith("whsec_")


async def test_what_is_no_endpoint_is_no_front_door() -> None:
    door = Stub()
    door.answers = [Said(200, {"data": [{"id": "whe_1"}]})]
    async with serving(door.app()) as url, AsyncClient(url) as client:
        with pytest.raises(Exception, match="does not speak as a front door"):
            await client.webhooks.list()
    assert len(door.asked) == 1, "to ask again gives the same"


async def test_a_batch_may_have_a_webhook() -> None:
    door = Stub()
    door.answers = [
        Said(400, {"error": {"code": "invalid_request", "message": "Enough.", "param": None}}),
    ]
    async with serving(door.app()) as url, AsyncClient(url) as client:
        from fairlane import File

        file = File("file-1", 1, 0.0, "x", "batch", {})
        with pytest.raises(InvalidRequest, match="Enough"):
            await client.batches.submit(file, webhook=URL)
    assert door.asked[0]["webhook"] == {"url": URL}
