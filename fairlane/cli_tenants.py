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
    names_of,
    no_pool,
    pools_named,
    say,
    say_json,
    say_table,
    say_unknown,
    settings_of,
)

if TYPE_CHECKING:
    from fairlane.accounts import Account
    from fairlane.model import Limits
    from fairlane.queue.engine import Queue
    from fairlane.queue.pools import Pool
    from fairlane.standing import TenantStanding, TenantView

SETTINGS = (
    "weight; max_inflight, requests_per_minute, tokens_per_minute, max_waiting, each also `none`; of a registered "
    "tenant also tiers and pools: names with commas between them, or `all`."
)
Name = Annotated[str, typer.Argument(metavar="TENANT")]

tenants = typer.Typer(no_args_is_help=True, help="See and change what a tenant may do in each pool.")


@tenants.command("list")
def tenants_list(
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    pool: PoolNames = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The most of each list.")] = 100,
    after: Annotated[str, typer.Option(metavar="TENANT", help="Registered ones by name, after this one.")] = "",
    as_json: AsJson = False,
) -> None:
    """List the registered tenants; then those with queued work, in each tier the one that waits longest first."""

    async def read(queue: Queue) -> tuple[list[Account], str | None, list[Listed]]:
        from fairlane.accounts import Accounts

        accounts, following = await Accounts(queue).tenants(after, limit)
        pools = await pools_named(queue, pool)
        return accounts, following, [found for one in pools for found in await _listed(queue, one, limit)]

    accounts, following, found = asked(redis, namespace, read, as_json)
    if as_json:
        working = [{"pool": name, "tier": tier} | _as_json(view) for name, tier, view, _ in found]
        say_json({"accounts": [_account_json(one) for one in accounts], "next": following, "tenants": working})
        return
    if accounts:
        _say_accounts(accounts)
        typer.echo(f"More: --after {following}\n" if following else "")
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

    async def read(queue: Queue) -> tuple[Account | None, Standings]:
        from fairlane.accounts import Accounts

        return await Accounts(queue).find(tenant), await _standings(queue, await pools_named(queue, pool), tenant)

    account, found = asked(redis, namespace, read, as_json)
    if not found and not account and not as_json:
        typer.echo(no_pool(redis, namespace))
        return
    _say_tenant(tenant, account, found, as_json)


@tenants.command("create")
def tenants_create(
    tenant: Name,
    settings: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE…]", help=SETTINGS)] = None,
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    as_json: AsJson = False,
) -> None:
    """Register a tenant, so that it can have keys and, in every pool, limits."""

    async def create(queue: Queue) -> Account:
        from fairlane.accounts import Accounts

        made = await Accounts(queue).create_tenant(tenant, settings_of(settings or []))
        await say_unknown(queue, made.tiers, made.pools)
        return made

    account = asked(redis, namespace, create, as_json)
    say(
        f"Created tenant {tenant}. `fairlane keys create {tenant}` makes it a key.",
        as_json,
        account=_account_json(account),
    )


@tenants.command("disable")
def tenants_disable(
    tenant: Name, redis: RedisUrl = None, namespace: OtherNamespace = None, as_json: AsJson = False
) -> None:
    """Refuse all of a tenant's keys, within a second. Jobs that were taken in go on."""
    _switch(tenant, redis, namespace, as_json, on=False)


@tenants.command("enable")
def tenants_enable(
    tenant: Name, redis: RedisUrl = None, namespace: OtherNamespace = None, as_json: AsJson = False
) -> None:
    """Undo `disable`."""
    _switch(tenant, redis, namespace, as_json, on=True)


@tenants.command("set")
def tenants_set(
    tenant: Name,
    limits: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE…",
            help=SETTINGS,
        ),
    ],
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    pool: PoolNames = None,
    as_json: AsJson = False,
) -> None:
    """Change what a tenant may do, from the next pop on. What is not named stays as it is.

    With --pool only there: until its limits are next changed for all.
    """

    from fairlane.errors import NotFound

    async def write(queue: Queue) -> tuple[Account | None, Standings]:
        from fairlane.accounts import Accounts

        accounts, pools = Accounts(queue), await pools_named(queue, pool)
        account = await accounts.find(tenant)
        if account and not pool:
            account = await accounts.set_tenant(tenant, settings_of(limits))
            await say_unknown(queue, account.tiers, account.pools)
            return account, await _standings(queue, pools, tenant)
        if not pools:
            raise NotFound(no_pool(redis, namespace))
        for one in pools:
            now = await queue.inspect.limits(one, tenant)
            await queue.set_limits(one, tenant, _limits(now, limits), expected=now)
        return account, await _standings(queue, pools, tenant)

    _say_tenant(tenant, *asked(redis, namespace, write, as_json), as_json)


Standings = list[tuple[str, "TenantStanding"]]  # what it has in each pool
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
            words = f"A tenant has no limit {name!r} in a pool. There are {', '.join(names)}."
            raise InvalidRequest(words, param=name)
        try:
            changes[name] = float(text) if name == "weight" else None if text == "none" else int(text)
        except ValueError as error:
            wanted = "a number" if name == "weight" else "a whole number, or none"
            raise InvalidRequest(f"{name} is {wanted}; not {text!r}.", param=name) from error
    return replace(known, **changes)  # pyright: ignore[reportArgumentType]


async def _standings(queue: Queue, pools: Sequence[Pool], tenant: str) -> Standings:
    return [(one.name, await queue.inspect.tenant(one, tenant)) for one in pools]


def _switch(tenant: str, redis: str | None, namespace: str | None, as_json: bool, *, on: bool) -> None:
    async def switch(queue: Queue) -> Account:
        from fairlane.accounts import Accounts

        accounts = Accounts(queue)
        return await (accounts.enable(tenant) if on else accounts.disable(tenant))

    account = asked(redis, namespace, switch, as_json)
    say(f"The tenant {tenant} is {'enabled' if on else 'disabled'}.", as_json, account=_account_json(account))


def _say_accounts(accounts: Sequence[Account]) -> None:
    rows = [
        (
            one.tenant,
            *asdict(one.limits).values(),
            names_of(one.tiers),
            names_of(one.pools),
            "disabled" if one.disabled else "active",
        )
        for one in accounts
    ]
    limits = ("weight", "inflight", "requests/min", "tokens/min", "most waiting")
    say_table(("tenant", *limits, "tiers", "pools", "state"), rows)


def _account_json(account: Account) -> dict[str, Any]:
    grants = {"tiers": account.tiers, "pools": account.pools}
    return asdict(account) | {name: None if grant is None else sorted(grant) for name, grant in grants.items()}


def _say_tenant(tenant: str, account: Account | None, found: Standings, as_json: bool) -> None:
    if as_json:
        known = _account_json(account) if account else None
        pools = [{"pool": name} | _as_json(one) for name, one in found]
        say_json({"tenant": tenant, "account": known, "pools": pools})
        return
    if account:
        _say_accounts([account])
        typer.echo("")
    if found:
        _say_standings(found)
    if not account:
        typer.echo(f"{tenant} is not registered; `fairlane tenants create {tenant}` registers it, for keys and limits.")


def _say_standings(found: Standings) -> None:
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
