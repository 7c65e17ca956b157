"""`fairlane webhooks`: where a tenant's events are sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from fairlane.cli_deliveries import deliveries, delivery, recover, resend, send_test
from fairlane.cli_listen import Events, listen
from fairlane.reaching import Reach, Tenant, reaching
from fairlane.terminal import AsJson, date_of, duration, say, say_json, say_table, seconds_of, settings_of

if TYPE_CHECKING:
    from producer.client.webhook_records import WebhookEndpoint
    from producer.client.webhooks import AsyncWebhooks

T = TypeVar("T")
Id = Annotated[str, typer.Argument(metavar="ID", help="Of an endpoint: whe_…")]
IdOrDefault = Annotated[
    str, typer.Argument(metavar="ID", help="Of an endpoint; default: for jobs and batches that bring a webhook.")
]
Secret = Annotated[str | None, typer.Option(metavar="whsec_…", help="Yours. (Default: a new one is made)")]

webhooks = typer.Typer(no_args_is_help=True, help="Have events sent to endpoints, and see what became of each.")


@webhooks.command("list")
@reaching(first="server")
def list_(to: Reach, *, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """List the endpoints."""
    found = _asked(to, tenant, lambda hooks: hooks.list())
    if as_json:
        say_json({"endpoints": [one.raw for one in found]})
    else:
        _say_endpoints(found)


@webhooks.command()
@reaching(first="server")
def add(
    to: Reach,
    url: Annotated[str, typer.Argument(metavar="URL")],
    *,
    event: Events = None,
    description: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.")] = "",
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Sent along with each event; repeatable.")
    ] = None,
    secret: Secret = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Have events sent to a URL. Its id is printed, and on stderr the secret that the receiver verifies them with."""
    headers = settings_of(header or ())
    made = _asked(
        to,
        tenant,
        lambda hooks: hooks.create(url, events=event, description=description, headers=headers, secret=secret),
    )
    if as_json:
        say_json(made.raw)
        return
    typer.echo(made.id)
    words = f"Its secret is {made.secret} (`{to.again('webhooks', 'secret', made.id)}` shows it again)."
    typer.echo(f"{words} Try it: {to.again('webhooks', 'test', made.id)}", err=True)


@webhooks.command()
@reaching(first="server")
def show(to: Reach, id_: Id, *, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Show an endpoint."""
    one = _asked(to, tenant, lambda hooks: hooks.get(id_))
    if as_json:
        say_json(one.raw)
        return
    facts = {
        "url": one.url,
        "events": ", ".join(one.events),
        "state": _state(one),
        "description": one.description or "-",
        "headers": ", ".join(one.headers) or "-",
        "made": date_of(one.created_at),
        "last attempt": f"{date_of(one.last_attempt_at)}, {_status(one)}" if one.last_attempt_at else "-",
        "failing since": date_of(one.failing_since) or "-",
        "left alone": f"until {date_of(one.shut_until)}" if one.shut_until else "-",
    }
    for name, value in facts.items():
        typer.echo(f"{name:<13}  {value}")


@webhooks.command()
@reaching(first="server")
def remove(to: Reach, id_: Id, *, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Forget an endpoint. What waits to be sent to it fails."""
    _asked(to, tenant, lambda hooks: hooks.delete(id_))
    say(f"{id_} is removed.", as_json, id=id_, deleted=True)


@webhooks.command()
@reaching(first="server")
def enable(to: Reach, id_: Id, *, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Send to an endpoint again. What failed meanwhile, `fairlane webhooks recover` sends."""
    one = _asked(to, tenant, lambda hooks: hooks.enable(id_))
    say(f"{id_} is enabled.", as_json, endpoint=one.raw)


@webhooks.command()
@reaching(first="server")
def disable(to: Reach, id_: Id, *, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Send nothing to an endpoint. What waits to be sent fails; it can be recovered."""
    one = _asked(to, tenant, lambda hooks: hooks.disable(id_))
    say(f"{id_} is disabled.", as_json, endpoint=one.raw)


@webhooks.command("secret")
@reaching(first="server")
def secret_(to: Reach, id_: IdOrDefault = "default", *, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Print what an endpoint's events are signed with."""
    found = _asked(to, tenant, lambda hooks: hooks.secret(id_))
    say(found, as_json, id=id_, secret=found)


@webhooks.command()
@reaching(first="server")
def rotate(
    to: Reach,
    id_: IdOrDefault,
    *,
    overlap: Annotated[str, typer.Option(metavar="TIME", help="How long the old one signs too: 1h …")] = "24h",
    secret: Secret = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Print a new secret. Until the overlap is over, events are signed with both, the old and the new one."""
    lasts_s = seconds_of(overlap)
    new = _asked(to, tenant, lambda hooks: hooks.rotate(id_, overlap_s=lasts_s, secret=secret))
    say(new, as_json, id=id_, secret=new)
    if not as_json:
        until = f"until {date_of(time.time() + lasts_s)} ({duration(1000 * lasts_s)})" if lasts_s else "no more"
        typer.echo(f"The old one signs {until}.", err=True)


webhooks.command("test")(send_test)
for command in (deliveries, delivery, resend, recover, listen):
    webhooks.command()(command)


def _asked(to: Reach, tenant: str | None, act: Callable[[AsyncWebhooks], Awaitable[T]]) -> T:
    async def ask() -> T:
        async with to.client(tenant=tenant) as client:
            return await act(client.webhooks)

    return asyncio.run(ask())


def _say_endpoints(found: Sequence[WebhookEndpoint]) -> None:
    say_table(
        ("endpoint", "url", "events", "state", "last status", "description"),
        [(one.id, one.url, ",".join(one.events), _state(one), _status(one), one.description or None) for one in found],
    )


def _status(one: WebhookEndpoint) -> str | None:
    """What its latest attempt was answered."""
    if one.last_attempt_at is None:
        return None
    return "no answer" if one.last_status is None else str(one.last_status)


def _state(one: WebhookEndpoint) -> str:
    if not one.enabled:
        return f"disabled ({one.disabled_reason})"
    if one.failing_since is None:
        return "enabled"
    failing = f"failing for {duration(1000 * (time.time() - one.failing_since))}"
    if one.shut_until is None:
        return failing
    return f"{failing}, tried again in {duration(1000 * max(one.shut_until - time.time(), 0))}"
