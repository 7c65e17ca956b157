"""`fairlane pool`: what each pool has to do, and who works for it: paused, drained, added, removed while all runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fairlane.terminal import REFUSED, AsJson, OtherNamespace, RedisUrl, asked, duration, say, say_json, say_table

if TYPE_CHECKING:
    from fairlane.queue.engine import Queue
    from fairlane.queue.pools import Pool
    from fairlane.standing import BackendView, Overview

POLL_S: Final = 0.2
Name = Annotated[str, typer.Argument(metavar="POOL")]
Backend = Annotated[str, typer.Argument(metavar="BACKEND", help="Its name as `pool list` has it, or its URL.")]
Tier = Annotated[str | None, typer.Option(metavar="NAME", help="Only this tier.")]
Tenant = Annotated[str | None, typer.Option(metavar="NAME", help="Only this tenant.")]

pool = typer.Typer(no_args_is_help=True, help="See pools and their backends; pause, drain, add and remove them.")


@pool.command("list")
def pool_list(redis: RedisUrl = None, namespace: OtherNamespace = None, as_json: AsJson = False) -> None:
    """List the pools: what waits and runs in each tier, and what each backend's gates say."""
    found = asked(redis, namespace, _read)
    if as_json:
        say_json({"pools": [_pool_json(*one) for one in found]})
        return
    say_table(("pool", "tier", "state", "queued", "running", "tenants", "oldest"), _tier_rows(found))
    if any(view.backends for _, view, _ in found):
        typer.echo()
        say_table(("pool", "backend", "state", "running", "done", "gates"), _backend_rows(found))


@pool.command("pause")
def pool_pause(
    name: Name,
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    tier: Tier = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Start no more of its jobs. What runs goes on, and jobs are still taken in."""

    async def pause(queue: Queue) -> bool:
        return await queue.pause(await queue.pools.by_name(name), tier=tier, tenant=tenant)

    new = asked(redis, namespace, pause)
    say(f"{_what(name, tier, tenant)} is paused{'' if new else ' already'}.", as_json, pool=name, changed=new)


@pool.command("resume")
def pool_resume(
    name: Name,
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    tier: Tier = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Undo `pause`, or `drain` of a whole pool."""

    async def resume(queue: Queue) -> bool:
        return await queue.resume(await queue.pools.by_name(name), tier=tier, tenant=tenant)

    was = asked(redis, namespace, resume)
    words = f"{_what(name, tier, tenant)} {'runs again' if was else 'was not paused'}."
    say(words, as_json, pool=name, changed=was)


@pool.command("drain")
def pool_drain(
    name: Name,
    backend: Annotated[str | None, typer.Argument(metavar="[BACKEND]", help="Only this one; others go on.")] = None,
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    wait: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How long to wait for what runs.")] = 600,
    as_json: AsJson = False,
) -> None:
    """Start nothing more there, and wait until what runs has ended; exits 3 if it has not in that time.

    A pool that is drained is paused: `pool resume` undoes it. A backend's drain is undone by `pool undrain`.
    """

    async def drain(queue: Queue) -> int:
        one = await queue.pools.by_name(name)
        if backend is None:
            await queue.pause(one)
        else:
            await queue.set_backend(one, _backend_name(name, backend), "drain")

        async def running() -> int:
            load = await queue.inspect.load(one)
            only = _backend_name(name, backend) if backend else None
            return sum(view.counts.live for view in load.backends if only in (None, view.name))

        return await _until_none(running, wait)

    left = asked(redis, namespace, drain)
    words = f"{backend or name} starts nothing more, and {f'{left} jobs still run' if left else 'nothing runs'}."
    say(words, as_json, pool=name, backend=backend, running=left)
    if left:
        raise typer.Exit(REFUSED)


@pool.command("undrain")
def pool_undrain(
    name: Name,
    backend: Backend,
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    as_json: AsJson = False,
) -> None:
    """Let a backend that was drained take jobs again."""

    async def undrain(queue: Queue) -> None:
        await queue.set_backend(await queue.pools.by_name(name), _backend_name(name, backend), "undrain")

    asked(redis, namespace, undrain)
    say(f"{backend} takes jobs of {name} again.", as_json, pool=name, backend=backend)


@pool.command("add")
def pool_add(
    name: Name,
    backend: Annotated[list[str], typer.Argument(metavar="URL[,slots=N][,key_env=VAR][,family=F]…")],
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    as_json: AsJson = False,
) -> None:
    """Add backends while all runs; one that is there gets what you say of it now. A pool that is not there is made."""
    from fairlane.options import parse_backend, register
    from fairlane.settings import load

    async def add(queue: Queue) -> list[str]:
        options = [parse_backend(f"{name}={text}") for text in backend]
        await register(queue, options, load().policy)
        return [option.name for option in options]

    names = asked(redis, namespace, add)
    say(f"{name} has {', '.join(names)}.", as_json, pool=name, backends=names)


@pool.command("remove")
def pool_remove(
    name: Name,
    backend: Backend,
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    as_json: AsJson = False,
) -> None:
    """Remove a backend for good. One that still runs jobs is refused: drain it first."""

    async def remove(queue: Queue) -> None:
        await queue.set_backend(await queue.pools.by_name(name), _backend_name(name, backend), "remove")

    asked(redis, namespace, remove)
    say(f"{backend} is removed from {name}.", as_json, pool=name, backend=backend)


# --- within -----------------------------------------------------------------------------------------------------------

Found = tuple["Pool", "Overview", int]


async def _read(queue: Queue) -> list[Found]:
    """Each pool, what is in it, and Redis's time (ms)."""
    return [
        (one, await queue.inspect.overview(one), (await queue.inspect.load(one)).now_ms)
        for one in await queue.pools.all()
    ]


async def _until_none(running: Callable[[], Awaitable[int]], wait_s: float) -> int:
    """What still runs when nothing does, or when the time is over."""
    end = time.monotonic() + wait_s
    while (left := await running()) and time.monotonic() < end:  # noqa: ASYNC110  # others run it, elsewhere
        await asyncio.sleep(POLL_S)
    return left


def _backend_name(pool_name: str, text: str) -> str:
    """A backend's name, also from its URL. Raises InvalidRequest."""
    from fairlane.options import parse_backend

    return parse_backend(f"{pool_name}={text}").name if "://" in text else text


def _what(name: str, tier: str | None, tenant: str | None) -> str:
    return f"The tier {tier} of {name}" if tier else f"The tenant {tenant} in {name}" if tenant else name


def _tier_rows(found: Sequence[Found]) -> Iterator[tuple[object, ...]]:
    for one, view, now_ms in found:
        for tier in view.tiers:
            state = "paused" if view.paused or tier.paused else "open"
            oldest = None if tier.oldest_ms is None else duration(now_ms - tier.oldest_ms)
            yield one.name, tier.tier, state, tier.depth, tier.inflight, tier.tenants, oldest


def _backend_rows(found: Sequence[Found]) -> Iterator[tuple[object, ...]]:
    for one, view, now_ms in found:
        for backend in view.backends:
            gates = ", ".join(f"{tier} {_gate(one, backend, tier, now_ms)}" for tier in one.policy.tiers)
            yield one.name, backend.name, backend.status, backend.counts.live, backend.finished, gates


def _gate(one: Pool, view: BackendView, tier: str, now_ms: int) -> str:
    """What the gate says to a tier now, as lua/lib/gate.lua decides it."""
    gate, stale = view.gates.get(tier), now_ms - (view.fresh_at_ms or 0) > one.policy.stale_ms
    if view.status != "up":
        return view.status
    if gate is None or stale:
        return "open" if view.counts.live < (gate.fallback if gate else 1) else "stale"
    return "open" if view.counts.live < gate.limit else gate.why


def _pool_json(one: Pool, view: Overview, now_ms: int) -> dict[str, Any]:
    gates = {b.name: {t: _gate(one, b, t, now_ms) for t in one.policy.tiers} for b in view.backends}
    whole = asdict(view)
    whole["backends"] = [backend | {"says": gates[backend["name"]]} for backend in whole["backends"]]
    return {"pool": one.name, "version": one.version} | whole
