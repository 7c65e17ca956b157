"""What each backend's gate says to each tier now, and in words on which numbers; and what it said when it last refused.

The reasons are fairlane.model.GateReason's; dispatcher/policy/gate.py decides them and leaves the numbers in `seen`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from admin_ui.showing import duration, percent
from fairlane.model import GateReason, Policy
from fairlane.standing import BackendView, gate_now

SHUT: Final[frozenset[GateReason]] = frozenset({"down", "draining"})
OPENS_AGAIN: Final = 0.9  # of slow_ms


@dataclass(frozen=True, slots=True)
class Refusal:
    """The last one that was noted: its reason, the leases and their limit then, and when it was."""

    reason: str
    live: int
    limit: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Gate:
    """One backend's gate to one tier. `opened` and `refused` count since the backend was added; pops that are refused
    are counted once in 100 ms."""

    backend: str
    tier: str
    reason: GateReason
    words: str
    live: int
    limit: int
    last_refusal: Refusal | None
    opened: int
    refused: int

    @property
    def free(self) -> int:
        return self.limit - self.live


def seen_of(view: BackendView) -> Mapping[str, Any]:
    """What the last scrape saw."""
    return cast("Mapping[str, Any]", json.loads(view.seen))


def part(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object within; an empty one if it is not there."""
    return cast("Mapping[str, Any]", of.get(name) or {})


def gates_of(view: BackendView, policy: Policy, now_ms: int) -> tuple[Gate, ...]:
    """A backend's gate to each tier, from the highest down."""
    seen = seen_of(view)
    return tuple(_gate(view, seen, policy, n, now_ms) for n in range(len(policy.tiers)))


def best(gates: list[Gate]) -> Gate | None:
    """The gate that is nearest to letting a job through: an open one, else one of a backend that is up."""
    return min(gates, key=lambda gate: (gate.reason != "open", gate.reason in SHUT, -gate.free), default=None)


def _gate(view: BackendView, seen: Mapping[str, Any], policy: Policy, n: int, now_ms: int) -> Gate:
    tier = policy.tiers[n]
    reason, limit = gate_now(view, tier, policy.stale_ms, now_ms)
    refused = sum(
        count for name, count in view.decisions.items() if name.startswith(f"{tier}:") and not name.endswith(":open")
    )
    return Gate(
        backend=view.name,
        tier=tier,
        reason=reason,
        words=_words(view, seen, policy, n, now_ms, reason, limit),
        live=view.counts.live,
        limit=limit,
        last_refusal=_refusal(view.said.get(tier)),
        opened=view.decisions.get(f"{tier}:open", 0),
        refused=refused,
    )


def _refusal(said: str | None) -> Refusal | None:
    if said is None:
        return None
    reason, live, limit, at_ms = said.split(" ")
    return Refusal(reason, int(float(live)), int(float(limit)), int(float(at_ms)))


def _words(
    view: BackendView, seen: Mapping[str, Any], policy: Policy, n: int, now_ms: int, reason: str, limit: int
) -> str:
    """The numbers that it was decided on."""
    match reason:
        case "down":
            return _why_down(view, seen, now_ms)
        case "draining":
            return f"takes no more; {view.counts.live} still run"
        case "kv":
            room, most = _room(seen, n), percent(policy.kv_most)
            bound = percent(policy.kv_most * room)
            return f"KV cache {percent(seen.get('kv'))}, at most {most} × room {room:.2f} = {bound}"
        case "slow_tokens":
            again = OPENS_AGAIN * policy.slow_ms
            return (
                f"{_ms(seen.get('token_ms'))} per token, at most {policy.slow_ms:g} ms; opens again below {again:g} ms"
            )
        case "stale":
            return f"{_age(view, now_ms)}, at most {duration(policy.stale_ms)}; until then {_leases(view, limit)}"
        case _:
            return f"{_leases(view, limit)}{_limit(view, seen, policy, n, now_ms)}"


def _leases(view: BackendView, limit: int) -> str:
    return f"{view.counts.live} of {limit} leases"


def _limit(view: BackendView, seen: Mapping[str, Any], policy: Policy, n: int, now_ms: int) -> str:
    """Where an open or a full gate's limit comes from."""
    if now_ms - (view.fresh_at_ms or 0) > policy.stale_ms:
        return f"; {_age(view, now_ms)}"
    if seen.get("slots") is not None:
        return " (slots as given)"
    capacity = part(seen, "capacity")
    gate = view.gates.get(policy.tiers[n])
    if gate is None or not capacity:
        return ""
    theta, most = policy.theta[min(n, len(policy.theta) - 1)], policy.theta[0]
    if gate.why == "room":
        return f" (room {_room(seen, n):.2f} × (capacity {capacity.get('k')} + θ {most}))"
    lowest = 0 < n == len(policy.tiers) - 1
    if lowest and seen.get("waiting"):
        return f" (cap {capacity.get('cap')}, θ 0 while {seen['waiting']} wait there)"
    before = (capacity.get("cap") or 0) + theta
    ahead = f", and {gate.limit - before} ahead of what it has put back" if n == 0 and gate.limit > before else ""
    return f" (cap {capacity.get('cap')} + θ {theta}{ahead})"


def _why_down(view: BackendView, seen: Mapping[str, Any], now_ms: int) -> str:
    until_ms = part(seen, "health").get("until_ms") or 0
    if view.status == "down":
        since = "" if view.down_at_ms is None else f" since {duration(now_ms - view.down_at_ms)}"
        return f"takes no connection{since}"
    if until_ms > now_ms:
        return f"left alone for its errors, {duration(until_ms - now_ms)} more"
    return "left alone for its errors; the next job is a probe"


def _age(view: BackendView, now_ms: int) -> str:
    if view.fresh_at_ms is None:
        return "its metrics were never read"
    return f"metrics are {duration(now_ms - view.fresh_at_ms)} old"


def _room(seen: Mapping[str, Any], n: int) -> float:
    rooms: list[float] = seen.get("rooms") or []
    return rooms[n] if n < len(rooms) else 1.0


def _ms(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.0f} ms"
