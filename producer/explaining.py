"""Why a job waits, as the outside sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from fairlane.model import GateReason
from fairlane.queue.pools import Pool
from fairlane.standing import Explanation, GateView, PoolLoad
from producer.estimate import Estimate

# The settings with which a gate compares what it sees; the rest of the numbers are what the last scrape saw.
_SETTINGS: Final[Mapping[GateReason, tuple[str, ...]]] = {
    "full": ("theta",),
    "room": ("theta", "reserve", "decay"),
    "kv": ("kv_most",),
    "slow_tokens": ("slow_ms",),
    "stale": ("stale_ms",),
}


def explain_view(why: Explanation, pool: Pool, load: PoolLoad, estimate: Estimate | None) -> dict[str, Any]:
    """Contract.md's JSON. `ahead` says in words and numbers what is before the job; empty if nothing is."""
    stopped = why.paused or (why.held_by == "paused")
    return {
        "state": why.state,
        "position": estimate.position if estimate else None,
        "ahead": _ahead(why),
        "gate": _gate(why, pool, load),
        "estimated_start_s": estimate.wait_s if estimate and not stopped else None,
    }


def _ahead(why: Explanation) -> list[dict[str, Any]]:
    *above, _ = why.depths.items()
    ahead: list[dict[str, Any]] = [{"what": "higher_tier", "tier": tier, "jobs": n} for tier, n in above if n]
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


def _gate(why: Explanation, pool: Pool, load: PoolLoad) -> dict[str, Any] | None:
    """The backend that is nearest to taking the job: an open one, or the one with the fewest leases over its limit."""
    if not why.gates:
        return None
    best = min(why.gates, key=lambda gate: (gate.reason != "open", gate.live - gate.limit))
    return {"backend": best.backend, "reason": best.reason, "numbers": _numbers(best, pool, load)}


def _numbers(gate: GateView, pool: Pool, load: PoolLoad) -> dict[str, Any]:
    """What the decision was made on: leases and their limit, the settings behind it, and what was seen."""
    policy = asdict(pool.policy)
    settings = {name: policy[name] for name in _SETTINGS.get(gate.reason, ())}
    if gate.reason == "stale":
        fresh = next((view.fresh_at_ms for view in load.backends if view.name == gate.backend), None)
        settings["fresh_at"] = None if fresh is None else fresh / 1000
    return {"live": gate.live, "limit": gate.limit, **settings, **json.loads(gate.seen)}
