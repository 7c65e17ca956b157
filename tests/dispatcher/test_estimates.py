"""Estimates: how long a job is told to wait, against how long it does, in virtual time."""

from __future__ import annotations

import json
import os
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import count
from statistics import median

import pytest

from dispatcher.steering import EVERY_S, Steering
from fairlane.clock import ManualClock
from fairlane.estimate import Estimate, Estimates
from fairlane.model import Lease, Limits, Policy, TierGate
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import NOTHING_COUNTED, finish, submit, take
from tests.servers import ValkeyServer

SLOTS = 8
STEP_MS = 100
LEAST_S = 0.5  # shorter waits are compared by nobody
_numbers = count()


@dataclass(frozen=True)
class Promise:
    job: str
    at_ms: int
    wait_s: float


@dataclass
class Backend:
    """Runs up to SLOTS jobs, each for 0.5 to 1.5 s, and is steered; time goes on only in `run`."""

    queue: Queue
    pool: Pool
    clock: ManualClock
    dice: random.Random = field(default_factory=lambda: random.Random(7))
    started: dict[str, int] = field(default_factory=lambda: dict[str, int]())
    _ends: dict[str, tuple[int, Lease]] = field(default_factory=lambda: dict[str, tuple[int, Lease]]())

    def __post_init__(self) -> None:
        self._steering = Steering(self.queue, self.pool, 20)
        self._steered_ms = 0
        self.estimates = Estimates(self.queue, lambda: self.now / 1000)

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    async def run(self, seconds: float) -> None:
        end = self.now + round(1000 * seconds)
        while self.now < end:
            await self._step()
            self.clock.advance(STEP_MS)

    async def run_dry(self) -> None:
        for _ in range(300):
            await self.run(1)
            load = await self.queue.inspect.load(self.pool)
            if not any(tier.waiting or tier.inflight for tier in load.tiers):
                return
        raise AssertionError("the queue never runs dry")

    async def _step(self) -> None:
        over = [lease for end, lease in self._ends.values() if end <= self.now]
        await finish(self.queue, self.pool, over)
        for lease in over:
            del self._ends[lease.id]
        for lease in await take(self.queue, self.pool, SLOTS):
            self.started[lease.id] = self.now
            self._ends[lease.id] = (self.now + self.dice.randint(500, 1500), lease)
        if self.now % 1000 == 0:
            await self.queue.sweep(self.pool)
        if self.now - self._steered_ms >= 1000 * EVERY_S:
            self._steered_ms = self.now
            await self._steering.round()

    async def estimate(self, job_id: str) -> Estimate:
        return await self.estimates.of(self.pool, await self.queue.inspect.explain(job_id))

    async def promise(self, job_id: str) -> Promise:
        wait_s = (await self.estimate(job_id)).wait_s
        assert wait_s is not None
        return Promise(job_id, self.now, wait_s)


@pytest.fixture
async def backend(valkey: ValkeyServer, request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    clock = ManualClock()
    queue = Queue(connect(valkey.url), namespace=f"e{os.getpid()}x{next(_numbers)}", clock=clock)
    await queue.check()
    pool = await queue.pools.open("llama", getattr(request, "param", Policy(stale_ms=10**9)))
    await queue.set_backend(pool, "b1", "add")
    gates = {tier: TierGate(SLOTS, SLOTS) for tier in pool.policy.tiers}
    await queue.observe(pool, "b1", gates, counted=NOTHING_COUNTED, seen=json.dumps({"slots": SLOTS}))
    yield Backend(queue, pool, clock)
    await queue.close()


def errors(backend: Backend, promises: list[Promise]) -> list[float]:
    """Of each promise: (actual - promised) / actual."""
    actual = [(promise, (backend.started[promise.job] - promise.at_ms) / 1000) for promise in promises]
    return [(wait_s - promise.wait_s) / wait_s for promise, wait_s in actual if wait_s >= LEAST_S]


async def warm_up(backend: Backend, **more: str) -> None:
    await submit(backend.queue, backend.pool, "warm", n=80, **more)
    await backend.run_dry()


async def test_once_warmed_up_most_estimates_are_within_a_quarter(backend: Backend) -> None:
    await warm_up(backend)
    promises: list[Promise] = []
    for _ in range(60):
        for tenant in ("ann", "bob", "cho"):
            (job,) = await submit(backend.queue, backend.pool, tenant)
            promises.append(await backend.promise(job))
        await backend.run(0.2)
    await backend.run_dry()
    found = errors(backend, promises)
    assert len(found) > 100
    assert median(map(abs, found)) < 0.25
    assert abs(median(found)) < 0.15  # neither too high nor too low as a rule


async def test_they_know_how_much_of_the_turns_a_tenant_gets(backend: Backend) -> None:
    """One floods, one has a short line, one has twice the weight: each is told its own wait."""
    await warm_up(backend)
    await backend.queue.set_limits(backend.pool, "cho", Limits(weight=2.0))
    jobs = {tenant: await submit(backend.queue, backend.pool, tenant, n=n) for tenant, n in
            (("ann", 150), ("bob", 10), ("cho", 40))}  # fmt: skip
    await backend.run(2)
    waiting = {tenant: [job for job in of if job not in backend.started] for tenant, of in jobs.items()}
    promises = {tenant: [await backend.promise(job) for job in of] for tenant, of in waiting.items()}
    await backend.run_dry()
    for tenant, of in promises.items():
        found = errors(backend, of)
        assert median(map(abs, found)) < 0.25, tenant


async def test_a_lower_tier_is_told_of_what_will_come_above_it(backend: Backend) -> None:
    """Half of the places go to jobs that have not come yet when the estimate is made."""
    await warm_up(backend, tier="batch")
    promises: list[Promise] = []
    jobs = await submit(backend.queue, backend.pool, tier="batch", n=150)
    for second in range(40):
        await submit(backend.queue, backend.pool, "bob", "priority", n=4)
        await backend.run(1)
        if second == 20:
            left = [job for job in jobs if job not in backend.started]
            promises = [await backend.promise(job) for job in left]
    await backend.run_dry()
    found = errors(backend, promises)
    assert median(map(abs, found)) < 0.25


@pytest.mark.parametrize("backend", [Policy(stale_ms=10**9, valve_ms=10_000)], indirect=True)
@pytest.mark.parametrize("low", [("flex",), ("default", "flex", "batch")])
@pytest.mark.parametrize("waits", [False, True])
async def test_a_lower_tier_is_told_when_the_valve_lets_it_past_a_flood(
    backend: Backend, low: tuple[str, ...], waits: bool
) -> None:
    """More than the pool can do comes above it all the time; or, of one that `waits`, as much as has ended."""

    async def flood(seconds: int) -> None:
        for _ in range(seconds):
            waiting = (await backend.queue.inspect.load(backend.pool)).tiers[0].waiting
            await submit(backend.queue, backend.pool, "bob", "priority", n=3 * SLOTS - waiting if waits else 10)
            await backend.run(1)

    await flood(30)
    jobs = [job for tier in low for job in await submit(backend.queue, backend.pool, tier=tier, n=10)]
    promises: list[Promise] = []
    for _ in range(4):
        promises += [await backend.promise(job) for job in jobs if job not in backend.started]
        await flood(7)
    await flood(20)
    round_s = len(low) * 16 / SLOTS  # of the valve's turns, one for each tier: how far on it is in one is not known
    for promise in promises:
        actual_s = (backend.started[promise.job] - promise.at_ms) / 1000
        assert actual_s / 2 - 0.5 <= promise.wait_s <= max(2 * actual_s, actual_s + round_s)
    assert median(map(abs, errors(backend, promises))) < 0.25


async def test_a_job_that_finds_room_is_told_that_it_starts_at_once(backend: Backend) -> None:
    await warm_up(backend)
    (job,) = await submit(backend.queue, backend.pool)
    assert await backend.estimate(job) == Estimate(0, 0.0)


async def test_a_delayed_job_waits_for_its_delay_and_a_held_one_for_its_rate(backend: Backend) -> None:
    await warm_up(backend)
    (late,) = await submit(backend.queue, backend.pool, delay_ms=30_000)
    why = await backend.queue.inspect.explain(late)
    due = (await backend.queue.inspect.job(late)).not_before_ms
    assert (await backend.estimates.of(backend.pool, why, due)).wait_s == pytest.approx(30, abs=0.1)
    await backend.queue.set_limits(backend.pool, "slow", Limits(requests_per_minute=30))
    jobs = await submit(backend.queue, backend.pool, "slow", n=20)
    await backend.run(5)
    last = await backend.promise(jobs[-1])
    await backend.run_dry()
    (error,) = errors(backend, [last])
    assert abs(error) < 0.1


@pytest.mark.parametrize("per_minute", [1, 6])
async def test_a_held_job_waits_for_its_turn_after_the_hold(backend: Backend, per_minute: int) -> None:
    await backend.queue.set_limits(backend.pool, "slow", Limits(requests_per_minute=per_minute))
    jobs = await submit(backend.queue, backend.pool, "slow", n=3)
    await backend.run(2)
    promises = [await backend.promise(job) for job in jobs[1:]]
    await backend.run_dry()
    assert all(abs(error) < 0.1 for error in errors(backend, promises))


async def test_nobody_knows_the_wait_while_something_is_paused_or_there_is_no_backend(backend: Backend) -> None:
    (job,) = await submit(backend.queue, backend.pool)
    for what in ({"tier": "default"}, {"tenant": "ann"}, {}):
        await backend.queue.pause(backend.pool, **what)
        assert await backend.estimate(job) == Estimate(0, None)
        await backend.queue.resume(backend.pool, **what)
    await backend.promise(job)
    await backend.queue.set_backend(backend.pool, "b1", "remove")
    assert await backend.estimate(job) == Estimate(0, None)


async def test_a_tier_that_is_newer_than_what_was_read_of_the_pool_has_an_estimate_too(backend: Backend) -> None:
    await backend.promise(*await submit(backend.queue, backend.pool))
    pool = await backend.queue.set_policy(backend.pool, {"tiers": (*backend.pool.policy.tiers, "last")}, by="ann")
    (job,) = await submit(backend.queue, pool, tier="last")
    assert (await backend.promise(job)).wait_s >= 0
