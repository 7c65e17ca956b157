"""What stands in a queue at one moment, as people, metrics and observers see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from fairlane.model import BackendCounts, BackendSpec, GateReason, Limits, State, TierGate, Usage


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """One change of a pool's policy: the version it made, when and by whom; each setting's text before and after."""

    version: int
    at_ms: int
    by: str
    changes: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class GateView:
    """What a backend's gate says to one tier now, and on which numbers. `seen` is JSON: what the last scrape saw."""

    backend: str
    live: int
    limit: int
    reason: GateReason
    seen: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job waits. `ahead_in_line` stops counting at a bound; `rank` is its tenant's place in the ring, from 0.

    `rank` is None if the tenant is not in the ring: `held_by` (paused, inflight, requests, tokens) and `held_until_ms`
    say why, or `paused` (its tier or pool), or the job does not wait. `depths` holds the jobs that wait in each tier,
    from the highest down to its own.
    """

    state: State
    tenant: str
    tier: str
    ahead_in_line: int
    rank: int | None
    tenants: int
    held_by: str | None
    held_until_ms: int | None
    paused: bool
    depths: Mapping[str, int]
    gates: tuple[GateView, ...]


@dataclass(frozen=True, slots=True)
class TierView:
    """A tier at a glance. `inflight` counts live leases, `tenants` are those with queued work; `runnable` those of them
    in the ring."""

    tier: str
    depth: int
    inflight: int
    tenants: int
    runnable: int
    oldest_ms: int | None
    paused: bool


@dataclass(frozen=True, slots=True)
class BackendView:
    """A backend as it stands in Redis.

    `said`: per tier the last refusal, "reason live limit at". `decisions`: how many jobs were let through
    ("tier:open"), and how many refusals were counted ("tier:reason"). `finished`: jobs that it has answered well
    since it was added; `answered`: those, and answers that were the caller's own fault; `faults`: attempts that failed
    by its own; `blamers`: how often such a one was of another tenant's job than the one before;
    `excused`: those of them while the backend had just answered another tenant well. `down_at_ms`: when it
    was last marked as down. `epoch` changes when it has restarted; `no_priority`: it has refused a `priority` since.
    """

    name: str
    status: str
    counts: BackendCounts
    finished: int
    answered: int
    faults: int
    blamers: int
    excused: int
    epoch: int
    no_priority: bool
    down_at_ms: int | None
    fresh_at_ms: int | None
    gates: Mapping[str, TierGate]
    said: Mapping[str, str]
    decisions: Mapping[str, int]
    seen: str
    spec: BackendSpec | None


def gate_now(view: BackendView, tier: str, stale_ms: int, now_ms: int) -> tuple[GateReason, int]:
    """What a backend's gate says to a tier at this moment, and how many leases it may carry for it.

    As lua/lib/gate.lua decides it; of a pop that is refused at `now_ms` the same would be said.
    """
    gate = view.gates.get(tier)
    if view.status != "up":
        return cast(GateReason, view.status), 0
    if gate is None or now_ms - (view.fresh_at_ms or 0) > stale_ms:
        limit, why = gate.fallback if gate else 1, "stale"
    else:
        limit, why = gate.limit, gate.why
    return "open" if view.counts.live < limit else why, limit


@dataclass(frozen=True, slots=True)
class Overview:
    """A pool at a glance; `now_ms` is Redis's time."""

    tiers: tuple[TierView, ...]
    delayed: int
    leased: int
    held: int
    dead: int
    paused: bool
    backends: tuple[BackendView, ...]
    steer: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class TenantView:
    """A tenant with queued work in one tier. `waiting` and `inflight` count all its tiers."""

    tenant: str
    oldest_ms: int
    waiting: int
    inflight: int
    held_until_ms: float | None


@dataclass(frozen=True, slots=True)
class LineView:
    """One tenant's line in one tier: its queued jobs, when its head arrived, whether the tenant may run now, and its
    limits."""

    tenant: str
    jobs: int
    oldest_ms: int
    held: bool
    limits: Limits


@dataclass(frozen=True, slots=True)
class TenantStanding:
    """What a tenant may do and does in one pool, all tiers together.

    `held_until_ms`: when it may run again; infinite if that waits for something to change; None if it may run now.
    """

    limits: Limits
    waiting: int
    inflight: int
    paused: bool
    held_until_ms: float | None


@dataclass(frozen=True, slots=True)
class Standing:
    """One tenant beside others in a pool: what it has there, and what holds it: paused, inflight, requests or tokens.

    `held_until_ms` is None also if that waits for something to change. `oldest_ms`: per tier with queued work of its
    own, when the head of its line arrived.
    """

    tenant: str
    limits: Limits
    waiting: int
    inflight: int
    held_by: str | None
    held_until_ms: int | None
    oldest_ms: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a tenant's rates in one pool still allow. `requests_us` and `tokens_us` say how far what it has started is
    ahead of its rate, in µs; 0 if nothing is."""

    limits: Limits
    waiting: int
    requests_us: int
    tokens_us: int


@dataclass(frozen=True, slots=True)
class TierLoad:
    """The work in one tier: queued jobs and live leases. `since_ms`: when it became runnable or its own gate last
    served it; None if none of its jobs may run. `moved`: how many queued jobs ever came from other tiers and pools,
    less those that left so."""

    tier: str
    waiting: int
    since_ms: int | None
    inflight: int
    moved: int = 0

    @property
    def runnable(self) -> bool:
        return self.since_ms is not None


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """What an observer decides on, all of one moment; `now_ms` is Redis's time. Tiers from the highest down.

    `version` is the policy's, `steer` what the last steering found (JSON).
    """

    tiers: tuple[TierLoad, ...]
    backends: tuple[BackendView, ...]
    now_ms: int
    version: int
    steer: str


@dataclass(frozen=True, slots=True)
class Finish:
    """One job that got its outcome. It could have run from `ready_at_ms` on: its submit, or the end of its last delay.

    `started_at_ms` is when its last attempt began, None if it was not running. `usage` is what the backend reported.
    """

    job: str
    state: State
    tenant: str
    tier: str
    ready_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class DispatcherView:
    """A dispatcher that was heard lately, and what it said of itself (JSON).

    `silent_ms`: for how long it has said nothing. `draining`: it was told to drain, and has heard it or is about to.
    """

    name: str
    seen_at_ms: int
    info: str
    silent_ms: int
    draining: bool = False
