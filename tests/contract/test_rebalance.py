"""Rebalancing: a frozen choice of waiting jobs is weighed, moved step by step, stopped, and undone."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import IllegalTransition, InvalidRequest, NotFound, UnknownTier
from fairlane.model import Limits, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.rebalance import Filter, Plan, Run, Runs, Stepper, Target
from tests.contract.acts import drain, finish, ids_of, spec, state_of, submit, submit_all, take
from tests.contract.invariants import raw_state

pytestmark = pytest.mark.usefixtures("invariants")

BATCH = Target(tier="batch")
PURGE = Target(purge=True)


class Desk:
    """An operator with a stepper at hand."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.runs = Runs(queue)
        self.stepper = Stepper(queue)

    async def weigh(self, target: Target, pool: str = "llama", **chosen: Any) -> Run:
        """A new run, ready to be applied."""
        run = await self.runs.create(Plan(Filter(pool, **chosen), target), "ops")
        return await self.stepper.carry(run.id)

    async def rebalance(self, target: Target, **chosen: Any) -> Run:
        """… and applied."""
        run = await self.weigh(target, **chosen)
        assert run.state == "ready"
        await self.runs.apply(run.id)
        return await self.stepper.carry(run.id)

    async def undo(self, run: Run) -> Run:
        await self.runs.undo(run.id)
        return await self.stepper.carry(run.id)


@pytest.fixture
def desk(queue: Queue) -> Desk:
    return Desk(queue)


async def tiers_of(queue: Queue, ids: list[str]) -> list[str]:
    return [(await queue.inspect.job(id_)).tier for id_ in ids]


async def test_what_waits_longest_changes_its_tier_with_its_age(
    queue: Queue, pool: Pool, clock: ManualClock, desk: Desk
) -> None:
    old = await submit(queue, pool, "ann", n=130)
    clock.advance(1000)
    young = await submit(queue, pool, "bob", n=3)
    run = await desk.rebalance(BATCH, most=131)
    assert (run.state, run.chosen, run.moved, run.skipped) == ("done", 131, 131, {})
    assert await tiers_of(queue, [*old, *young]) == ["batch"] * 131 + ["default"] * 2
    assert [lease.id for lease in await drain(queue, pool)][2:] == [*old[:1], young[0], *old[1:]]


async def test_only_the_filters_jobs_are_chosen(queue: Queue, pool: Pool, clock: ManualClock, desk: Desk) -> None:
    old = await submit(queue, pool, "ann", "flex", n=2)
    clock.advance(60_000)
    others = [*await submit(queue, pool, "ann"), *await submit(queue, pool, "bob", "flex")]
    await submit(queue, pool, "ann", "flex", n=2)
    assert (await desk.weigh(BATCH, tenant="ann", tier="flex", older_than_s=60)).chosen == 2
    assert (await desk.weigh(BATCH, tenant="ann", tier="flex", older_than_s=61)).chosen == 0
    assert (await desk.weigh(BATCH, tenant="ann", tier="flex", most=3)).chosen == 3
    assert (await desk.weigh(BATCH, tenant="ann")).chosen == 5
    assert (await desk.weigh(BATCH)).chosen == 6
    await desk.rebalance(BATCH, tenant="ann", tier="flex", older_than_s=60)
    assert await tiers_of(queue, [*old, *others]) == ["batch"] * 2 + ["default", "flex"]


async def test_a_dry_run_moves_nothing_and_later_jobs_are_not_of_it(queue: Queue, pool: Pool, desk: Desk) -> None:
    ids = await submit(queue, pool, n=3)
    run = await desk.weigh(BATCH)
    late = await submit(queue, pool, n=2)
    assert await tiers_of(queue, [*ids, *late]) == ["default"] * 5
    await desk.runs.apply(run.id)
    assert (await desk.stepper.carry(run.id)).moved == 3
    assert await tiers_of(queue, [*ids, *late]) == ["batch"] * 3 + ["default"] * 2


async def test_many_tenants_that_came_at_the_same_moment_are_all_chosen(queue: Queue, pool: Pool, desk: Desk) -> None:
    await submit_all(queue, pool, [spec(f"t{n}", tier) for n in range(130) for tier in ("flex", "default")])
    run = await desk.rebalance(BATCH)
    assert (run.chosen, run.moved) == (260, 260)


async def test_jobs_that_came_back_and_delayed_ones_are_chosen_too(
    queue: Queue, pool: Pool, clock: ManualClock, desk: Desk
) -> None:
    ids = await submit(queue, pool, n=3)
    for lease in await take(queue, pool, 2):
        await queue.release(pool, lease)
    delayed = await submit(queue, pool, delay_ms=1000)
    run = await desk.rebalance(BATCH)
    assert (run.chosen, run.delayed, run.moved) == (4, 1, 4)
    clock.advance(1000)
    await queue.sweep(pool)
    assert [(lease.id, lease.tier) for lease in await drain(queue, pool)] == [
        (id_, "batch") for id_ in [*ids, *delayed]
    ]


async def test_what_became_of_jobs_meanwhile_is_told(queue: Queue, pool: Pool, target: Pool, desk: Desk) -> None:
    ids = await submit(queue, pool, n=6)
    run = await desk.weigh(BATCH)
    leased, done = await take(queue, pool, 2)
    await finish(queue, pool, [done])
    await queue.cancel(ids[2])
    await queue.move(ids[3], target)
    await queue.retier(pool, [ids[4]], "batch")
    await desk.runs.apply(run.id)
    run = await desk.stepper.carry(run.id)
    told = {"leased": 1, "succeeded": 1, "cancelled": 1, "elsewhere": 1, "already": 1}
    assert (run.state, run.moved, run.skipped) == ("done", 1, told)
    assert run.done == run.todo == 6
    await queue.release(pool, leased)


async def test_undo_gives_what_waits_yet_its_old_tier(queue: Queue, pool: Pool, desk: Desk) -> None:
    mixed = [*await submit(queue, pool, "ann", "priority", n=2), *await submit(queue, pool, "ann", "flex", n=120)]
    run = await desk.rebalance(BATCH)
    first, second, third = await take(queue, pool, 3)
    await finish(queue, pool, [first])
    await queue.retier(pool, [mixed[50]], "priority")
    await queue.release(pool, third)
    run = await desk.undo(run)
    assert (run.state, run.returned) == ("undone", 119)
    assert run.kept == {"succeeded": 1, "leased": 1, "elsewhere": 1}
    assert await tiers_of(queue, [mixed[2], mixed[50], mixed[121]]) == ["flex", "priority", "flex"]
    await queue.release(pool, second)
    with pytest.raises(IllegalTransition):
        await desk.runs.undo(run.id)


async def test_an_abort_stops_it_between_two_steps_and_what_was_moved_can_be_undone(
    queue: Queue, pool: Pool, desk: Desk
) -> None:
    ids = await submit(queue, pool, n=250)
    run = await desk.weigh(BATCH)
    await desk.runs.apply(run.id)
    await queue.store.run("step_run", pool.prefix, run.id, "0")
    run = await desk.runs.abort(run.id)
    assert (run.state, run.moved) == ("aborted", 100)
    assert (await desk.stepper.carry(run.id)).moved == 100
    assert await tiers_of(queue, ids) == ["batch"] * 100 + ["default"] * 150
    await desk.undo(run)
    assert await tiers_of(queue, ids) == ["default"] * 250


async def test_an_undo_that_was_aborted_goes_on(queue: Queue, pool: Pool, desk: Desk) -> None:
    ids = await submit(queue, pool, n=250)
    run = await desk.rebalance(BATCH)
    await desk.runs.undo(run.id)
    await queue.store.run("unstep_run", pool.prefix, run.id, "0")
    run = await desk.runs.abort(run.id)
    assert (run.state, run.returned) == ("aborted", 100)
    assert (await desk.undo(run)).returned == 250
    assert await tiers_of(queue, ids) == ["default"] * 250


async def test_a_step_that_is_repeated_changes_nothing(queue: Queue, pool: Pool, desk: Desk) -> None:
    """As after a lost reply, or by a process that does not know that another one has taken over."""
    await submit(queue, pool, n=150)
    run = await desk.weigh(BATCH)
    await desk.runs.apply(run.id)
    await desk.runs.apply(run.id)
    for chunk in "0001001":
        await queue.store.run("step_run", pool.prefix, run.id, chunk)
    run = await desk.runs.get(run.id)
    assert (run.state, run.moved, run.skipped) == ("done", 150, {})


async def test_a_purge_cancels_what_waits_and_nothing_else(queue: Queue, pool: Pool, desk: Desk) -> None:
    ids = await submit(queue, pool, n=5)
    delayed = await submit(queue, pool, delay_ms=1000)
    (other,) = await submit(queue, pool, "bob")
    (leased,) = [lease for lease in await take(queue, pool, 2) if lease.tenant == "ann"]
    run = await desk.rebalance(PURGE, tenant="ann")
    assert (run.moved, run.state) == (5, "done")
    assert [await state_of(queue, id_) for id_ in [*ids, *delayed]] == ["leased", *["cancelled"] * 5]
    assert await state_of(queue, other) == "leased"
    await finish(queue, pool, [leased])
    with pytest.raises(InvalidRequest):
        await desk.runs.undo(run.id)


async def test_jobs_are_spread_over_pools_evenly_with_their_ages(
    queue: Queue, pool: Pool, target: Pool, clock: ManualClock, desk: Desk
) -> None:
    third = await queue.pools.open("qwen", Policy())
    ids = await submit(queue, pool, n=20)
    clock.advance(5000)
    run = await desk.rebalance(Target(pools=("llama", "mistral", "qwen")), tier="default")
    assert (run.state, run.moved, run.skipped) == ("done", 13, {"stays": 7})
    jobs = [await queue.inspect.job(id_) for id_ in ids]
    assert [job.pool for job in jobs] == ["llama", "mistral", "qwen"] * 6 + ["llama", "mistral"]
    assert {job.created_at_ms for job in jobs} == {clock.now_ms() - 5000}
    lines = [await queue.inspect.line(each, "default", "ann") for each in (pool, target, third)]
    assert [[job.id for job in line] for line, _ in lines] == [ids[0::3], ids[1::3], ids[2::3]]


async def test_undo_brings_jobs_back_from_other_pools_to_their_old_places(
    queue: Queue, pool: Pool, target: Pool, desk: Desk
) -> None:
    ids = await submit(queue, pool, n=105)
    run = await desk.rebalance(Target(pools=("mistral",)), most=103)
    await submit(queue, pool)
    await finish(queue, target, await take(queue, target, 2))
    run = await desk.undo(run)
    assert (run.state, run.returned, run.kept) == ("undone", 101, {"succeeded": 2})
    assert ids_of(await drain(queue, pool))[:-1] == ids[2:]


async def test_jobs_of_a_batch_change_their_tier_only(queue: Queue, pool: Pool, target: Pool, desk: Desk) -> None:
    ids = await submit(queue, pool, n=2, batch_id="b")
    await submit(queue, pool, "bob")
    run = await desk.rebalance(Target(pools=("mistral",)))
    assert (run.chosen, run.moved, run.skipped) == (1, 1, {"batch": 2})
    assert (await desk.rebalance(BATCH)).moved == 2
    assert await tiers_of(queue, ids) == ["batch"] * 2


async def test_a_target_takes_no_more_than_its_limits_allow(queue: Queue, pool: Pool, target: Pool, desk: Desk) -> None:
    await queue.set_limits(target, "ann", Limits(max_waiting=3))
    await queue.set_policy(target, {"max_waiting_pool": 5}, by="ops")
    await submit(queue, target, "ann")
    await submit_all(queue, pool, [spec(tenant) for tenant in ["ann"] * 4 + ["bob"] * 4])
    run = await desk.rebalance(Target(pools=("mistral",)))
    assert (run.moved, run.skipped) == (4, {"full": 4})
    assert (await queue.inspect.tenant(target, "ann")).waiting == 3


async def test_a_tier_that_the_target_does_not_have_stays(queue: Queue, pool: Pool, desk: Desk) -> None:
    await queue.pools.open("narrow", Policy(tiers=("default",)))
    await submit_all(queue, pool, [spec(tier="default"), spec(tier="flex")])
    with pytest.raises(UnknownTier):
        await desk.weigh(Target(pools=("narrow",)), tier="flex")
    run = await desk.rebalance(Target(pools=("narrow",)))
    assert (run.moved, run.skipped) == (1, {"no_tier": 1})


async def test_a_pool_that_is_removed_meanwhile_gets_none(queue: Queue, pool: Pool, desk: Desk) -> None:
    await queue.pools.open("brief", Policy())
    ids = await submit(queue, pool, n=3)
    run = await desk.weigh(Target(pools=("brief",)))
    await queue.pools.remove("brief")
    await desk.runs.apply(run.id)
    run = await desk.stepper.carry(run.id)
    assert (run.state, run.moved, run.skipped) == ("done", 0, {"no_pool": 3})
    assert ids_of(await drain(queue, pool)) == ids


async def test_a_tier_that_was_taken_away_meanwhile_gets_none(queue: Queue, pool: Pool, desk: Desk) -> None:
    await submit(queue, pool, n=2)
    run = await desk.weigh(BATCH)
    await queue.set_policy(pool, {"tiers": ("priority", "default", "flex")}, by="ops")
    await desk.runs.apply(run.id)
    assert (await desk.stepper.carry(run.id)).skipped == {"no_tier": 2}


async def test_an_empty_choice_is_done_at_once(queue: Queue, pool: Pool, target: Pool, desk: Desk) -> None:
    for to in (BATCH, PURGE, Target(pools=("mistral",))):
        run = await desk.rebalance(to)
        assert (run.state, run.chosen, run.forecast and run.forecast.shifts) == ("done", 0, ())


async def test_plans_that_make_no_sense_are_refused(queue: Queue, pool: Pool, target: Pool, desk: Desk) -> None:
    senseless: list[tuple[Target, dict[str, Any]]] = [
        (Target(), {}),
        (Target(tier="batch", purge=True), {}),
        (BATCH, {"tier": "batch"}),
        (Target(pools=("llama",)), {}),
        (Target(pools=("mistral", "mistral")), {}),
        (BATCH, {"most": 0}),
        (BATCH, {"older_than_s": -1}),
        (BATCH, {"tenant": "no tenant's name"}),
        (Target(tier="gold"), {}),
    ]
    for to, chosen in senseless:
        with pytest.raises((InvalidRequest, UnknownTier)):
            await desk.weigh(to, **chosen)
    with pytest.raises(NotFound):
        await desk.weigh(Target(pools=("nowhere",)))
    with pytest.raises(NotFound):
        await desk.runs.get(f"run_{pool.code}000000000000")
    with pytest.raises(NotFound):
        await desk.runs.get("run_x")


async def test_a_pool_has_only_so_many_runs_under_way(queue: Queue, pool: Pool, desk: Desk) -> None:
    plan = Plan(Filter("llama"), BATCH)
    made = [await desk.runs.create(plan, "ops") for _ in range(16)]
    with pytest.raises(IllegalTransition):
        await desk.runs.create(plan, "ops")
    await desk.runs.abort(made[0].id)
    await desk.runs.create(plan, "ops")


async def test_runs_of_all_pools_are_listed_newest_first(
    queue: Queue, pool: Pool, target: Pool, clock: ManualClock, desk: Desk
) -> None:
    made: list[str] = []
    for name in ("llama", "mistral", "llama"):
        clock.advance(1)
        made.append((await desk.weigh(BATCH, name)).id)
    first, cursor = await desk.runs.list(limit=2)
    rest, end = await desk.runs.list(cursor, limit=2)
    assert [run.id for run in [*first, *rest]] == made[::-1]
    assert end is None
    assert await desk.runs.open() == []


async def test_one_process_steps_a_run_and_another_takes_over(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool, n=3)
    one, other = Desk(queue), Desk(queue)
    run = await one.runs.create(Plan(Filter("llama"), BATCH), "ops")
    await queue.store.run("elect", pool.prefix, f"run:{run.id}", "a process that died", "5000")
    assert (await other.stepper.carry(run.id)).state == "counting"
    clock.advance(5001)
    assert (await other.stepper.carry(run.id)).state == "ready"


async def test_a_run_of_a_removed_pool_is_gone(queue: Queue, desk: Desk) -> None:
    await queue.pools.open("brief", Policy())
    run = await desk.weigh(BATCH, "brief")
    await queue.pools.remove("brief")
    with pytest.raises(NotFound):
        await desk.stepper.carry(run.id)


async def test_a_moved_job_that_ends_in_the_target_leaves_nothing_behind(
    queue: Queue, pool: Pool, target: Pool, desk: Desk
) -> None:
    (id_,) = await submit(queue, pool)
    run = await desk.rebalance(Target(pools=("mistral",)))
    await queue.cancel(id_)
    run = await desk.undo(run)
    assert run.kept == {"cancelled": 1}
    assert await raw_state(queue, pool, id_) == "moved"
