"""`fairlane keys`: API keys of tenants, made, looked at, rotated and revoked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from fairlane.terminal import (
    AsJson,
    OtherNamespace,
    RedisUrl,
    asked,
    date_of,
    duration,
    names_of,
    say,
    say_json,
    say_table,
    say_unknown,
    seconds_of,
)

if TYPE_CHECKING:
    from fairlane.accounts import KeyView, Role
    from fairlane.queue.engine import Queue

PAGE: Final = 500
Prefix = Annotated[str, typer.Argument(metavar="PREFIX", help="The ten characters after `fl-`, or the key.")]

keys = typer.Typer(no_args_is_help=True, help="Make, list, rotate and revoke the API keys of tenants.")


@keys.command("create")
def keys_create(
    tenant: Annotated[str, typer.Argument(metavar="TENANT")],
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    role: Annotated[
        str,
        typer.Option(
            metavar="tenant|operator|gateway",
            help="operator: may act for other tenants; gateway: names its end users (TRUSTED_TENANT_HEADER).",
        ),
    ] = "tenant",
    tier: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="May use this tier; repeatable. (Default: its tenant's)")
    ] = None,
    pool: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="May use this pool; repeatable. (Default: its tenant's)")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="It ends after 12h, 30d … (Default: never)")
    ] = None,
    label: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.")] = "",
    as_json: AsJson = False,
) -> None:
    """Make a key. Its secret is shown this once, alone on stdout; only its SHA-256 is kept."""

    async def make(queue: Queue) -> tuple[KeyView, str]:
        from fairlane.accounts import Accounts

        made = await Accounts(queue).create_key(
            tenant,
            role=cast("Role", role),
            tiers=tier,
            pools=pool,
            lasts_s=None if expires is None else seconds_of(expires),
            label=label,
        )
        await say_unknown(queue, tier, pool)
        return made

    _say_secret(*asked(redis, namespace, make, as_json), as_json)


@keys.command("list")
def keys_list(
    tenant: Annotated[str | None, typer.Argument(metavar="TENANT", help="(Default: all)")] = None,
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    as_json: AsJson = False,
) -> None:
    """List keys, never their secrets; for 30 days also those that have ended."""

    async def read(queue: Queue) -> list[KeyView]:
        from fairlane.accounts import Accounts

        accounts = Accounts(queue)
        if tenant is not None:
            await accounts.tenant(tenant)
            return await accounts.keys(tenant)
        found: list[KeyView] = []
        after: str | None = ""
        while after is not None:
            page, after = await accounts.tenants(after, PAGE)
            for one in page:
                found += await accounts.keys(one.tenant)
        return found

    found = asked(redis, namespace, read, as_json)
    if as_json:
        say_json({"keys": [_as_json(one) for one in found]})
        return
    _say_keys(found)


@keys.command("revoke")
def keys_revoke(
    prefix: Prefix, redis: RedisUrl = None, namespace: OtherNamespace = None, as_json: AsJson = False
) -> None:
    """End a key: within a second no front door takes it any more. What it has sent goes on."""

    async def revoke(queue: Queue) -> KeyView:
        from fairlane.accounts import Accounts

        return await Accounts(queue).revoke(prefix)

    key = asked(redis, namespace, revoke, as_json)
    say(f"The key {key.prefix} of {key.tenant} is revoked.", as_json, key=_as_json(key))


@keys.command("rotate")
def keys_rotate(
    prefix: Prefix,
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    overlap: Annotated[str, typer.Option(metavar="TIME", help="How long the old one can be used yet: 1h …")] = "0s",
    as_json: AsJson = False,
) -> None:
    """Make a key that takes another's place: it may do the same. Its secret is shown this once."""

    async def rotate(queue: Queue) -> tuple[KeyView, str]:
        from fairlane.accounts import Accounts

        return await Accounts(queue).rotate(prefix, seconds_of(overlap))

    _say_secret(*asked(redis, namespace, rotate, as_json), as_json)
    if not as_json:
        lasts_s = seconds_of(overlap)
        words = (
            f"works until {date_of(time.time() + lasts_s)} ({duration(1000 * lasts_s)})" if lasts_s else "works no more"
        )
        typer.echo(f"The old one {words}.", err=True)


def _say_keys(found: Sequence[KeyView]) -> None:
    now = time.time() * 1000
    say_table(
        ("key", "tenant", "role", "tiers", "pools", "label", "last used", "state"),
        [
            (
                one.prefix,
                one.tenant,
                one.role,
                names_of(one.tiers),
                names_of(one.pools),
                one.label or None,
                "never" if one.used_at_ms is None else f"{duration(now - one.used_at_ms)} ago",
                _state(one, now),
            )
            for one in found
        ],
    )


def _say_secret(key: KeyView, secret: str, as_json: bool) -> None:
    if as_json:
        say_json({"key": _as_json(key), "secret": secret})
        return
    typer.echo(secret)
    typer.echo(f"Shown this once. Its name is {key.prefix}; it is a key of {key.tenant}.", err=True)


def _state(key: KeyView, now: float) -> str:
    if key.state != "active":
        return key.state
    if key.expires_at_ms is None:
        return "active"
    return f"{'rotated' if key.rotated_to else 'active'}, ends in {duration(key.expires_at_ms - now)}"


def _as_json(key: KeyView) -> dict[str, Any]:
    grants = {
        name: None if grant is None else sorted(grant) for name, grant in (("tiers", key.tiers), ("pools", key.pools))
    }
    return asdict(key) | grants
