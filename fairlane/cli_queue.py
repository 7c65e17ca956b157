"""`fairlane policy` and `explain`: what holds for a pool, changed while all runs, and why a job waits."""

from __future__ import annotations

import getpass
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from fairlane.following import is_batch, place, silence
from fairlane.reaching import Reach, reaching
from fairlane.terminal import (
    AsJson,
    OtherNamespace,
    PoolNames,
    RedisUrl,
    asked,
    counted,
    duration,
    no_pool,
    pools_named,
    say_json,
    say_table,
    settings_of,
)

if TYPE_CHECKING:
    from fairlane.queue.engine import Queue
    from fairlane.queue.pools import Pool
    from fairlane.standing import PolicyChange

policy = typer.Typer(no_args_is_help=True, help="See and change what holds for a pool, while it runs.")


# --- policy -----------------------------------------------------------------------------------------------------------


@policy.command("show")
def policy_show(
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    pool: PoolNames = None,
    history: Annotated[bool, typer.Option("--history", help="Show the last changes instead: who, when, what.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show each pool's settings and their version, or how they were changed."""

    async def read(queue: Queue) -> list[tuple[Pool, list[PolicyChange]]]:
        return [(one, await queue.inspect.policy_history(one)) for one in await pools_named(queue, pool)]

    found = asked(redis, namespace, read, as_json)
    if as_json:
        say_json({"pools": [_policy_json(one) | {"history": [asdict(c) for c in changes]} for one, changes in found]})
    elif not found:
        typer.echo(no_pool(redis, namespace))
    elif history:
        rows = [_change_row(one.name, change) for one, changes in found for change in changes]
        say_table(("pool", "version", "when", "by", "changes"), rows)
    else:
        _say_policies([one for one, _ in found])


@policy.command("set")
def policy_set(
    settings: Annotated[list[str], typer.Argument(metavar="NAME=VALUE…", help="As in docs/policy.md: gamma=auto …")],
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    pool: Annotated[
        list[str] | None, typer.Option("--pool", metavar="NAME", help="Repeatable. (Default: the only one)")
    ] = None,
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who does it. (Default: your login name)")] = None,
    as_json: AsJson = False,
) -> None:
    """Change settings: checked as a whole, kept with who and when, obeyed by every dispatcher's next pop."""
    from fairlane.errors import InvalidRequest, NotFound

    async def write(queue: Queue) -> list[Pool]:
        if not (pools := await pools_named(queue, pool)):
            raise NotFound(no_pool(redis, namespace))
        if not pool and len(pools) != 1:
            raise InvalidRequest(f"Which pool? Say --pool NAME. There are: {', '.join(one.name for one in pools)}.")
        changes = settings_of(settings)
        changed: list[Pool] = []
        for old in pools:
            changed.append(new := await queue.set_policy(old, changes, by=by or getpass.getuser()))
            if not as_json:  # at once: the next pool may refuse it
                typer.echo(f"{new.name}: {_difference(old, new) or 'nothing to change'} (version {new.version})")
        return changed

    found = asked(redis, namespace, write, as_json)
    if as_json:
        say_json({"pools": [_policy_json(new) for new in found]})


def _policy_json(pool: Pool) -> dict[str, Any]:
    from fairlane.queue.policies import AUTO

    settings = asdict(pool.policy)
    if settings["gamma"] is None:
        settings["gamma"] = AUTO
    return {"pool": pool.name, "version": pool.version, "policy": settings}


def _say_policies(pools: Sequence[Pool]) -> None:
    from fairlane.queue.policies import NAMES, texts

    by_pool = [texts(one.policy) for one in pools]
    rows = [(name, *(settings[name] for settings in by_pool)) for name in NAMES]
    say_table(("", *(one.name for one in pools)), [*rows, ("version", *(one.version for one in pools))])


def _difference(old: Pool, new: Pool) -> str:
    from fairlane.queue.policies import difference

    return _words(difference(old.policy, new.policy))


def _words(changes: Mapping[str, tuple[str, str]]) -> str:
    return "; ".join(f"{name} {before} → {after}" for name, (before, after) in changes.items())


def _change_row(name: str, change: PolicyChange) -> tuple[object, ...]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(change.at_ms / 1000))
    return name, change.version, when, change.by, _words(change.changes)


# --- explain ----------------------------------------------------------------------------------------------------------


@reaching(first="redis")
def explain(to: Reach, job: Annotated[str, typer.Argument(metavar="JOB")], *, as_json: AsJson = False) -> None:
    """Tell why a job waits: its place, what is ahead of it, which gate holds it on what numbers, and for how long."""
    import asyncio

    from fairlane.errors import InvalidRequest

    if is_batch(job):
        words = f"{job} is a batch. `{to.again('watch', job)}` shows how it is with it."
        raise InvalidRequest(words, param="job")

    async def ask() -> Mapping[str, Any]:
        async with to.client() as client:
            return await client.explain(job)

    why = asyncio.run(ask())
    if as_json:
        say_json(why)
        return
    for line in _why(job, why):
        typer.echo(line)


_ENDED: Final = {"succeeded": "has", "failed": "has", "expired": "has", "cancelled": "was"}


def _why(job: str, why: Mapping[str, Any]) -> list[str]:
    """What the front door's JSON says, in words."""
    lines = [f"{job} {_ENDED.get(why['state'], 'is')} {why['state']}"]
    if why["position"] is not None:
        lines[0] += f"; {place(why['position'])}"
    if why["estimated_start_s"] is not None:
        lines[0] += f", it starts in about {duration(1000 * why['estimated_start_s'])}"
    lines += [f"  {_ahead(cast('Mapping[str, Any]', one))}" for one in why["ahead"]]
    if gate := why["gate"]:
        numbers = ", ".join(filter(None, (_number(name, value) for name, value in gate["numbers"].items())))
        lines.append(f"  the gate of {gate['backend']} says {gate['reason']} ({numbers})")
    return lines


def _number(name: str, value: object) -> str:
    """A number of the gate's, to read; nothing for what is not known, or not so."""
    match value:
        case None | False | "" | dict():
            return ""
        case True:
            return name
        case list() | tuple():
            return f"{name} {','.join(map(str, cast('Sequence[object]', value)))}" if value else ""
        case float() if name.endswith("_at"):
            return f"{name.removesuffix('_at')} {duration(1000 * (time.time() - value))} ago"
        case float():
            return f"{name} {round(value) if abs(value) >= 1000 else f'{value:.3g}'}"
        case _:
            return f"{name} {value}"


_LIMITS: Final = {"inflight": "max_inflight", "requests": "requests_per_minute", "tokens": "tokens_per_minute"}


def _ahead(one: Mapping[str, Any]) -> str:
    match one["what"]:
        case "no_backend" | "no_answer":
            return silence(one)
        case "higher_tier":
            return f"{counted(one['jobs'], 'job waits', 'jobs wait')} in the tier {one['tier']}"
        case "own_line":
            return f"{counted(one['jobs'], 'job of its own tenant is', 'jobs of its own tenant are')} before it"
        case "tenants":
            turns = counted(one["tenants"], "tenant has its turn", "tenants have their turn")
            return f"{turns} before its own"
        case "tenant_held" if one["by"] == "paused":
            return "its tenant is paused; `fairlane pool resume POOL --tenant NAME` undoes it"
        case "tenant_held":
            until = "" if one["until"] is None else f" for {duration(1000 * (one['until'] - time.time()))}"
            return f"its tenant is held{until} by its limit {_LIMITS.get(one['by'], one['by'])}"
        case "paused":
            return "its tier or its pool is paused; `fairlane pool list` says which, `fairlane pool resume` undoes it"
        case what:
            return str(what)
