"""`fairlane pool`: what each pool has to do, and who works for it: paused, drained, added, removed while all runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fairlane.terminal import (
    REFUSED,
    AsJson,
    OtherNamespace,
    RedisUrl,
    asked,
    counted,
    duration,
    no_pool,
    pool_named,
    say,
    say_json,
    say_table,
)

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
    found = asked(redis, namespace, _read, as_json)
    if as_json:
        say_json({"pools": [_pool_json(*one) for one in found]})
        return
    if not found:
        typer.echo(no_pool(redis, namespace))
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
        return await queue.pause(await pool_named(queue, name), tier=tier, tenant=tenant)

    new = asked(redis, namespace, pause, as_json)
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
        return await queue.resume(await pool_named(queue, name), tier=tier, tenant=tenant)

    was = asked(redis, namespace, resume, as_json)
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

    undo = f"`fairlane pool {f'undrain {name} {backend}' if backend else f'resume {name}'}` undoes it"

    async def drain(queue: Queue) -> int:
        one = await pool_named(queue, name)
        if backend is None:
            await queue.pause(one)
        else:
            await queue.set_backend(one, _backend_name(name, backend), "drain")

        async def running() -> int:
            load = await queue.inspect.load(one)
            only = _backend_name(name, backend) if backend else None
            return sum(view.counts.live for view in load.backends if only in (None, view.name))

        return await _until_none(running, wait, "" if as_json else undo)

    left = asked(redis, namespace, drain, as_json)
    still = f"{counted(left, 'job still runs', 'jobs still run')}. Drain it again to wait for them; {undo}"
    words = f"{backend or name} starts nothing more, and {still if left else 'nothing runs'}."
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
        await queue.set_backend(await pool_named(queue, name), _backend_name(name, backend), "undrain")

    asked(redis, namespace, undrain, as_json)
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
    from fairlane.options import backend_of, register
    from fairlane.settings import load

    async def add(queue: Queue) -> list[str]:
        options = [backend_of(name, text) for text in backend]
        await register(queue, options, load().policy)
        return [option.name for option in options]

    names = asked(redis, namespace, add, as_json)
    say(f"{name} has {', '.join(names)}.", as_json, pool=name, backends=names)


@pool.command("remove")
def pool_remove(
    name: Name,
    backend: Annotated[str | None, typer.Argument(metavar="[BACKEND]", help="(Default: the pool itself)")] = None,
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    as_json: AsJson = False,
) -> None:
    """Remove a backend for good; one that still runs jobs is refused: drain it first.

    Without BACKEND the pool itself, and what is known of its jobs that have ended; one that has a backend, or jobs that
    wait or run, is refused.
    """

    async def remove(queue: Queue) -> None:
        if backend is None:
            await queue.pools.remove(name)
            return
        await queue.set_backend(await pool_named(queue, name), _backend_name(name, backend), "remove")

    asked(redis, namespace, remove, as_json)
    words = f"{backend} is removed from {name}." if backend else f"The pool {name} is removed."
    say(words, as_json, pool=name, backend=backend)


# --- within -----------------------------------------------------------------------------------------------------------

Found = tuple["Pool", "Overview", int]


async def _read(queue: Queue) -> list[Found]:
    """Each pool, what is in it, and Redis's time (ms)."""
    views = [(one, await queue.inspect.overview(one)) for one in await queue.pools.all()]
    return [(one, view, view.now_ms) for one, view in views]


async def _until_none(running: Callable[[], Awaitable[int]], wait_s: float, undo: str) -> int:
    """What still runs when nothing does, or when the time is over. Says so, if `undo` says how to go back."""
    end = time.monotonic() + wait_s
    left = await running()
    if undo and left and wait_s:
        typer.echo(f"Waiting for {counted(left, 'job')} (Ctrl-C stops waiting, not the drain) …", err=True)
    try:
        while left and time.monotonic() < end:
            await asyncio.sleep(POLL_S)
            left = await running()
    except asyncio.CancelledError:  # Ctrl-C
        if undo:
            typer.echo(f"Still draining; {undo}.", err=True)
        raise
    return left


def _backend_name(pool_name: str, text: str) -> str:
    """A backend's name, also from its URL. Raises InvalidRequest."""
    from fairlane.options import backend_of

    return backend_of(pool_name, text).name if "://" in text else text


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
            gates = _in_short({tier: _gate(one, backend, tier, now_ms) for tier in one.policy.tiers})
            yield one.name, backend.name, backend.status, backend.counts.live, backend.finished, gates


def _in_short(gates: Mapping[str, str]) -> str:
    """One word if all tiers hear the same; else pairs, which a narrow table does not break."""
    words = set(gates.values())
    return words.pop() if len(words) == 1 else " ".join(f"{tier}:{word}" for tier, word in gates.items())


def _gate(one: Pool, view: BackendView, tier: str, now_ms: int) -> str:
    """What the gate says to a tier now."""
    from fairlane.standing import gate_now

    reason, _ = gate_now(view, tier, one.policy.stale_ms, now_ms)
    return reason


def _pool_json(one: Pool, view: Overview, now_ms: int) -> dict[str, Any]:
    gates = {b.name: {t: _gate(one, b, t, now_ms) for t in one.policy.tiers} for b in view.backends}
    whole = asdict(view)
    whole["backends"] = [backend | {"says": gates[backend["name"]]} for backend in whole["backends"]]
    return {"pool": one.name, "version": one.version} | whole
