"""Why a job waits, as the outside sees it."""

from __future__ import annotations

import json
from typing import Any

from fairlane.model import Explanation, GateView
from producer.estimate import position


def explain_view(why: Explanation, wait_s: float | None) -> dict[str, Any]:
    """Contract.md's JSON. `ahead` says in words and numbers what is before the job; empty if nothing is."""
    return {
        "state": why.state,
        "position": position(why) if why.state in ("queued", "delayed") else None,
        "ahead": _ahead(why),
        "gate": _gate(why),
        "estimated_start_s": wait_s,
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


def _gate(why: Explanation) -> dict[str, Any] | None:
    """The backend that is nearest to taking the job: an open one, or the one with the fewest leases over its limit."""
    if not why.gates:
        return None
    best = min(why.gates, key=lambda gate: (gate.reason != "open", gate.live - gate.limit))
    return {"backend": best.backend, "reason": best.reason, "numbers": _numbers(best)}


def _numbers(gate: GateView) -> dict[str, Any]:
    return {"live": gate.live, "limit": gate.limit, **json.loads(gate.seen)}
