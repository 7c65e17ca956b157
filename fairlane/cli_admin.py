"""`fairlane admin`: the admin page."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli_users import users
from fairlane.terminal import OtherNamespace, RedisUrl, refusals

admin = typer.Typer(invoke_without_command=True, help="Serve the admin page, and say who may come in.")
admin.add_typer(users, name="users")
admin.add_typer(users, name="users")


@admin.callback()
def serve(
    context: typer.Context,
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    host: Annotated[str, typer.Option()] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535)] = 8081,
    behind_proxy: Annotated[
        int, typer.Option(min=0, max=8, metavar="N", help="N proxies before it set X-Forwarded-*: believe them.")
    ] = 0,
    prefix: Annotated[str, typer.Option(metavar="/PATH", help="Serve under this path.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Listen beyond loopback all the same.")] = False,
    log_level: Annotated[str, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = "info",
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve the admin page: see why anything waits, and move it.

    Whoever comes in needs a user of their own: `fairlane admin users create`.
    """
    if context.invoked_subcommand is not None:
        return
    from admin_ui.serve import AdminOptions, start

    with refusals():
        start(
            AdminOptions(host, port, behind_proxy, prefix, log_level, force, parent),
            redis_url=redis,
            namespace=namespace,
        )
