"""`fairlane tenants`: who has work in which pool, and what each may do there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlane.terminal import (
    AsJson,
    OtherNamespace,
    PoolNames,
    RedisUrl,
    asked,
    duration,
    pools_named,
    say_json,
    say_table,
    settings_of,
)

if TYPE_CHECKING:
    from fairlane.model import Limits
    from fairlane.queue.engine import Queue
    from fairlane.standing import TenantStanding, TenantView

Name = Annotated[str, typer.Argument(metavar="TENANT")]

tenants = typer.Typer(no_args_is_help=True, help="See and change what a tenant may do in each pool.")


@tenants.command("list")
def tenants_list(
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    pool: PoolNames = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The most of each tier.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the tenants with queued work, in each tier the one that waits longest first."""

    async def read(queue: Queue) -> list[tuple[str, str, TenantView]]:
        found: list[tuple[str, str, TenantView]] = []
        for one in await pools_named(queue, pool):
            for tier in one.policy.tiers:
                views, _ = await queue.inspect.tenants(one, tier, limit=limit)
                found += [(one.name, tier, view) for view in views]
        return found

    found = asked(redis, namespace, read)
    if as_json:
        say_json({"tenants": [{"pool": name, "tier": tier} | _as_json(view) for name, tier, view in found]})
        return
    now = time.time() * 1000
    rows = [
        (name, tier, one.tenant, one.waiting, one.inflight, duration(now - one.oldest_ms), _held(one.held_until_ms))
        for name, tier, one in found
    ]
    say_table(("pool", "tier", "tenant", "waiting", "running", "oldest", "state"), rows)


@tenants.command("show")
def tenants_show(
    tenant: Name,
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    pool: PoolNames = None,
    as_json: AsJson = False,
) -> None:
    """Show what a tenant may do in each pool, and what it has there."""

    async def read(queue: Queue) -> list[tuple[str, TenantStanding]]:
        return [(one.name, await queue.inspect.tenant(one, tenant)) for one in await pools_named(queue, pool)]

    _say_standings(tenant, asked(redis, namespace, read), as_json)


@tenants.command("set")
def tenants_set(
    tenant: Name,
    limits: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE…",
            help="weight, max_inflight, requests_per_minute, tokens_per_minute, max_waiting; `none`: no limit.",
        ),
    ],
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    pool: PoolNames = None,
    as_json: AsJson = False,
) -> None:
    """Change what a tenant may do, from the next pop on. Limits that are not named stay as they are."""

    async def write(queue: Queue) -> list[tuple[str, TenantStanding]]:
        pools = await pools_named(queue, pool)
        for one in pools:
            await queue.set_limits(one, tenant, _limits(await queue.inspect.limits(one, tenant), limits))
        return [(one.name, await queue.inspect.tenant(one, tenant)) for one in pools]

    _say_standings(tenant, asked(redis, namespace, write), as_json)


def _limits(known: Limits, words: Sequence[str]) -> Limits:
    """The limits with what was typed over them. Raises InvalidRequest."""
    from fairlane.errors import InvalidRequest

    names = asdict(known)
    changes: dict[str, float | None] = {}
    for name, text in settings_of(words).items():
        if name not in names:
            raise InvalidRequest(f"A tenant has no limit {name!r}. There are {', '.join(names)}.", param=name)
        try:
            changes[name] = float(text) if name == "weight" else None if text == "none" else int(text)
        except ValueError as error:
            raise InvalidRequest(f"{name} is a number, or none; not {text!r}.", param=name) from error
    return replace(known, **changes)  # pyright: ignore[reportArgumentType]


def _say_standings(tenant: str, found: Sequence[tuple[str, TenantStanding]], as_json: bool) -> None:
    if as_json:
        say_json({"tenant": tenant, "pools": [{"pool": name} | _as_json(one) for name, one in found]})
        return
    rows = [(name, one.waiting, one.inflight, _state(one), *asdict(one.limits).values()) for name, one in found]
    names = ("weight", "max_inflight", "requests_per_minute", "tokens_per_minute", "max_waiting")
    say_table(("pool", "waiting", "running", "state", *names), rows)


def _as_json(view: TenantStanding | TenantView) -> dict[str, Any]:
    """JSON has no infinity: who is held until something changes is held, and no time is known."""
    until = view.held_until_ms
    return asdict(view) | {"held": until is not None, "held_until_ms": until if until and isfinite(until) else None}


def _state(standing: TenantStanding) -> str:
    return "paused" if standing.paused else _held(standing.held_until_ms)


def _held(held_until_ms: float | None) -> str:
    if held_until_ms is None:
        return "may run"
    if not isfinite(held_until_ms):
        return "held"
    return f"held for {duration(held_until_ms - 1000 * time.time())}"
