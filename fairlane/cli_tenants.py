"""`fairlane tenants`: who has work in which pool, and what each may do there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
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
    no_pool,
    pools_named,
    say_json,
    say_table,
    settings_of,
)

if TYPE_CHECKING:
    from fairlane.model import Limits
    from fairlane.queue.engine import Queue
    from fairlane.queue.pools import Pool
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

    async def read(queue: Queue) -> list[Listed]:
        return [found for one in await pools_named(queue, pool) for found in await _listed(queue, one, limit)]

    found = asked(redis, namespace, read, as_json)
    if as_json:
        say_json({"tenants": [{"pool": name, "tier": tier} | _as_json(view) for name, tier, view, _ in found]})
        return
    now = time.time() * 1000
    rows = [
        (name, tier, one.tenant, one.waiting, one.inflight, duration(now - one.oldest_ms), state)
        for name, tier, one, state in found
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

    found = asked(redis, namespace, read, as_json)
    if not found and not as_json:
        typer.echo(no_pool(redis, namespace))
        return
    _say_standings(tenant, found, as_json)


@tenants.command("set")
def tenants_set(
    tenant: Name,
    limits: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE…",
            help="weight; max_inflight, requests_per_minute, tokens_per_minute, max_waiting, each also `none`.",
        ),
    ],
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    pool: PoolNames = None,
    as_json: AsJson = False,
) -> None:
    """Change what a tenant may do, from the next pop on. Limits that are not named stay as they are."""

    from fairlane.errors import NotFound

    async def write(queue: Queue) -> list[tuple[str, TenantStanding]]:
        if not (pools := await pools_named(queue, pool)):
            raise NotFound(no_pool(redis, namespace))
        for one in pools:
            await queue.set_limits(one, tenant, _limits(await queue.inspect.limits(one, tenant), limits))
        return [(one.name, await queue.inspect.tenant(one, tenant)) for one in pools]

    _say_standings(tenant, asked(redis, namespace, write, as_json), as_json)


Listed = tuple[str, str, "TenantView", str]  # the pool, the tier, the tenant, its state in words


async def _listed(queue: Queue, pool: Pool, limit: int) -> list[Listed]:
    """The tenants of each tier. Why one is held is asked of those who are."""
    found: list[Listed] = []
    for tier in pool.policy.tiers:
        views, _ = await queue.inspect.tenants(pool, tier, limit=limit)
        for view in views:
            held = view.held_until_ms is not None
            state = _state(await queue.inspect.tenant(pool, view.tenant)) if held else "may run"
            found.append((pool.name, tier, view, state))
    return found


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
            wanted = "a number" if name == "weight" else "a whole number, or none"
            raise InvalidRequest(f"{name} is {wanted}; not {text!r}.", param=name) from error
    return replace(known, **changes)  # pyright: ignore[reportArgumentType]


def _say_standings(tenant: str, found: Sequence[tuple[str, TenantStanding]], as_json: bool) -> None:
    if as_json:
        say_json({"tenant": tenant, "pools": [{"pool": name} | _as_json(one) for name, one in found]})
        return
    standings = [one for _, one in found]
    facts: dict[str, list[object]] = {
        "waiting": [one.waiting for one in standings],
        "running": [one.inflight for one in standings],
        "state": [_state(one) for one in standings],
    }
    for limit in (field.name for field in fields(standings[0].limits)):
        facts[limit] = [getattr(one.limits, limit) for one in standings]
    say_table(("", *(name for name, _ in found)), [(name, *values) for name, values in facts.items()])


def _as_json(view: TenantStanding | TenantView) -> dict[str, Any]:
    """JSON has no infinity: who is held until something changes is held, and no time is known."""
    until = view.held_until_ms
    return asdict(view) | {"held": until is not None, "held_until_ms": until if until and isfinite(until) else None}


def _state(standing: TenantStanding) -> str:
    if standing.paused:
        return "paused"
    until, limits = standing.held_until_ms, standing.limits
    if until is None:
        return "may run"
    if not isfinite(until):
        return "held by max_inflight" if limits.max_inflight is not None else "held"
    rates = [name for name in ("requests_per_minute", "tokens_per_minute") if getattr(limits, name) is not None]
    return f"held for {duration(until - 1000 * time.time())}{' by ' if rates else ''}{' or '.join(rates)}"
