"""Why a job waits, in words: its place, what is before it, and the gates of its pool's backends to its tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from admin_ui.bridge import Stores
from admin_ui.gating import Gate, gates_of
from admin_ui.showing import number
from fairlane.errors import FairlaneError
from fairlane.explaining import explain_view
from fairlane.model import Job
from fairlane.queue.inspection import COUNTED_MOST
from fairlane.queue.pools import Pool

_HELD: Final[Mapping[str, str]] = {
    "paused": "Its tenant is paused here.",
    "inflight": "Its tenant has as many jobs running as it may.",
    "requests": "Its tenant has used up its requests per minute.",
    "tokens": "Its tenant has used up its tokens per minute.",
}


@dataclass(frozen=True, slots=True)
class Ahead:
    """One thing that is before a job; `until_ms`: when it ends, if that is known."""

    words: str
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """About how many jobs start before this one, why, and the seconds until it starts (None: nobody knows).

    `gates` are those of all backends to its tier.
    """

    position: int
    ahead: tuple[Ahead, ...]
    start_s: float | None
    gates: tuple[Gate, ...]


async def wait_of(stores: Stores, pool: Pool, job: Job) -> Wait | None:
    """None of a job that does not wait (any more)."""
    if job.state not in ("queued", "delayed"):
        return None
    try:
        why = await stores.queue.inspect.explain(job.id)
        if why.state not in ("queued", "delayed"):
            return None
        estimate = await stores.estimates.of(pool, why, job.not_before_ms)
    except FairlaneError as error:
        if error.status == 404:  # it has gone on while we looked
            return None
        raise
    load = await stores.estimates.load(pool)
    told = explain_view(why, pool, load, estimate)
    gates = [
        gate for view in load.backends for gate in gates_of(view, pool.policy, load.now_ms) if gate.tier == job.tier
    ]
    entries = cast("list[dict[str, Any]]", told["ahead"])
    return Wait(estimate.position, tuple(_words(entry) for entry in entries), estimate.wait_s, tuple(gates))


def _words(entry: Mapping[str, Any]) -> Ahead:
    """An entry of `ahead` as explain_view has it."""
    match entry["what"]:
        case "no_backend":
            return Ahead("Its pool has no backend.")
        case "no_answer":
            names = ", ".join(f"{one['name']} ({one['reason']})" for one in entry["backends"])
            return Ahead(f"No backend answers: {names}.")
        case "higher_tier":
            return Ahead(f"{_jobs(entry['jobs'])} in the tier {entry['tier']}, which goes before its own.")
        case "paused":
            return Ahead("Its tier or its pool is paused.")
        case "tenant_held":
            until = entry["until"]
            return Ahead(_HELD[entry["by"]], None if until is None else round(1000 * until))
        case "own_line":
            more = " or more" if entry["jobs"] >= COUNTED_MOST else ""
            return Ahead(f"{_jobs(entry['jobs'])}{more} of its own tenant in its tier, which came before it.")
        case _:
            n = entry["tenants"]
            return Ahead(f"{number(n)} {'tenant has' if n == 1 else 'tenants have'} a turn before its own.")


def _jobs(n: int) -> str:
    return f"{number(n)} {'job' if n == 1 else 'jobs'}"
