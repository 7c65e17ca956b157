"""A move is three steps in two slots: whoever comes finishes one that broke off, and late steps change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import IllegalTransition, UnknownTier
from fairlane.model import Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import (
    another_process,
    finish,
    ids_of,
    state_of,
    submit,
    take,
    take_one,
)
from tests.contract.invariants import raw_state

pytestmark = pytest.mark.usefixtures("invariants")

TAKE_OVER_MS = 10_000
Touch = Callable[[Queue, str], Awaitable[object]]
# What brings a move to its end that broke off: the sweeper, or whoever touches the job next.
TOUCHES: dict[str, Touch] = {
    "read": lambda queue, id_: queue.inspect.job(id_),
    "explain": lambda queue, id_: queue.inspect.explain(id_),
    "cancel": lambda queue, id_: queue.cancel(id_),
}


class Crash(Exception):
    """A process dies between two steps of a move."""


def before(queue: Queue, step: str, act: Callable[[], Awaitable[None]]) -> None:
    """Does `act` when this process is about to take `step` for the first time."""
    run = queue._store.run

    async def until(name: str, *args: Any, **options: Any) -> Any:
        if name == step:
            queue._store.run = run
            await act()
        return await run(name, *args, **options)

    queue._store.run = until


async def break_off(queue: Queue, job_id: str, target: Pool, step: str) -> None:
    async def die() -> None:
        raise Crash

    dying = another_process(queue)
    before(dying, step, die)
    with pytest.raises(Crash):
        await dying.move(job_id, target)


@pytest.mark.parametrize("step", ["arrive", "leave_stub"])
@pytest.mark.parametrize("touch", ["sweep", *TOUCHES])
async def test_a_move_that_broke_off_is_finished(
    queue: Queue, pool: Pool, target: Pool, clock: ManualClock, step: str, touch: str
) -> None:
    (id_,) = await submit(queue, pool)
    await break_off(queue, id_, target, step)
    assert await raw_state(queue, pool, id_) == "moving"
    someone = another_process(queue)
    if touch == "sweep":
        clock.advance(TAKE_OVER_MS - 1)
        assert (await someone.sweep(pool)).moves == 0
        clock.advance(1)
        assert (await someone.sweep(pool)).moves == 1
    else:
        await TOUCHES[touch](someone, id_)
    assert await raw_state(queue, pool, id_) == "moved"
    expected = "cancelled" if touch == "cancel" else "queued"
    assert await raw_state(queue, target, id_) == expected
    assert ids_of(await take(queue, target, 9)) == ([] if touch == "cancel" else [id_])
    assert await take(queue, pool, 9) == []


async def test_a_move_that_has_not_begun_leaves_the_job_where_it_is(queue: Queue, pool: Pool, target: Pool) -> None:
    (id_,) = await submit(queue, pool)
    await break_off(queue, id_, target, "depart")
    assert ids_of(await take(queue, pool)) == [id_]


@pytest.mark.parametrize("step", ["arrive", "leave_stub"])
async def test_a_move_may_be_repeated_after_it_broke_off(queue: Queue, pool: Pool, target: Pool, step: str) -> None:
    (id_,) = await submit(queue, pool)
    await break_off(queue, id_, target, step)
    for _ in range(2):
        await queue.move(id_, target)
    assert ids_of(await take(queue, target, 9)) == [id_]


@pytest.mark.parametrize("step", ["arrive", "leave_stub"])
async def test_a_move_that_broke_off_is_finished_before_the_next_begins(
    queue: Queue, pool: Pool, target: Pool, step: str
) -> None:
    elsewhere = await queue.pools.open("qwen", Policy())
    (id_,) = await submit(queue, pool)
    await break_off(queue, id_, target, step)
    await queue.move(id_, elsewhere)
    assert (await queue.inspect.job(id_)).pool == "qwen"
    assert await raw_state(queue, target, id_) == "moved"


async def test_of_two_moves_to_different_pools_the_later_one_is_told(queue: Queue, pool: Pool, target: Pool) -> None:
    (id_,) = await submit(queue, pool)
    late = another_process(queue)
    elsewhere = await queue.pools.open("qwen", Policy())
    before(late, "depart", lambda: break_off(queue, id_, target, "arrive"))
    with pytest.raises(IllegalTransition, match="mistral"):
        await late.move(id_, elsewhere)
    assert (await queue.inspect.job(id_)).pool == "mistral"


async def test_a_copy_that_comes_late_changes_nothing(
    queue: Queue, pool: Pool, target: Pool, clock: ManualClock
) -> None:
    """It had arrived, ran and was settled there before the one who moved it went on."""
    (id_,) = await submit(queue, pool)
    await break_off(queue, id_, target, "leave_stub")
    await finish(queue, target, [await take_one(queue, target)])
    clock.advance(TAKE_OVER_MS)
    await queue.sweep(pool)
    assert await state_of(queue, id_) == "succeeded"
    assert await take(queue, target) == []


@pytest.mark.parametrize("step", ["arrive", "leave_stub"])
async def test_a_way_back_that_broke_off_is_finished(
    queue: Queue, pool: Pool, target: Pool, clock: ManualClock, step: str
) -> None:
    (id_,) = await submit(queue, pool)
    await queue.move(id_, target)
    await break_off(queue, id_, pool, step)
    clock.advance(TAKE_OVER_MS)
    assert (await queue.sweep(target)).moves == 1
    assert (await queue.inspect.job(id_)).pool == "llama"
    assert ids_of(await take(queue, pool, 9)) == [id_]


async def test_a_late_stub_of_an_earlier_move_does_not_touch_a_later_one(
    queue: Queue, pool: Pool, target: Pool
) -> None:
    """Found by attack: a mover that stalled before its last step deleted the job, which was on another move by then."""
    third = await queue.pools.open("qwen", Policy())
    (job,) = await submit(queue, pool)
    stalled = another_process(queue)

    async def meanwhile() -> None:
        await another_process(queue).inspect.job(job)  # finishes the stalled move
        await another_process(queue).move(job, pool)
        await break_off(queue, job, third, "arrive")

    before(stalled, "leave_stub", meanwhile)
    await stalled.move(job, target)
    assert (await queue.inspect.job(job)).pool == "qwen"


async def test_a_job_that_changes_its_tier_meanwhile_is_not_moved_to_where_there_is_none(
    queue: Queue, pool: Pool
) -> None:
    narrow = await queue.pools.open("narrow", Policy(tiers=("default",)))
    (job,) = await submit(queue, pool)
    mover = another_process(queue)

    async def meanwhile() -> None:
        assert await another_process(queue).retier(pool, [job], "batch") == [None]

    before(mover, "depart", meanwhile)
    with pytest.raises(UnknownTier):
        await mover.move(job, narrow)
    found = await queue.inspect.job(job)
    assert (found.pool, found.tier, found.state) == ("llama", "batch", "queued")


async def test_a_move_that_overtakes_another_on_its_way_back_loses_nothing(queue: Queue, pool: Pool) -> None:
    """One goes from the other pool back here and has only its last step to do when the job leaves for there again."""
    other = await queue.pools.open("other", pool.policy)
    (id_,) = await submit(queue, pool)
    await queue.move(id_, other)
    slow = another_process(queue)
    run, stopped, go_on = slow._store.run, asyncio.Event(), asyncio.Event()

    async def step(name: str, *args: Any, **options: Any) -> Any:
        if name == "leave_stub":
            stopped.set()
            await go_on.wait()
        return await run(name, *args, **options)

    slow._store.run = step
    back = asyncio.create_task(slow.move(id_, await slow.pools.by_name(pool.name)))
    await stopped.wait()
    await queue.move(id_, other)
    go_on.set()
    await back
    assert (await queue.inspect.job(id_)).state == "queued"
    assert (await queue.inspect.job(id_)).pool == "other"


async def test_a_job_that_runs_does_not_leave_for_its_own_pool(queue: Queue, pool: Pool) -> None:
    """It may wait again by the time of the first step, which must not take it off its line then."""
    (id_,) = await submit(queue, pool)
    (lease,) = await take(queue, pool, 1)
    with pytest.raises(IllegalTransition):
        await queue.move(id_, pool)
    await queue.release(pool, lease)
    with pytest.raises(IllegalTransition):
        await queue._store.run("depart", pool.prefix, id_, pool.code, "1000", " default ")
    assert (await queue.inspect.job(id_)).state == "queued"
