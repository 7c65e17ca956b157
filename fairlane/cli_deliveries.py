"""`fairlane webhooks test|deliveries|delivery|resend|recover`: what became of each event, and sending it again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from fairlane.errors import FairlaneError
from fairlane.reaching import Reach, Tenant, reaching
from fairlane.terminal import (
    REFUSED,
    UNSUCCESSFUL,
    AsJson,
    counted,
    date_of,
    duration,
    moment_of,
    say,
    say_json,
    say_table,
)

if TYPE_CHECKING:
    from producer.client.webhook_records import DeliveryState, WebhookAttempt, WebhookDelivery
    from producer.client.webhooks import AsyncWebhooks

TEST_S: Final = 30.0  # for a first attempt to be made
LOOK_S: Final = 0.1
EXCERPT_MOST: Final = 60  # characters in a table
ANSWER_MOST: Final = 40
Endpoint = Annotated[str, typer.Argument(metavar="ID", help="Of an endpoint: whe_…")]
Delivery = Annotated[str, typer.Argument(metavar="ID", help="Of a delivery, its webhook-id: msg_…")]


@reaching(first="server")
def send_test(
    to: Reach,
    id_: Endpoint,
    *,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for what it answers.")] = True,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Send a `webhook.test` to an endpoint, and tell what it answered. Exits 1 if it did not take it."""

    async def act() -> WebhookDelivery:
        async with to.client(tenant=tenant) as client:
            sent = await client.webhooks.test(id_)
            return await _attempted(client.webhooks, sent) if wait else sent

    one = asyncio.run(act())
    if as_json:
        say_json(one.raw)
    else:
        typer.echo(f"{one.id}  {_words(one)}")
    if wait and one.state != "delivered":
        raise typer.Exit(UNSUCCESSFUL)


@reaching(first="server")
def deliveries(
    to: Reach,
    *,
    endpoint: Annotated[str | None, typer.Option(metavar="ID", help="To this one only.")] = None,
    state: Annotated[str | None, typer.Option(metavar="pending|delivered|failed")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="So many at the most.")] = 50,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """List what was sent, or is to be, in the last days: the newest first."""

    async def read() -> list[WebhookDelivery]:
        found: list[WebhookDelivery] = []
        async with to.client(tenant=tenant) as client:
            pages = client.webhooks.deliveries(endpoint=endpoint, state=cast("DeliveryState | None", state))
            async for one in pages:
                found.append(one)
                if len(found) == limit:
                    break
            await pages.aclose()
        return found

    found = asyncio.run(read())
    if as_json:
        say_json({"deliveries": [one.raw for one in found]})
    else:
        _say_deliveries(found)


@reaching(first="server")
def delivery(
    to: Reach,
    id_: Delivery,
    *,
    payload: Annotated[bool, typer.Option("--payload", help="Print what is sent, as JSON, and nothing else.")] = False,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Show a delivery, and each attempt: when, how long, what was answered."""

    async def read() -> WebhookDelivery:
        async with to.client(tenant=tenant) as client:
            return await client.webhooks.delivery(id_)

    one = asyncio.run(read())
    if as_json or payload:
        say_json(one.payload if payload else one.raw)
        return
    typer.echo(f"{one.event} of {one.object_id}, to {one.url}" + (f" ({one.endpoint_id})" if one.endpoint_id else ""))
    typer.echo(f"made {date_of(one.created_at)}; {_words(one)}")
    if one.attempts:
        typer.echo()
        _say_attempts(one.attempts)


@reaching(first="server")
def resend(
    to: Reach,
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Of deliveries: msg_…")],
    *,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Send deliveries again, whatever became of them, each under its old webhook-id. Exits 3 if one cannot be."""

    async def act() -> int:
        refused = 0
        async with to.client(tenant=tenant) as client:
            for id_ in ids:
                try:
                    one = await client.webhooks.resend(id_)
                except FairlaneError as error:
                    if len(ids) == 1 or error.status not in (400, 404, 409):
                        raise
                    refused += 1
                    told = json.dumps({"error": {"message": error.message, "code": error.code}, "id": id_})
                    typer.echo(told if as_json else f"{id_}: {error.message}", err=True)
                    continue
                say(f"{id_} is sent again.", as_json, **one.raw)
        return refused

    if asyncio.run(act()):
        raise typer.Exit(REFUSED)


@reaching(first="server")
def recover(
    to: Reach,
    id_: Endpoint,
    *,
    since: Annotated[str, typer.Option(metavar="TIME", help="15m, 12h or 30d ago, or 2026-11-30T12:00.")],
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Send again to an endpoint all that has failed and was made since then."""
    at = moment_of(since)

    async def act() -> int:
        async with to.client(tenant=tenant) as client:
            return await client.webhooks.recover(id_, at)

    count = asyncio.run(act())
    words = f"{counted(count, 'delivery is', 'deliveries are')} sent again: what failed since {date_of(at)}."
    say(words, as_json, recovered=count)


async def _attempted(webhooks: AsyncWebhooks, sent: WebhookDelivery) -> WebhookDelivery:
    """The delivery after its first attempt, or as it is after TEST_S."""
    ends = time.monotonic() + TEST_S
    while sent.state == "pending" and not sent.attempts and time.monotonic() < ends:
        await asyncio.sleep(LOOK_S)
        sent = await webhooks.delivery(sent.id)
    return sent


def _words(one: WebhookDelivery) -> str:
    """How it is with a delivery."""
    words: str = one.state
    if one.state == "failed" and one.reason:
        words += f" ({one.reason})"
    if one.attempts:
        last = one.attempts[-1]
        words += f" after {counted(len(one.attempts), 'attempt')}; the last one: {_answer(last)}"
        words += f" in {duration(last.duration_ms)}"
    if one.next_attempt_at is not None:
        left = one.next_attempt_at - time.time()
        words += (
            f"; the next attempt is in {duration(1000 * left)}"
            if left > 0
            else "; it is due, and no worker has sent it yet"
        )
    return words


def _answer(attempt: WebhookAttempt) -> str:
    return attempt.error or ("no answer" if attempt.status is None else str(attempt.status))


def _state(one: WebhookDelivery) -> str:
    """Its state, and of what comes to it now."""
    if one.reason and one.state == "failed":
        return f"failed ({one.reason})"
    tries = f", {counted(len(one.attempts), 'attempt')}" if one.attempts else ""
    return f"{one.state}{tries if one.state == 'pending' else ''}"


def _say_deliveries(found: Sequence[WebhookDelivery]) -> None:
    say_table(
        ("delivery", "made", "event", "state", "last answer"),
        [
            (
                one.id,
                date_of(one.created_at),
                one.event,
                _state(one),
                _answer(one.attempts[-1])[:ANSWER_MOST] if one.attempts else None,
            )
            for one in found
        ],
    )


def _say_attempts(attempts: Sequence[WebhookAttempt]) -> None:
    say_table(
        ("at", "took", "answer", "it said"),
        [(date_of(one.at), duration(one.duration_ms), _answer(one), _brief(one.excerpt)) for one in attempts],
    )


def _brief(excerpt: str) -> str | None:
    """The first of an answer, on one line, with what a terminal would obey made visible."""
    text = json.dumps(" ".join(excerpt[: 2 * EXCERPT_MOST].split()), ensure_ascii=False)[1:-1]
    text = "".join(one if one.isprintable() else "·" for one in text)
    return (text[:EXCERPT_MOST] + ("…" if len(text) > EXCERPT_MOST else "")) or None
