"""Whatever happens to runs (crashes at any script, lost replies, two processes, aborts, undos) and to jobs meanwhile:
no job is lost or doubled, lines stay first in first out, and an undo restores what still waits."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.clock import ManualClock
from fairlane.errors import FairlaneError, LeaseLost
from fairlane.ids import SeededIds
from fairlane.model import Lease, Policy
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.rebalance import Filter, Plan, Run, Runs, Stepper, Target
from tests.contract.acts import REFUSED, another_process, finish, open_backend, spec, submit_all, take
from tests.contract.invariants import check_invariants
from tests.servers import ValkeyServer

TENANTS = ("ann", "bob", "cho")
TIERS = ("default", "flex", "batch")
POOLS = ("here", "there", "beyond")
HOLD_MS = 5001


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ValkeyServer() as server:
        yield server.url


class Crash(Exception):
    """The process dies."""


class World:
    """Three pools, the jobs that were submitted, and the runs."""

    def __init__(self, url: str, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.client: Any = connect(url)
        self.queue = Queue(self.client, clock=self.clock, ids=SeededIds(seed), timeout_s=30)
        self.runs = Runs(self.queue, SeededIds(seed))
        self.made: list[str] = []
        self.home: dict[str, tuple[str, str]] = {}  # pool, tier
        self.leases: list[tuple[Pool, Lease]] = []
        self.known: list[str] = []

    async def open(self) -> None:
        await self.client.flushall()
        self.pools = [await self.queue.pools.open(name, Policy(result_ttl_ms=10**9)) for name in POOLS]
        for pool in self.pools:
            await open_backend(self.queue, pool, "b1", 10_000)

    async def submit(self, pool: Pool | None = None, delay_ms: int = 0) -> None:
        pool = pool or self.random.choice(self.pools)
        specs = [
            spec(self.random.choice(TENANTS), self.random.choice(TIERS), delay_ms=delay_ms)
            for _ in range(self.random.choice([1, 10, 80]))
        ]
        for id_, one in zip(await submit_all(self.queue, pool, specs), specs, strict=True):
            self.made.append(id_)
            self.home[id_] = (pool.name, one.tier)
        self.clock.advance(1)

    async def work(self) -> None:
        """A dispatcher takes some jobs, and ends one way or the other some that it has."""
        pool = self.random.choice(self.pools)
        self.leases += [(pool, lease) for lease in await take(self.queue, pool, self.random.randint(1, 10))]
        self.random.shuffle(self.leases)
        for _ in range(min(len(self.leases), self.random.randint(0, 10))):
            with suppress(LeaseLost):  # it ended when the clock went on
                await self.end(*self.leases.pop())

    async def end(self, pool: Pool, lease: Lease) -> None:
        match self.random.randint(0, 3):
            case 0:
                await finish(self.queue, pool, [lease])
            case 1:
                await self.queue.release(pool, lease)
            case 2:
                await self.queue.retry(pool, lease, REFUSED, delay_ms=50)
            case _:
                await self.queue.cancel(lease.id)
                await self.queue.release(pool, lease)

    async def others(self) -> None:
        """Somebody else cancels, moves or delays."""
        job = self.random.choice(self.made)
        with suppress(FairlaneError):
            match self.random.randint(0, 2):
                case 0:
                    await self.queue.cancel(job)
                case 1:
                    await self.queue.move(job, self.random.choice(self.pools))
                case _:
                    await self.submit(delay_ms=100)

    async def plan(self, source: str | None = None) -> None:
        to = self.random.choice(
            [Target(tier="batch"), Target(tier="flex"), Target(pools=POOLS[1:]), Target(pools=POOLS)]
        )
        where = Filter(
            source or self.random.choice(POOLS),
            tenant=self.random.choice([None, *TENANTS]),
            most=self.random.choice([None, 50, 150]),
        )
        with suppress(FairlaneError):
            self.known.append((await self.runs.create(Plan(where, to), "ops")).id)

    async def steer(self) -> None:
        if self.known:
            act = self.random.choice([self.runs.apply, self.runs.apply, self.runs.abort, self.runs.undo])
            with suppress(FairlaneError):
                await act(self.random.choice(self.known))

    async def step(self, run_id: str | None = None, within: int = 120) -> None:
        """A process carries a run until it dies: before or after one of its scripts, whose reply is then lost."""
        if not self.known:
            return
        process = another_process(self.queue)
        run, left, after = process.store.run, self.random.randint(1, within), self.random.random() < 0.5

        async def until(name: str, *args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0 and after:
                await run(name, *args, **options)
            if left <= 0:
                raise Crash
            return await run(name, *args, **options)

        process.store.run = until
        with suppress(Crash, FairlaneError):
            await Stepper(process).carry(run_id or self.random.choice(self.known))

    async def two(self) -> None:
        """Two processes step one run at the same time: each thinks that it holds it."""
        if not self.known:
            return
        run_id = self.random.choice(self.known)
        pool = await self.runs.pool_of(run_id)

        async def one(who: str) -> None:
            process = another_process(self.queue)
            run = process.store.run

            async def no_hold(name: str, *args: Any, **options: Any) -> Any:
                return 1 if name == "elect" else await run(name, *args, **options)

            process.store.run = no_hold
            await Stepper(process, who).carry(run_id)

        await self.queue.store.run("resign", pool.prefix, f"run:{run_id}", "a")
        await asyncio.gather(one("a"), one("b"))

    async def wait(self) -> None:
        self.clock.advance(self.random.choice([60, HOLD_MS, 11_000]))
        for pool in self.pools:
            await self.queue.sweep(pool)

    async def settle(self) -> list[Run]:
        """All runs come to rest, all moves that broke off are finished."""
        for _ in range(2):
            self.clock.advance(11_000)
            for pool in self.pools:
                await self.queue.sweep(pool)
        return [await Stepper(self.queue).carry(run_id) for run_id in self.known]

    async def places(self) -> dict[str, tuple[str, str]]:
        """Where each job is that waits: pool, tier. A job in two lines breaks the invariants."""
        found: dict[str, tuple[str, str]] = {}
        for pool in self.pools:
            await check_invariants(self.queue, pool)
        for id_ in self.made:
            job = await self.queue.inspect.job(id_)  # whatever became of it, it is somewhere
            if job.state in ("queued", "delayed"):
                found[id_] = (job.pool, job.tier)
        return found

    async def check_order(self) -> None:
        """In each line of the pool that they were submitted to, jobs stand in the order of their submits."""
        rank = {id_: n for n, id_ in enumerate(self.made)}
        for pool in self.pools:
            lines: dict[tuple[str, str], list[str]] = defaultdict(list)
            for tier in TIERS:
                for tenant in TENANTS:
                    jobs, _ = await self.queue.inspect.line(pool, tier, tenant, limit=1000)
                    lines[tier, tenant] = [job.id for job in jobs if self.home[job.id][0] == pool.name]
            for line in lines.values():
                assert line == sorted(line, key=rank.__getitem__)


def check_numbers(run: Run) -> None:
    assert run.state in ("ready", "done", "aborted", "undone")
    if run.state in ("done", "undone"):
        assert run.moved + sum(n for why, n in run.skipped.items() if why != "batch") in (run.chosen, run.step * 100)
    assert run.returned + sum(run.kept.values()) <= run.moved
    if run.state == "undone":
        assert run.returned + sum(run.kept.values()) == run.moved


def play(story: Callable[[World], Coroutine[Any, Any, None]], url: str, seed: int) -> None:
    async def run() -> None:
        world = World(url, seed)
        await world.open()
        await story(world)
        await world.queue.close()

    asyncio.run(run())


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_job_is_lost_or_doubled_whatever_happens_to_runs(url: str, seed: int) -> None:
    async def story(world: World) -> None:
        for _ in range(2):
            await world.submit()
        acts = [
            world.submit,
            world.work,
            world.others,
            world.plan,
            world.steer,
            world.step,
            world.step,
            world.two,
            world.wait,
        ]
        for _ in range(25):
            await world.random.choice(acts)()
        for run in await world.settle():
            check_numbers(run)
        waiting = await world.places()
        await world.check_order()
        for pool, lease in world.leases:
            with suppress(FairlaneError):  # it ended when the clock went on
                await world.queue.release(pool, lease)
        world.clock.advance(60_000)
        ran: list[str] = []
        for pool in world.pools:
            await world.queue.sweep(pool, 1000)
            while leases := await take(world.queue, pool, 100):
                ran += [lease.id for lease in leases]
                await finish(world.queue, pool, leases)
        assert len(ran) == len(set(ran))
        assert waiting.keys() <= set(ran)

    play(story, url, seed)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_an_undo_brings_all_that_waits_back_however_often_processes_die(url: str, seed: int) -> None:
    async def story(world: World) -> None:
        for _ in range(3):
            await world.submit(world.pools[0])
        await world.plan("here")
        (run_id,) = world.known
        await world.settle()
        await world.runs.apply(run_id)
        for _ in range(world.random.randint(0, 4)):
            await world.step(run_id, within=400)
            world.clock.advance(HOLD_MS)
            if world.random.random() < 0.2:
                with suppress(FairlaneError):
                    await world.runs.abort(run_id)
        if world.random.random() < 0.5:
            await world.settle()
        with suppress(FairlaneError):
            await world.runs.abort(run_id)
        (run,) = await world.settle()
        check_numbers(run)
        await world.check_order()
        moved = {id_ for id_, place in (await world.places()).items() if place != world.home[id_]}
        assert len(moved) == run.moved
        if run.may("undo"):
            await world.runs.undo(run_id)
            for _ in range(3):
                await world.step(run_id, within=400)
                world.clock.advance(HOLD_MS)
            (run,) = await world.settle()
            check_numbers(run)
            assert (run.state, run.returned) == ("undone", run.moved)
        assert await world.places() == world.home
        await world.check_order()

    play(story, url, seed)
