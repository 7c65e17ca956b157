"""The boost goes by what jobs of the same class really took; a class is a tenant's jobs of about the same bound."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from dispatcher.policy import boost as policy
from fairlane.clock import ManualClock
from fairlane.model import Policy, Usage
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import REFUSED, spec, submit, take, take_one

pytestmark = pytest.mark.usefixtures("invariants")

GAMMA_PER_MS = 0.0002
long_run = pytest.mark.parametrize("store", ["valkey"], indirect=True)  # hundreds of jobs: one store says it all
pinned = pytest.mark.parametrize("policy", [Policy(gamma=1000 * GAMMA_PER_MS)], indirect=True, ids=["pinned"])


def boost_ms(expected_ms: float) -> int:
    """(1/γ)·ln(1/(1 - e^(-γw))), at most 30 s."""
    return math.floor(min(30_000, -math.log(1 - math.exp(-GAMMA_PER_MS * expected_ms)) / GAMMA_PER_MS))


async def run(
    queue: Queue, pool: Pool, clock: ManualClock, took_ms: int, usage: Usage | None = None, **changes: Any
) -> None:
    """One job that takes `took_ms` and succeeds."""
    await submit(queue, pool, **changes)
    lease = await take_one(queue, pool)
    clock.advance(took_ms)
    await queue.settle(pool, lease, "succeeded", status=200, usage=usage)


async def boost_of(queue: Queue, pool: Pool, **changes: Any) -> int:
    """What the next such job gets; it is released again and cancelled."""
    (id_,) = await submit(queue, pool, **changes)
    lease = await take_one(queue, pool)
    await queue.release(pool, lease)
    await queue.cancel(id_)
    return lease.arrived_at_ms - lease.phi_ms


@pinned
async def test_who_was_never_seen_is_believed(queue: Queue, pool: Pool) -> None:
    assert await boost_of(queue, pool, expected_ms=400) == boost_ms(400)


@long_run
@pinned
async def test_the_scripts_and_the_policy_say_the_same(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    """The formula stands twice, in Lua for production and in Python for the simulator: they never part."""
    chance, known = random.Random(3), policy.ClassStats()
    for _ in range(120):
        took_ms = round(chance.lognormvariate(7, 1.5)) + 1
        await run(queue, pool, clock, took_ms, output_tokens=100)
        known = policy.learned(known, 1000 * GAMMA_PER_MS, took_ms)
        wanted = policy.boost_ms(1000 * GAMMA_PER_MS, known.w_ms, 30_000)
        assert await boost_of(queue, pool, output_tokens=100) == pytest.approx(wanted, abs=2)


@pinned
async def test_the_boost_follows_what_the_class_takes(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    for took_ms in (2_000, 6_000, 1_000):
        await run(queue, pool, clock, took_ms, output_tokens=100)
    mean = sum(math.exp(GAMMA_PER_MS * took_ms) for took_ms in (2_000, 6_000, 1_000)) / 3
    assert await boost_of(queue, pool, output_tokens=100, expected_ms=1) == pytest.approx(
        math.log(mean / (mean - 1)) / GAMMA_PER_MS, abs=2
    )


@pinned
async def test_a_class_is_a_tenants_jobs_of_about_the_same_bound(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await run(queue, pool, clock, 9_000, tenant="ann", output_tokens=200)
    assert await boost_of(queue, pool, tenant="ann", output_tokens=250, expected_ms=300) == boost_ms(9_000)
    assert await boost_of(queue, pool, tenant="ann", output_tokens=20, expected_ms=300) == boost_ms(300)
    assert await boost_of(queue, pool, tenant="bob", output_tokens=200, expected_ms=300) == boost_ms(300)


@pinned
async def test_a_class_unseen_is_judged_by_its_size_and_its_tiers_answers(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    """100 in and 50 out took 4 s: 20 ms for each of 200 units of work (an output token is two)."""
    await run(queue, pool, clock, 4_000, Usage(100, 50), tenant="ann", output_tokens=1000)
    given = {"tenant": "bob", "input_tokens": 40, "expected_ms": 1}
    assert await boost_of(queue, pool, **given, output_tokens=4000) == boost_ms(20 * (40 + 2 * 50))
    assert await boost_of(queue, pool, **given, output_tokens=10) == boost_ms(20 * (40 + 2 * 10))
    assert await boost_of(queue, pool, **given, output_tokens=10, tier="batch") == boost_ms(1), "of another tier"


@pinned
async def test_what_failed_or_was_handed_back_teaches_nothing(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool)
    lease = await take_one(queue, pool)
    clock.advance(50)
    await queue.settle(pool, lease, "failed", status=400)
    assert await boost_of(queue, pool, expected_ms=700) == boost_ms(700)


@long_run
@pinned
async def test_a_class_forgets_what_was_long_ago(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    for _ in range(20):
        await run(queue, pool, clock, 100)
    for _ in range(200):
        await run(queue, pool, clock, 8_000)
    assert await boost_of(queue, pool) == pytest.approx(boost_ms(8_000), rel=0.02)


@long_run
@pinned
async def test_one_very_long_job_is_forgotten_soon(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await run(queue, pool, clock, 600_000)
    for _ in range(250):
        await run(queue, pool, clock, 2_000)
    assert await boost_of(queue, pool) == pytest.approx(boost_ms(2_000), rel=0.1)


@pinned
async def test_the_longest_service_leaves_numbers_finite(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    for took_ms in (1, 86_400_000, 1):
        await run(queue, pool, clock, took_ms)
    assert 0 <= await boost_of(queue, pool) <= 30_000


async def test_gamma_is_what_the_thermostat_set_unless_it_is_pinned(queue: Queue, pool: Pool) -> None:
    assert await boost_of(queue, pool, expected_ms=5_000) == math.floor(-math.log(1 - math.exp(-1)) / GAMMA_PER_MS)
    await queue.steer(pool, 2.0, "{}")
    assert await boost_of(queue, pool, expected_ms=500) == math.floor(-math.log(1 - math.exp(-1)) / 0.002)
    pinned = await queue.set_policy(pool, {"gamma": "0"}, by="ops")
    assert await boost_of(queue, pinned, expected_ms=500) == 0


@pytest.mark.parametrize("policy", [Policy(fairness="tokens", gamma=0)], indirect=True, ids=["tokens"])
@pytest.mark.parametrize("way", ["cancelled", "retried", "refused"])
async def test_an_attempt_without_a_report_is_charged_for_its_time(
    queue: Queue, pool: Pool, clock: ManualClock, client: Any, way: str
) -> None:
    """The tier's work takes 20 ms a unit, so that of 1,000 units charged, a job that ended after 2 s has used 100."""
    await run(queue, pool, clock, 4_000, Usage(100, 50), tenant="cho")
    await queue.submit(pool, spec("ann", input_tokens=1000))
    await queue.submit(pool, spec("ann", input_tokens=1000))
    await queue.submit(pool, spec("bob", input_tokens=1000))
    (lease,) = await take(queue, pool, 1)
    charged = await client.zscore(pool.key("ring", "default"), lease.tenant)
    clock.advance(2_000)
    if way == "cancelled":
        await queue.cancel(lease.id)
        await queue.release(pool, lease)
    elif way == "retried":
        await queue.retry(pool, lease, REFUSED, delay_ms=10_000)
    else:
        await queue.settle(pool, lease, "failed", status=400)
    assert charged - await client.zscore(pool.key("ring", "default"), lease.tenant) == 1000 * (1000 - 100)


@pytest.mark.parametrize("policy", [Policy(fairness="tokens", gamma=0)], indirect=True, ids=["tokens"])
@pytest.mark.parametrize(("fault", "units"), [(False, 500), (True, 40)])
async def test_whoever_ran_longer_than_it_said_pays_for_that_unless_the_backend_hung(
    queue: Queue, pool: Pool, clock: ManualClock, client: Any, fault: bool, units: int
) -> None:
    """A request need not say how long its answer may get: cancelled after 10 s, it has used 500 units, not 40."""
    await run(queue, pool, clock, 4_000, Usage(100, 50), tenant="cho")
    for tenant in ("ann", "ann", "bob"):
        await submit(queue, pool, tenant, input_tokens=40)
    (lease,) = await take(queue, pool, 1)
    before = await client.zscore(pool.key("ring", "default"), lease.tenant)
    clock.advance(10_000)
    await queue.retry(pool, lease, REFUSED, delay_ms=10_000, fault=fault)
    assert await client.zscore(pool.key("ring", "default"), lease.tenant) - before == 1000 * (units - 40)


@long_run
@pinned
async def test_many_tiny_jobs_do_not_make_a_tiers_work_look_slow(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    """What counts is all their time by all their work: what a start costs does not count as each token's price."""
    for _ in range(20):
        await run(queue, pool, clock, 150, Usage(1, 1), tenant="eve")
        await run(queue, pool, clock, 5_000, Usage(100, 450), tenant="cho", output_tokens=500)
    given = {"tenant": "bob", "input_tokens": 1000, "output_tokens": 0, "expected_ms": 1}
    assert await boost_of(queue, pool, **given) == pytest.approx(boost_ms(1000 * 5_150 / 1_003), rel=0.05)
