"""Offices: held by one, taken over soon, given up when Redis cannot be asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dispatcher.elections import Office
from fairlane.errors import StoreUnavailable
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.dispatcher.scripted import until


class Work:
    """Says while it is done."""

    def __init__(self) -> None:
        self.going = False
        self.starts = 0

    async def __call__(self) -> None:
        self.going = True
        self.starts += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.going = False


class Desk:
    """One process's office, and the task that runs it."""

    def __init__(self, queue: Queue, pool: Pool, who: str) -> None:
        self.work = Work()
        self.office = Office(queue, pool, "observer", who, self.work)
        self.task = asyncio.create_task(self.office.run())

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def one_of(desks: list[Desk]) -> Desk:
    async def exactly_one() -> bool:
        return sum(desk.work.going for desk in desks) == 1

    await until(exactly_one)
    return next(desk for desk in desks if desk.work.going)


async def test_one_of_many_holds_an_office_and_the_next_takes_it_over_at_once(queue: Queue, pool: Pool) -> None:
    desks = [Desk(queue, pool, f"d{n}") for n in range(4)]
    while desks:
        holder = await one_of(desks)
        desks.remove(holder)
        left_at = asyncio.get_running_loop().time()
        await holder.leave()
        assert not holder.work.going
        if desks:
            await one_of(desks)
            assert asyncio.get_running_loop().time() - left_at < 1.0


async def test_the_office_of_one_that_was_killed_is_taken_over_within_two_seconds(
    queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    desks = [Desk(queue, pool, f"d{n}") for n in range(2)]
    holder = await one_of(desks)

    async def no_time(*_: object) -> None:
        pass

    monkeypatch.setattr(queue, "resign", no_time)
    killed_at = asyncio.get_running_loop().time()
    await holder.leave()
    desks.remove(holder)
    await one_of(desks)
    assert asyncio.get_running_loop().time() - killed_at < 2.0 + 0.3  # a busy machine's share
    await desks[0].leave()


@pytest.mark.parametrize("error", [StoreUnavailable(retry_after=1), RuntimeError("a bug")], ids=["away", "broken"])
async def test_nobody_works_on_when_redis_cannot_be_asked(
    queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    desk = Desk(queue, pool, "d0")
    await one_of([desk])
    elect = queue.elect

    async def away(*_: Any) -> bool:
        raise error

    monkeypatch.setattr(queue, "elect", away)

    async def stopped() -> bool:
        return not desk.work.going

    await until(stopped)
    monkeypatch.setattr(queue, "elect", elect)
    await one_of([desk])
    assert desk.work.starts == 2
    await desk.leave()


async def test_work_that_breaks_is_begun_again(queue: Queue, pool: Pool) -> None:
    breaks = [2]
    steady = asyncio.Event()

    async def work() -> None:
        if breaks[0]:
            breaks[0] -= 1
            raise RuntimeError("a bug")
        steady.set()
        await asyncio.Event().wait()

    office = Office(queue, pool, "sweeper", "d0", work)
    task = asyncio.create_task(office.run())
    async with asyncio.timeout(5):
        await steady.wait()
    task.cancel()
    await asyncio.wait([task])
