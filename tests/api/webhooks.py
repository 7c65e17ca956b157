"""Webhook endpoints made through the front door, and attempts at deliveries as a courier would make them."""

from __future__ import annotations

import time
from typing import Any

import httpx

from fairlane.webhooks.delivery import NewDelivery, Outcome, Own, Try, Verdict
from fairlane.webhooks.outbox import Outbox
from producer.api.state import State

ENDPOINTS = "/v1/webhook_endpoints"
DELIVERIES = "/v1/webhook_deliveries"
URL = "https://hooks.example.com/fairlane"
SECRET = "whsec_" + "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
LEASE_MS = 60_000

# A job's or batch's own webhook, as it cannot be; by the part that is to be named.
BAD_HOOKS: list[tuple[str, Any]] = [
    ("webhook", URL), ("webhook", []), ("webhook", 1), ("webhook", True),
    ("webhook.url", {}), ("webhook.url", {"url": None}), ("webhook.url", {"url": ""}), ("webhook.url", {"url": 1}),
    ("webhook.url", {"url": URL + "x" * 2048}), ("webhook.url", {"url": "ftp://example.com/"}),
    ("webhook.url", {"url": "http://127.0.0.1/"}), ("webhook.url", {"url": "http://localhost:8080/v1/jobs"}),
    ("webhook.url", {"url": "http://169.254.169.254/"}), ("webhook.url", {"url": "http://[::ffff:10.0.0.1]/"}),
    ("webhook.url", {"url": "http://0177.0.0.1/"}), ("webhook.url", {"url": "http://ann:pw@example.com/"}),
    ("webhook.url", {"url": "http://example.com:6379/"}), ("webhook.url", {"url": "http://example.com/\r\nx: y"}),
    ("webhook.secret", {"url": URL, "secret": ""}), ("webhook.secret", {"url": URL, "secret": "geheim"}),
    ("webhook.secret", {"url": URL, "secret": 1}), ("webhook.secret", {"url": URL, "secret": "whsec_" + "A" * 200}),
    ("webhook.headers", {"url": URL, "headers": []}), ("webhook.headers.a", {"url": URL, "headers": {"a": 1}}),
    ("webhook.headers", {"url": URL, "headers": {"Webhook-Id": "msg_1"}}),
    ("webhook.headers", {"url": URL, "headers": {"host": "inside"}}),
    ("webhook.headers", {"url": URL, "headers": {"a": "b\r\nc: d"}}),
    ("webhook.headers", {"url": URL, "headers": {"a b": "c"}}),
    ("webhook.headers", {"url": URL, "headers": {str(n): "" for n in range(21)}}),
    ("webhook.headers", {"url": URL, "headers": {"a": "b" * 5000}}),
    ("webhook.more", {"url": URL, "more": 1}),
]  # fmt: skip


async def register(http: httpx.AsyncClient, url: str = URL, **fields: Any) -> dict[str, Any]:
    """The endpoint that was made, with its secret."""
    response = await http.post(ENDPOINTS, json={"url": url} | fields)
    assert response.status_code == 201, response.text
    return response.json()


async def send_test(http: httpx.AsyncClient, endpoint_id: str) -> dict[str, Any]:
    response = await http.post(f"{ENDPOINTS}/{endpoint_id}/test")
    assert response.status_code == 200, response.text
    return response.json()


async def add_own(state: State, payload: bytes, id_: str = "msg_own", tenant: str = "ann") -> None:
    """A delivery to a job's own webhook."""
    new = NewDelivery(id_, tenant, "adhoc_1", None, Own(URL), "job.succeeded", "job_1", payload)
    assert await Outbox(state.queue.store).add([new]) == 1


async def attempt(state: State, verdict: Verdict, status: int | None = None, excerpt: str = "", **more: Any) -> None:
    """One attempt at all that is due."""
    outbox = Outbox(state.queue.store)
    for id_, token in await outbox.take(100, LEASE_MS):
        assert await outbox.begin(id_, token, LEASE_MS)
        error = None if verdict == "delivered" else f"It answered {status}."
        made = Try(round(1000 * time.time()), 25, status, error, excerpt)
        await outbox.settle(id_, token, Outcome(made, verdict, **more))
