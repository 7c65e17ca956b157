"""What a run is: its plan, its states, its numbers, and what its dry run found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

Act = Literal["retier", "move", "purge"]
RunState = Literal["counting", "weighing", "ready", "applying", "stopping", "done", "aborted", "undoing", "undone"]
Verb = Literal["weigh", "apply", "abort", "undo"]

MOST_JOBS: Final = 1_000_000
MOST_POOLS: Final = 16

# What somebody may ask of a run -> the states in which they may. docs/rebalance.md draws it; turn_run.lua enforces it.
MAY: Final[Mapping[Verb, frozenset[RunState]]] = {
    "weigh": frozenset({"weighing"}),
    "apply": frozenset({"ready"}),
    "abort": frozenset({"counting", "weighing", "ready", "applying", "undoing"}),
    "undo": frozenset({"done", "aborted"}),
}
OPEN: Final[frozenset[RunState]] = frozenset({"counting", "weighing", "applying", "stopping", "undoing"})

# Why a job that was chosen stays where it is, in words.
REASONS: Final[Mapping[str, str]] = {
    "leased": "run already",
    "succeeded": "have succeeded",
    "failed": "have failed",
    "cancelled": "were cancelled",
    "expired": "have expired",
    "gone": "are past their retention",
    "elsewhere": "were moved by others",
    "already": "are there already",
    "stays": "are spread to where they are",
    "batch": "belong to a batch, which stays in its pool",
    "no_tier": "are of a tier that is not there",
    "no_pool": "would go to a pool that was removed",
    "full": "find the target full: their tenant or the pool has as many waiting as it may",
    "stopped": "were left when the run was aborted",
    "busy": "were on their way elsewhere",
}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which waiting jobs of a pool: those of one tier, of one tenant, submitted at least `older_than_s` ago; at most
    `most` of them. None: any. First come the higher tiers, in a tier the tenant that waits longest, of a tenant its
    oldest jobs."""

    pool: str
    tier: str | None = None
    tenant: str | None = None
    older_than_s: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """What becomes of the jobs; exactly one is given: another tier of their pool; other pools, over which they are
    spread evenly (it may be one, and their own among them); or `purge`, they are cancelled."""

    tier: str | None = None
    pools: tuple[str, ...] = ()
    purge: bool = False

    @property
    def act(self) -> Act:
        return "purge" if self.purge else "retier" if self.tier is not None else "move"


@dataclass(frozen=True, slots=True)
class Plan:
    """A choice and what is done to it."""

    filter: Filter
    target: Target

    @property
    def name(self) -> str:
        """What a purge destroys: its tenant, or its pool."""
        return self.filter.tenant or self.filter.pool

    def packed(self) -> str:
        """The plan as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def unpacked(cls, text: str) -> Plan:
        """The inverse of `packed`."""
        found: dict[str, dict[str, Any]] = json.loads(text)
        target = Target(**found["target"])
        return cls(Filter(**found["filter"]), replace(target, pools=tuple(target.pools)))


@dataclass(frozen=True, slots=True)
class Shift:
    """What a run does to one tenant in one tier of a pool: its waiting jobs, and the seconds until the last of them
    probably starts, before and after. None: nobody knows, or nothing waits."""

    pool: str
    tier: str
    tenant: str
    jobs: int
    jobs_after: int
    wait_s: float | None
    wait_after_s: float | None

    @property
    def change_s(self) -> float:
        """How much longer it waits then; negative: less."""
        return (self.wait_after_s or 0.0) - (self.wait_s or 0.0)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The dry run: those lines that it touches most, and of all of them how many wait longer, less, or as long."""

    shifts: tuple[Shift, ...] = ()
    longer: int = 0
    less: int = 0
    same: int = 0

    def packed(self) -> str:
        """The forecast as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def unpacked(cls, text: str) -> Forecast:
        """The inverse of `packed`."""
        found: dict[str, Any] = json.loads(text)
        shifts = tuple(Shift(**shift) for shift in found.pop("shifts"))
        return cls(shifts, **found)


@dataclass(frozen=True, slots=True)
class Run:
    """One rebalancing. Times are milliseconds since the epoch; `turned_at_ms`: when its state changed last,
    `stepped_at_ms`: its last step.

    `chosen` jobs (`delayed` of them not due yet) were frozen; of those `moved` were moved or cancelled, and `skipped`
    were not, by why not (REASONS). An undo gives `returned` of the moved ones their old place; `kept` are those that it
    finds no longer waiting where the run put them. `step` and `back` count chunks done and undone. `forecast` is None
    until it was weighed.
    """

    id: str
    plan: Plan
    by: str
    state: RunState
    created_at_ms: int
    turned_at_ms: int
    stepped_at_ms: int
    chosen: int = 0
    delayed: int = 0
    moved: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])
    returned: int = 0
    kept: Mapping[str, int] = field(default_factory=dict[str, int])
    step: int = 0
    back: int = 0
    forecast: Forecast | None = None

    @property
    def todo(self) -> int:
        """The jobs that its present work is about: those that it chose, or moved and is to bring back."""
        return self.moved if self.state in ("undoing", "undone") else self.chosen

    @property
    def done(self) -> int:
        """How many of those it is through with."""
        if self.state in ("undoing", "undone"):
            return self.returned + sum(self.kept.values())
        return self.moved + sum(
            n for why, n in self.skipped.items() if why != "batch" or self.plan.target.act != "move"
        )

    def may(self, verb: Verb) -> bool:
        """Whether somebody may ask this of it now."""
        if verb == "undo" and (self.plan.target.purge or not self.moved):
            return False
        return self.state in MAY[verb]

    def export(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self)


def run_of(id_: str, fields: Mapping[str, str]) -> Run:
    """A run from its hash."""

    def counts(kind: str) -> dict[str, int]:
        return {name.removeprefix(kind): int(n) for name, n in fields.items() if name.startswith(kind)}

    state: Any = fields["state"]
    return Run(
        id=id_,
        plan=Plan.unpacked(fields["plan"]),
        by=fields["by"],
        state=state,
        created_at_ms=int(fields["created"]),
        turned_at_ms=int(fields["turned"]),
        stepped_at_ms=int(fields["stepped"]),
        chosen=int(fields.get("chosen", 0)),
        delayed=int(fields.get("delayed", 0)),
        moved=int(fields.get("moved", 0)),
        skipped=counts("skipped:"),
        returned=int(fields.get("returned", 0)),
        kept=counts("kept:"),
        step=int(fields.get("step", 0)),
        back=int(fields.get("back", 0)),
        forecast=Forecast.unpacked(fields["forecast"]) if "forecast" in fields else None,
    )
