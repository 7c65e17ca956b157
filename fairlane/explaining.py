"""Why a job waits, as the outside sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from fairlane.estimate import Estimate, answers
from fairlane.model import GateReason
from fairlane.queue.pools import Pool
from fairlane.standing import Explanation, GateView, PoolLoad

# The settings with which a gate compares what it sees; the rest of the numbers are what the last scrape saw.
_SETTINGS: Final[Mapping[GateReason, tuple[str, ...]]] = {
    "full": ("theta",),
    "room": ("theta", "reserve", "decay"),
    "kv": ("kv_most",),
    "slow_tokens": ("slow_ms",),
    "stale": ("stale_ms",),
}
_AWAY: Final[frozenset[GateReason]] = frozenset({"down", "draining"})


def explain_view(why: Explanation, pool: Pool, load: PoolLoad, estimate: Estimate | None) -> dict[str, Any]:
    """Contract.md's JSON. `ahead` says in words and numbers what is before the job; empty if nothing is.

    `estimate` is None of a job that does not wait: nothing is before it, and no gate holds it.
    """
    return {
        "state": why.state,
        "position": estimate.position if estimate else None,
        "ahead": _ahead(why, load) if estimate else [],
        "gate": _gate(why, pool, load) if estimate else None,
        "estimated_start_s": estimate.wait_s if estimate else None,
    }


def _ahead(why: Explanation, load: PoolLoad) -> list[dict[str, Any]]:
    *above, _ = why.depths.items()
    ahead: list[dict[str, Any]] = []
    if not why.gates:
        ahead.append({"what": "no_backend"})
    elif not any(map(answers, why.gates)):
        silent = [{"name": gate.backend, "reason": gate.reason, "since": _since(gate, load)} for gate in why.gates]
        ahead.append({"what": "no_answer", "backends": silent})
    ahead += [{"what": "higher_tier", "tier": tier, "jobs": n} for tier, n in above if n]
    if why.paused:
        ahead.append({"what": "paused"})
    if why.held_by:
        until = None if why.held_until_ms is None else why.held_until_ms / 1000
        ahead.append({"what": "tenant_held", "by": why.held_by, "until": until})
    if why.ahead_in_line:
        ahead.append({"what": "own_line", "jobs": why.ahead_in_line})
    if why.rank:
        ahead.append({"what": "tenants", "tenants": why.rank})
    return ahead


def _since(gate: GateView, load: PoolLoad) -> float | None:
    """When a backend that takes nothing went down, or was last heard."""
    view = next((view for view in load.backends if view.name == gate.backend), None)
    if view is None or gate.reason == "draining":
        return None
    return _seconds(view.down_at_ms if gate.reason == "down" else view.fresh_at_ms)


def _gate(why: Explanation, pool: Pool, load: PoolLoad) -> dict[str, Any] | None:
    """The backend that is nearest to taking the job: an open one; or, of those that are up before those that are not,
    the one with the fewest leases over its limit."""
    if not why.gates:
        return None
    best = min(why.gates, key=lambda gate: (gate.reason != "open", gate.reason in _AWAY, gate.live - gate.limit))
    return {"backend": best.backend, "reason": best.reason, "numbers": _numbers(best, pool, load)}


def _numbers(gate: GateView, pool: Pool, load: PoolLoad) -> dict[str, Any]:
    """What the decision was made on: leases and their limit, the settings behind it, and what was seen. What was seen
    of a backend before it went down says nothing of it now."""
    view = next((view for view in load.backends if view.name == gate.backend), None)
    numbers: dict[str, Any] = {"live": gate.live, "limit": gate.limit}
    if gate.reason == "down":
        return numbers | {"down_at": _seconds(view.down_at_ms if view else None)}
    policy = asdict(pool.policy)
    numbers |= {name: policy[name] for name in _SETTINGS.get(gate.reason, ())}
    if gate.reason == "stale":
        numbers["fresh_at"] = _seconds(view.fresh_at_ms if view else None)
    return numbers | json.loads(gate.seen)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
