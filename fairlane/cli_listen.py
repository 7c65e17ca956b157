"""`fairlane webhooks listen`: receives events on this machine while one develops, verifies and prints them."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fairlane.errors import InvalidRequest, Refused
from fairlane.reaching import Reach, Tenant, reaching
from fairlane.terminal import INTERRUPTED, AsJson

if TYPE_CHECKING:
    from fairlane.receiver import Received, Receiver

WHAT: Final = "fairlane webhooks listen"
Events = Annotated[
    list[str] | None,
    typer.Option("--event", metavar="TYPE", help="job.succeeded …, job.*, batch.*; repeatable. (Default: all)"),
]


@reaching(first="server", unless="secret")
def listen(
    to: Reach,
    *,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="On 127.0.0.1; 0 is any free one.")] = 0,
    event: Events = None,
    secret: Annotated[
        str | None,
        typer.Option(
            metavar="whsec_…",
            help="Of an endpoint that sends here already, through a tunnel say: none is made, no queue is asked.",
        ),
    ] = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Receive events here until Ctrl-C, and print those that are genuine: a line each, with --json the event.

    A temporary endpoint has them sent, and is removed in the end. Fairlane must be allowed to send to this machine.
    """
    try:
        asyncio.run(_listen(to, port, event, secret, tenant, as_json))
    except asyncio.CancelledError:  # SIGTERM, or the terminal is gone
        raise typer.Exit(INTERRUPTED) from None


async def _listen(
    to: Reach, port: int, events: list[str] | None, secret: str | None, tenant: str | None, as_json: bool
) -> None:
    from fairlane.receiver import Receiver
    from producer.client.postbox import new_secret

    _end_by_signals()
    heard: asyncio.Queue[Received] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    used = secret or new_secret()
    with Receiver(used, lambda one: loop.call_soon_threadsafe(heard.put_nowait, one), port) as receiver:
        if secret is not None:
            typer.echo(f"Listening at {receiver.url} for what is signed with this secret; Ctrl-C ends it.", err=True)
            await _print(heard, as_json)
        async with _registered(to, receiver, events, used, tenant) as endpoint_id:
            typer.echo(f"Listening at {receiver.url}, the endpoint {endpoint_id}; Ctrl-C ends both.", err=True)
            await _print(heard, as_json)


@asynccontextmanager
async def _registered(
    to: Reach, receiver: Receiver, events: list[str] | None, secret: str, tenant: str | None
) -> AsyncGenerator[str]:
    """The id of an endpoint that is there during the block. Raises Refused if nothing may be sent to this machine."""
    async with to.client(tenant=tenant) as client:
        for one in await client.webhooks.list():
            if (one.url, one.description) == (receiver.url, WHAT):  # left by one that was killed
                await client.webhooks.delete(one.id)
        try:
            made = await client.webhooks.create(receiver.url, events=events, description=WHAT, secret=secret)
        except InvalidRequest as error:
            if error.param != "url":
                raise
            words = (
                f"{error.message}\nTo have events sent here, start Fairlane (front door, dispatchers and workers) with "
                f"FAIRLANE_WEBHOOK_ALLOW=127.0.0.1:{receiver.port}, and this with --port {receiver.port}."
            )
            raise Refused(words, code=error.code, status=error.status, param=error.param) from error
        try:
            yield made.id
        finally:
            await client.webhooks.delete(made.id)


async def _print(heard: asyncio.Queue[Received], as_json: bool) -> None:
    """For ever."""
    seen: set[str] = set()
    while True:
        one = await heard.get()
        if one.event is None:
            typer.echo(f"Refused {one.webhook_id or 'a request'}: {one.error}", err=True)
            continue
        if as_json:
            typer.echo(json.dumps(one.event))
        else:
            typer.echo(_line(one.webhook_id, one.event, again=one.webhook_id in seen))
        seen.add(one.webhook_id)


def _line(webhook_id: str, event: Mapping[str, Any], *, again: bool) -> str:
    data: Mapping[str, Any] = event.get("data") or {}
    what = f"{event.get('type', '-'):<15}  {data.get('id', '-')}"
    return f"{time.strftime('%H:%M:%S')}  {what}  {webhook_id}{'  (again)' if again else ''}"


def _end_by_signals() -> None:
    """As Ctrl-C does: the endpoint is removed."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  # this runs in one
    for signum in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(signum, task.cancel)
