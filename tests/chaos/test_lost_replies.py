"""The connection breaks at any moment: an act that was obeyed although its reply was lost is not done a second time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import TypeVar

import pytest

from fairlane.errors import StoreUnavailable
from fairlane.model import JobSpec, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.chaos.stage import check_all_succeeded_once, is_idle, open_pool
from tests.chaos.wire import Fate, Wire

JOBS = 400
SUBMITTERS = 4
DISPATCHERS = 4
POLICY = Policy(lease_ms=3_600_000)  # no lease ends within the test: nothing may have to run twice
T = TypeVar("T")


def spec(n: int, key: str | None) -> JobSpec:
    return JobSpec(tenant=f"t{n % 5}", tier="default", body=b"{}", idempotency_key=key)


@pytest.mark.parametrize("loss", [0.1, 0.4])
async def test_lost_requests_and_replies_lose_and_double_nothing(valkey_port: int, loss: float) -> None:
    dice = random.Random(loss)

    def fate(_: bytes) -> Fate:
        roll = dice.random()
        return "request_lost" if roll < loss / 2 else "reply_lost" if roll < loss else "passes"

    async with (
        open_pool(f"redis://127.0.0.1:{valkey_port}/0", POLICY) as (queue, pool),
        Wire(valkey_port, fate) as wire,
    ):
        broken = await until_answered(lambda: Queue.open(wire.url))
        ids: list[str] = []
        running: set[str] = set()
        todo = iter(range(JOBS))
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            for _ in range(SUBMITTERS):
                tasks.create_task(submit(broken, pool, todo, ids))
            for n in range(DISPATCHERS):
                tasks.create_task(dispatch(broken, queue, pool, f"d{n}", ids, running))
        await broken.close()
        assert min(wire.fates["request_lost"], wire.fates["reply_lost"]) > JOBS * loss / 10
        assert len(ids) == JOBS
        jobs = await check_all_succeeded_once(queue, pool, set(ids))
        assert {len(job.attempts) for job in jobs} == {1}


async def test_a_submit_without_a_key_is_tried_once(valkey_port: int) -> None:
    """Nobody knows whether it was obeyed: the caller is told so, and it is not done twice."""
    fates: list[Fate] = []
    async with open_pool(f"redis://127.0.0.1:{valkey_port}/0", POLICY) as (queue, pool):
        async with Wire(valkey_port, lambda _: fates.pop() if fates else "passes") as wire:
            broken = await Queue.open(wire.url)
            await broken.submit(pool, spec(0, key=None))
            fates.append("reply_lost")
            with pytest.raises(StoreUnavailable):
                await broken.submit(pool, spec(0, key=None))
            await broken.close()
        assert sum(tier.depth for tier in (await queue.inspect.overview(pool)).tiers) == 2


async def test_a_call_that_was_given_up_leaves_no_reply_for_the_next(valkey_url: str) -> None:
    """Every client disconnects some day in the middle of a call; its connection must not answer another's question."""
    dice = random.Random(0)
    async with open_pool(valkey_url, POLICY) as (queue, pool):
        ids = [(await queue.submit(pool, spec(n, key=None))).id for n in range(20)]

        async def ask(id_: str) -> None:
            assert (await queue.inspect.job(id_)).id == id_
            assert (await queue.submit(pool, spec(0, key=id_))).id == kept[id_]

        kept = {id_: (await queue.submit(pool, spec(0, key=id_))).id for id_ in ids}
        for _ in range(JOBS):
            asked = [asyncio.create_task(ask(dice.choice(ids))) for _ in range(4)]
            for _ in range(dice.randrange(6)):
                await asyncio.sleep(0)
            given_up = asked[: dice.randrange(3)]
            for task in given_up:
                task.cancel()
            answers = await asyncio.gather(*asked, return_exceptions=True)
            assert not [answer for answer in answers if isinstance(answer, Exception)]


async def test_a_cancelled_call_ends(valkey_url: str) -> None:
    """Else no dispatcher stops when it is told to, and no timeout around a call holds."""
    dice = random.Random(0)
    async with open_pool(valkey_url, POLICY) as (queue, pool):

        async def acquire_forever(name: str) -> None:
            for call_no in count(1):
                await queue.acquire(pool, name, call_no, 1)

        for round_ in range(50):
            tasks = [asyncio.create_task(acquire_forever(f"r{round_}d{n}")) for n in range(4)]
            await asyncio.sleep(dice.random() * 0.004)
            for task in tasks:
                task.cancel()
            _, running = await asyncio.wait(tasks, timeout=2)
            for task in running:
                task.cancel()
            assert not running, f"{len(running)} of {len(tasks)} go on, {round_} rounds after the first"


async def submit(queue: Queue, pool: Pool, todo: Iterator[int], ids: list[str]) -> None:
    for n in todo:
        answer = await until_answered(lambda: queue.submit(pool, spec(n, f"key{n}")))  # noqa: B023
        ids.append(answer.id)


async def dispatch(broken: Queue, sound: Queue, pool: Pool, name: str, ids: list[str], running: set[str]) -> None:
    for call_no in count(1):
        leases = await until_answered(lambda: broken.acquire(pool, name, call_no, 4))  # noqa: B023
        for lease in leases:
            assert lease.id not in running, "leased twice at once"
            running.add(lease.id)
        for lease in leases:
            state = await until_answered(lambda: broken.settle(pool, lease, "succeeded", status=200))  # noqa: B023
            assert state == "succeeded"
            running.remove(lease.id)
        if not leases and len(ids) == JOBS and await is_idle(sound, pool):
            break


async def until_answered(act: Callable[[], Awaitable[T]]) -> T:
    """As a client or a dispatcher does it: the same again until the queue answers."""
    while True:
        try:
            return await act()
        except StoreUnavailable:
            pass
