"""`fairlane users`: who may come in to the admin page, as what, and for which tenants."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from fairlane.terminal import (
    AsJson,
    OtherNamespace,
    RedisUrl,
    asked,
    duration,
    names_of,
    say,
    say_json,
    say_table,
)

if TYPE_CHECKING:
    from fairlane.accounts.users import User, UserRole, Users
    from fairlane.queue.engine import Queue

PAGE: Final = 500
Name = Annotated[str, typer.Argument(metavar="NAME")]
Role = Annotated[
    str,
    typer.Option(
        metavar="viewer|operator|admin",
        help="viewer: looks; operator: also acts on what waits and runs; admin: also on what all share, and on users.",
    ),
]
Tenants = Annotated[
    list[str] | None,
    typer.Option("--tenant", metavar="NAME", help="Only this one's things; repeatable. (Default: all)"),
]
PageUrl = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="Of the admin page. (Default: of the `fairlane up` here)")
]

users = typer.Typer(no_args_is_help=True, help="Say who may come in to the admin page.")


@users.command("create")
def users_create(
    name: Name,
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    role: Role = "viewer",
    tenant: Tenants = None,
    password: Annotated[
        bool, typer.Option(help="Ask for a password; from a pipe, its first line is one. Without: `users login`.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a user. Without a password, `fairlane users login` lets them in, and they choose one on the page."""
    chosen = _typed() if password else None

    async def create(store: Users) -> User:
        return await store.create(name, cast("UserRole", role), tenant, chosen)

    user = _with(create, redis, namespace, as_json)
    hint = "" if password else f" `fairlane users login {name}` lets them in."
    say(f"Created the {user.role} {name} for {_scope(user)}.{hint}", as_json, user=_as_json(user))


@users.command("list")
def users_list(redis: RedisUrl = None, namespace: OtherNamespace = None, as_json: AsJson = False) -> None:
    """List all users."""

    async def read(store: Users) -> list[User]:
        found: list[User] = []
        after: str | None = ""
        while after is not None:
            page, after = await store.users(after, PAGE)
            found += page
        return found

    found = _with(read, redis, namespace, as_json)
    if as_json:
        say_json({"users": [_as_json(user) for user in found]})
        return
    say_table(
        ("user", "role", "tenants", "password", "seen", "state"),
        [
            (
                user.name,
                user.role,
                names_of(user.tenants),
                "yes" if user.has_password else "no",
                _seen(user),
                "disabled" if user.disabled else "active",
            )
            for user in found
        ],
    )


@users.command("set")
def users_set(
    name: Name,
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    role: Annotated[str | None, typer.Option(metavar="viewer|operator|admin", help="(Default: as it is)")] = None,
    tenant: Annotated[
        list[str] | None, typer.Option("--tenant", metavar="NAME", help="Repeatable; `all`. (Default: as they are)")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change what a user may do, from their next request on."""

    async def change(store: Users) -> User:
        known = await store.user(name)
        scope = known.tenants if tenant is None else None if tenant == ["all"] else tenant
        return await store.set(name, cast("UserRole", role or known.role), scope)

    user = _with(change, redis, namespace, as_json)
    article = "a" if user.role == "viewer" else "an"
    say(f"{name} is {article} {user.role} for {_scope(user)}.", as_json, user=_as_json(user))


@users.command("disable")
def users_disable(
    name: Name, redis: RedisUrl = None, namespace: OtherNamespace = None, as_json: AsJson = False
) -> None:
    """Let a user in no more; who is signed in is out within a second."""
    user = _with(lambda store: store.disable(name), redis, namespace, as_json)
    say(f"The user {name} is disabled.", as_json, user=_as_json(user))


@users.command("enable")
def users_enable(name: Name, redis: RedisUrl = None, namespace: OtherNamespace = None, as_json: AsJson = False) -> None:
    """Undo `disable`."""
    user = _with(lambda store: store.enable(name), redis, namespace, as_json)
    say(f"The user {name} is enabled.", as_json, user=_as_json(user))


@users.command("password")
def users_password(
    name: Name, redis: RedisUrl = None, namespace: OtherNamespace = None, as_json: AsJson = False
) -> None:
    """Give a user another password, which is asked for, or the first line of a pipe. All their sittings end."""
    chosen = _typed()
    user = _with(lambda store: store.set_password(name, chosen), redis, namespace, as_json)
    say(f"The user {name} has a new password.", as_json, user=_as_json(user))


@users.command("login")
def users_login(
    name: Name,
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    url: PageUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print an address that signs a user in once, within ten minutes. Give it to nobody else."""
    secret = _with(lambda store: store.allow_once(name), redis, namespace, as_json)
    address = f"{(url or _page_here()).rstrip('/')}/login/once?secret={secret}"
    say(address, as_json, url=address)


def _with(act: Callable[[Users], Awaitable[Any]], redis: str | None, namespace: str | None, as_json: bool) -> Any:
    """What `act` makes of the users of the queue that is meant."""

    async def run(queue: Queue) -> Any:
        from fairlane.accounts.users import Users

        return await act(Users(queue))

    return asked(redis, namespace, run, as_json)


def _typed() -> str:
    """A password that nobody sees: not among a command's words, which other users of the machine can read."""
    if sys.stdin.isatty():
        return typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    return sys.stdin.readline().rstrip("\r\n")


def _page_here() -> str:
    from fairlane.settings import load
    from fairlane.terminal import up_here

    return up_here(load().data_dir, "admin_url") or "http://127.0.0.1:8081"


def _scope(user: User) -> str:
    if user.tenants is None:
        return "all tenants"
    return f"the tenant{'' if len(user.tenants) == 1 else 's'} {', '.join(sorted(user.tenants))}"


def _seen(user: User) -> str | None:
    if user.seen_at_ms is None:
        return None
    return f"{duration(1000 * time.time() - user.seen_at_ms)} ago, from {user.seen_from}"


def _as_json(user: User) -> dict[str, Any]:
    return asdict(user) | {"tenants": None if user.tenants is None else sorted(user.tenants)}
