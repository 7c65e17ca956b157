"""What can be done with rebalancing runs: choose jobs, apply, abort, undo."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from flask import url_for

from admin_ui import rebalancing
from admin_ui.acting import Act, Asked, Done, Field, Proposal, act
from admin_ui.bridge import Stores
from admin_ui.hiding import alike
from admin_ui.numerals import whole
from fairlane.errors import IllegalTransition, InvalidRequest, NotFound
from fairlane.queue.pools import Pool
from fairlane.rebalance import Filter, Plan, Run, Target
from fairlane.rebalance.values import Verb

TO: Final = (("tier", "another tier"), ("pools", "other pools, evenly"), ("purge", "cancelled (no undo)"))
MOST: Final = 10**9  # of what is filled in as a number
TO_POOL: Final = "to_pool."  # then the pool's name: a checkbox each


@act("run.create", role="operator")
class CreateRun(Act):
    """Chooses jobs and weighs what moving them would do. Nothing is moved."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        given = {**asked.params, **asked.values}
        pools = await stores.queue.pools.all()
        tenant = given.get("tenant", "").strip() or None
        told = _told(given)
        return Proposal(
            title="Choose jobs to move",
            button="Choose and weigh",
            target=f"run: {told['jobs']}, {told['become']}" if told else f"pool {given.get('pool', '')}",
            tenant=tenant,
            back=url_for("rebalance.index"),
            after=told,
            tells=("First it is shown what this would do. Nothing is moved before you apply it.",),
            fields=_fields(pools, given),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        run = await stores.runs.create(plan_of({**asked.params, **asked.values}), asked.viewer.name)
        return Done(
            "The run was begun. Nothing moves before it is applied.",
            to=url_for("rebalance.show", run_id=run.id),
            after={"become": proposal.after["become"], "run": run.id, "jobs": proposal.after["jobs"]},
        )


class OfRun(Act):
    """An act on one run."""

    verb: Verb
    title: str
    button: str
    after: str

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        with alike():
            run = await stores.runs.get(asked.param("run"))
        if not asked.viewer.sees(run.plan.filter.tenant):
            raise NotFound()
        if not run.may(self.verb):
            raise IllegalTransition(f"The run is {run.state}; that does not allow this.")
        return Proposal(
            title=self.title,
            button=self.button,
            target=f"run {run.id}: {rebalancing.plan(run.plan)}",
            tenant=run.plan.filter.tenant,
            back=url_for("rebalance.show", run_id=run.id),
            before={"state": run.state},
            after={"state": self.after},
            tells=(f"{rebalancing.plan(run.plan)}.", *self.tells(run)),
            typed=run.plan.name if self.verb == "apply" and run.plan.target.purge else None,
        )

    def tells(self, run: Run) -> tuple[str, ...]:
        """What follows from it."""
        raise NotImplementedError


@act("run.apply", role="operator")
class ApplyRun(OfRun):
    """Does to the chosen jobs what the plan says."""

    verb = "apply"
    title = "Apply this run?"
    button = "Apply"
    after = "applying"

    def tells(self, run: Run) -> tuple[str, ...]:
        jobs = f"{run.chosen:,} jobs were chosen."
        if run.plan.target.purge:
            return (jobs, "Those that still wait are cancelled; their callers are told so.")
        return (jobs, "Those that still wait are moved; their ages stay. It can be aborted, and undone for 24 hours.")

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        await stores.runs.apply(asked.param("run"))
        return Done("Applied.")


@act("run.abort", role="operator")
class AbortRun(OfRun):
    """Stops a run between two steps."""

    verb = "abort"
    title = "Abort this run?"
    button = "Abort"
    after = "aborted"

    def tells(self, run: Run) -> tuple[str, ...]:
        if run.state in ("counting", "weighing", "ready"):
            return ("Nothing was moved.",)
        return (f"By now {run.moved:,} jobs were {rebalancing.verb(run)}. They stay so until the run is undone.",)

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        run = await stores.runs.abort(asked.param("run"))
        return Done(
            "Aborted." if run.state == "aborted" else "Told to abort.",
            after={"state": run.state, rebalancing.verb(run): run.moved},
        )


@act("run.undo", role="operator")
class UndoRun(OfRun):
    """Brings back what a run has moved and what still waits there."""

    verb = "undo"
    title = "Undo this run?"
    button = "Undo"
    after = "undoing"

    def tells(self, run: Run) -> tuple[str, ...]:
        who = f"Of the {run.moved:,} jobs that were moved, those that still wait where the run put them"
        return (f"{who} go back, each to its old tier and place.",)

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        await stores.runs.undo(asked.param("run"))
        return Done("Undo was begun.")


def plan_of(given: Mapping[str, str]) -> Plan:
    """The plan that was filled in. Raises InvalidRequest, which names the field."""

    def text(name: str) -> str | None:
        return given.get(name, "").strip() or None

    where = Filter(
        text("pool") or "", text("tier"), text("tenant"), _whole(given, "older_than_s"), _whole(given, "most")
    )
    if not where.pool:
        raise InvalidRequest("Choose a pool.", param="pool")
    match text("to"):
        case "tier":
            if (tier := text("to_tier")) is None:
                raise InvalidRequest("Choose the tier that the jobs go to.", param="to_tier")
            return Plan(where, Target(tier=tier))
        case "pools":
            pools = tuple(name.removeprefix(TO_POOL) for name, on in given.items() if on and name.startswith(TO_POOL))
            if not pools:
                raise InvalidRequest("Choose at least one pool that the jobs go to.", param="to")
            return Plan(where, Target(pools=pools))
        case "purge":
            return Plan(where, Target(purge=True))
        case _:
            raise InvalidRequest("Choose what becomes of the jobs.", param="to")


def _told(given: Mapping[str, str]) -> dict[str, object]:
    """What becomes of which jobs, in words; nothing while that is not filled in rightly."""
    with suppress(InvalidRequest):
        plan = plan_of(given)
        return {"become": rebalancing.target(plan.target), "jobs": rebalancing.choice(plan.filter)}
    return {}


def tiers_of(pools: list[Pool]) -> list[str]:
    """The tiers of all pools, each once, from the highest down."""
    return list(dict.fromkeys(tier for pool in pools for tier in pool.policy.tiers))


def _whole(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name, "").strip().replace(",", "").replace("\u202f", "")
    if not value:
        return None
    if (number := whole(value, MOST)) is None:
        raise InvalidRequest(f"This is a whole number. The most is {MOST:,}.", param=name)
    return number


def _fields(pools: list[Pool], given: Mapping[str, str]) -> tuple[Field, ...]:
    names, tiers = [pool.name for pool in pools], tiers_of(pools)

    def select(name: str, label: str, values: list[str], any_word: str = "any") -> Field:
        choices = (("", any_word), *((value, value) for value in values))
        return Field(name, label, "select", given.get(name, ""), choices)

    return (
        select("pool", "Pool", names, "choose"),
        Field("tenant", "Tenant", value=given.get("tenant", ""), help="Empty: all."),
        select("tier", "Tier", tiers),
        Field("older_than_s", "Older than (s)", "number", given.get("older_than_s", "")),
        Field("most", "At most", "number", given.get("most", ""), help="Empty: all of them."),
        Field("to", "What becomes of them", "select", given.get("to", ""), (("", "choose"), *TO)),
        select("to_tier", "The tier", tiers, "–"),
        *(Field(TO_POOL + name, f"To the pool {name}", "checkbox", given.get(TO_POOL + name, "")) for name in names),
    )
