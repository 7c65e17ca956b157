"""Which limit binds: why the jobs of a tier, or of a tenant, that wait do not run now. The first that holds is named.

What holds the tenant itself (paused, its jobs in flight, its rates), else its own backlog, else that its tier or pool
is paused, else that no backend's gate lets its tier through, else that it is the others' turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from admin_ui.gating import Gate, best, gates_of
from admin_ui.showing import duration
from fairlane.queue.pools import Pool
from fairlane.standing import Overview, Standing, TierView


@dataclass(frozen=True, slots=True)
class Binding:
    """`kind` is a word for machines and colours, `name` what the page calls it, `words` say it with its numbers.
    `tenant` is whom it holds, if it is one: to be named only to who may see it."""

    kind: str
    name: str
    words: str = ""
    tenant: str | None = None

    @property
    def is_trouble(self) -> bool:
        return self.kind not in ("idle", "turn")


NOTHING_WAITS: Final = Binding("idle", "nothing waits")
OTHERS_TURN: Final = Binding("turn", "others' turn", "a gate is open; it runs when its turn comes")
_HELD: Final[Mapping[str, str]] = {
    "paused": "tenant paused",
    "inflight": "concurrency",
    "requests": "request rate",
    "tokens": "token rate",
}
_GATES: Final[Mapping[str, str]] = {
    "down": "backend down",
    "draining": "backend draining",
    "stale": "metrics stale",
    "full": "capacity",
    "room": "room for higher tiers",
    "kv": "KV cache",
    "slow_tokens": "token time",
}


def tier_gates(pool: Pool, glance: Overview) -> Mapping[str, list[Gate]]:
    """The gates of all backends, by tier."""
    found: dict[str, list[Gate]] = {tier: [] for tier in pool.policy.tiers}
    for view in glance.backends:
        for gate in gates_of(view, pool.policy, glance.now_ms):
            found[gate.tier].append(gate)
    return found


def tier_binding(glance: Overview, tier: TierView, gates: list[Gate], standings: Sequence[Standing] = ()) -> Binding:
    """Why the tier's jobs wait. `standings`: of tenants that may be the one that is held."""
    if not tier.depth:
        return NOTHING_WAITS
    if glance.paused:
        return Binding("paused", "pool paused")
    if tier.paused:
        return Binding("paused", "tier paused")
    if shut := _gate_binding(gates):
        return shut
    if not tier.runnable:
        return _held_binding(glance, tier, standings)
    return Binding("turn", "runs in turn")


def tenant_binding(glance: Overview, gates: Mapping[str, list[Gate]], of: Standing, backlog_most: int) -> Binding:
    """Why the tenant's jobs wait. `backlog_most`: how many may wait if its limits do not say it."""
    if of.held_by:
        return Binding(of.held_by, _HELD[of.held_by], _held_words(of, glance.now_ms))
    if not of.oldest_ms:
        return NOTHING_WAITS if not of.waiting else Binding("delayed", "not due yet", f"{of.waiting} are delayed")
    most = backlog_most if of.limits.max_waiting is None else of.limits.max_waiting
    if of.waiting >= most:
        return Binding("backlog", "own backlog", f"{of.waiting} wait, at most {most}; new ones are refused")
    if glance.paused:
        return Binding("paused", "pool paused")
    paused = {tier.tier for tier in glance.tiers if tier.paused}
    open_tiers = [tier for tier in of.oldest_ms if tier not in paused]
    if not open_tiers:
        return Binding("paused", "tier paused", ", ".join(of.oldest_ms))
    found = [_gate_binding(gates.get(tier, [])) for tier in open_tiers]
    shut = [binding for binding in found if binding]
    return shut[0] if len(shut) == len(found) else OTHERS_TURN


def _held_binding(glance: Overview, tier: TierView, standings: Sequence[Standing]) -> Binding:
    """Of a tier whose tenants are all held."""
    if tier.tenants != 1:
        return Binding("held", "tenants held", f"all {tier.tenants} tenants are paused or at a limit of their own")
    for of in standings:
        if of.held_by and tier.tier in of.oldest_ms:
            return Binding("held", _HELD[of.held_by], _held_words(of, glance.now_ms), of.tenant)
    return Binding("held", "tenant held", "the only tenant is paused or at a limit of its own")


def _gate_binding(gates: list[Gate]) -> Binding | None:
    """None if some gate is open."""
    nearest = best(gates)
    if nearest is None:
        return Binding("no_backend", "no backend", "the pool has none; add one")
    if nearest.reason == "open":
        return None
    return Binding(nearest.reason, _GATES[nearest.reason], f"{nearest.backend}: {nearest.words}")


def _held_words(of: Standing, now_ms: int) -> str:
    until = "" if of.held_until_ms is None else f"; free in {duration(of.held_until_ms - now_ms)}"
    match of.held_by:
        case "inflight":
            return f"{of.inflight} run, at most {of.limits.max_inflight}"
        case "requests":
            return f"at most {of.limits.requests_per_minute} requests a minute{until}"
        case "tokens":
            return f"at most {of.limits.tokens_per_minute} tokens a minute{until}"
        case _:
            return "until it is resumed"
