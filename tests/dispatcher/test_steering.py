"""Steering: what the observer finds out about a whole pool, from what the queue holds and what came out of it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from dispatcher import steering
from dispatcher.observer import Observer
from dispatcher.policy.lead import wanted_ms
from dispatcher.policy.thermostat import Thermostat
from dispatcher.steering import Steering
from fairlane.clock import ManualClock
from fairlane.errors import StoreUnavailable
from fairlane.metrics import PoolReading, pool_families
from fairlane.model import Lease, Limits, Policy, TierGate, Usage
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import NOTHING_COUNTED, finish, submit, take
from tests.dispatcher.pages import Page
from tests.dispatcher.scripted import until
from tests.servers import ValkeyServer

SLOTS = 8
EVERY_MS = 5_000
_numbers = count()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def queue(valkey: ValkeyServer, clock: ManualClock) -> AsyncIterator[Queue]:
    made = Queue(connect(valkey.url), namespace=f"s{os.getpid()}x{next(_numbers)}", clock=clock)
    await made.check()
    yield made
    await made.close()


@pytest.fixture
def policy(request: pytest.FixtureRequest) -> Policy:
    return getattr(request, "param", Policy(gamma=None))


@pytest.fixture
async def pool(queue: Queue, policy: Policy) -> Pool:
    made = await queue.pools.open("llama", policy)
    await queue.set_backend(made, "b1", "add")
    gates = {tier: TierGate(1000, 1000) for tier in policy.tiers}
    await queue.observe(made, "b1", gates, counted=NOTHING_COUNTED, seen=json.dumps({"slots": SLOTS}))
    return made


async def steer(queue: Queue, pool: Pool) -> dict[str, Any]:
    return json.loads((await queue.inspect.load(pool)).steer)


async def gamma_now(queue: Queue, pool: Pool) -> bytes:
    client: Any = queue._store.client
    return await client.hget(pool.key("pool"), "gamma_now")


async def worked(queue: Queue, pool: Pool, clock: ManualClock, jobs: int, ms: int = 100) -> None:
    """Jobs of which each took `ms` in the backend."""
    await submit(queue, pool, n=jobs)
    for start in range(0, jobs, 100):
        leases = await take(queue, pool, min(100, jobs - start))
        clock.advance(ms)
        await finish(queue, pool, leases)


async def finish_of(queue: Queue, pool: Pool, leases: Iterable[Lease], **tenants: int) -> None:
    """Finishes so many of each tenant's leases."""
    for lease in leases:
        if tenants.get(lease.tenant, 0):
            tenants[lease.tenant] -= 1
            await finish(queue, pool, [lease])
    assert not any(tenants.values())


async def test_gamma_follows_the_jobs_that_ended(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    here = Steering(queue, pool, 20)
    await worked(queue, pool, clock, 300)
    await here.round()
    seen = await steer(queue, pool)
    assert seen["thermostat"]["samples"] == 300
    assert seen["thermostat"]["why"] == "steered"
    assert seen["thermostat"]["least"] <= seen["gamma"] <= seen["thermostat"]["most"]
    assert float(await gamma_now(queue, pool)) == seen["gamma"]
    await here.round()
    assert (await steer(queue, pool))["thermostat"]["samples"] == 300  # none counted twice


@pytest.mark.parametrize("policy", [Policy(gamma=0.5)], indirect=True)
async def test_beside_a_pinned_gamma_it_shows_what_it_would_do(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await worked(queue, pool, clock, 300)
    await Steering(queue, pool, 20).round()
    seen = await steer(queue, pool)
    assert seen["gamma"] > 0
    assert seen["gamma"] != 0.5
    assert await gamma_now(queue, pool) == b""
    assert _metrics(PoolReading("llama", await queue.inspect.overview(pool), 0.5, 0))["fairlane_gamma"] == {(): 0.5}


async def test_a_gamma_that_is_unpinned_while_it_runs_is_the_thermostat_s_at_the_next_round(
    queue: Queue, pool: Pool
) -> None:
    await queue.set_policy(pool, {"gamma": 0.5}, by="ann")
    here = Steering(queue, pool, 20)
    await here.round()
    assert await gamma_now(queue, pool) == b""
    await queue.set_policy(pool, {"gamma": None}, by="ann")
    await here.round()
    assert float(await gamma_now(queue, pool)) > 0


@pytest.mark.parametrize("policy", [Policy(gamma=1.0)], indirect=True)
async def test_with_long_answers_the_lead_rises_as_time_goes_on_whoever_observes(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    before_ms = wanted_ms(len(pool.policy.tiers), 1.0)
    await worked(queue, pool, clock, 20, ms=60_000)
    for n in range(1, 4):
        await Steering(queue, pool, 20).round()
        assert (await steer(queue, pool))["lead_ms"] == round(before_ms + n * EVERY_MS)


async def test_a_new_observer_goes_on_from_the_last_one_s_gamma_and_wish(queue: Queue, pool: Pool) -> None:
    left = {
        "thermostat": {"gamma": 0.123, "least": 0.1, "most": 3.0, "tail": 1.5, "samples": 900, "why": "steered"},
        "scaling": {"desired": 5, "freeness": 0.5, "pressure": "none", "since_ms": ManualClock().now_ms()},
    }
    await queue.steer(pool, 0.123, json.dumps(left))
    await Steering(queue, pool, 20).round()
    seen = await steer(queue, pool)
    assert seen["gamma"] == 0.123  # a lull is no evidence
    assert seen["replicas"] == 5


@pytest.mark.parametrize("left", ['{"thermostat": 7}', '{"thermostat": {"of": "another version"}}'])
async def test_what_it_does_not_know_is_as_nothing(queue: Queue, pool: Pool, left: str) -> None:
    await queue.steer(pool, None, left)
    await Steering(queue, pool, 20).round()
    assert Thermostat(**(await steer(queue, pool))["thermostat"]).why == "start"


async def test_waiting_tenants_that_got_the_same_are_served_fairly(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    await queue.set_limits(pool, "bob", Limits(weight=2.0))
    here = Steering(queue, pool, 20)
    for tenant in ("ann", "bob", "cho"):
        await submit(queue, pool, tenant, n=40)
    await here.round()
    for _ in range(3):
        leases = await take(queue, pool, 16)
        clock.advance(EVERY_MS)
        await finish(queue, pool, leases)
        await here.round()
    seen = await steer(queue, pool)
    assert seen["compared"] == 3
    assert seen["jain"] == pytest.approx(1, abs=0.01)
    assert seen["gap"] <= 1


async def test_a_tenant_that_waits_and_gets_nothing_is_seen(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    here = Steering(queue, pool, 20)
    for tenant in ("ann", "bob"):
        await submit(queue, pool, tenant, n=40)
    await here.round()
    leases = await take(queue, pool, 40)
    clock.advance(EVERY_MS)
    await finish_of(queue, pool, leases, ann=12)
    await here.round()
    seen = await steer(queue, pool)
    assert (seen["jain"], seen["gap"], seen["compared"]) == (0.5, 12, 2)
    clock.advance(61_000)
    await here.round()
    await here.round()
    assert (await steer(queue, pool))["gap"] == 0  # it was more than a minute ago


async def test_one_that_asks_for_less_than_its_share_is_owed_nothing(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    """Ann floods; Bob has one job at a time, and happens to have one waiting whenever somebody looks."""
    here = Steering(queue, pool, 20)
    await submit(queue, pool, "ann", n=60)
    await submit(queue, pool, "bob")
    await here.round()
    for _ in range(3):
        leases = await take(queue, pool, 11)
        clock.advance(EVERY_MS - 100)
        await finish(queue, pool, leases)
        clock.advance(90)
        await submit(queue, pool, "bob")
        clock.advance(10)
        await here.round()
    seen = await steer(queue, pool)
    assert (seen["jain"], seen["gap"], seen["compared"]) == (1, 0, 0)


@pytest.mark.parametrize("policy", [Policy(fairness="tokens")], indirect=True)
async def test_by_tokens_a_job_counts_for_what_it_used(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    here = Steering(queue, pool, 20)
    for tenant in ("ann", "bob"):
        await submit(queue, pool, tenant, n=40)
    await here.round()
    leases = await take(queue, pool, 2)
    clock.advance(EVERY_MS)
    for lease in leases:
        usage = Usage(100, 50) if lease.tenant == "ann" else Usage(10, 5)
        await queue.settle(pool, lease, "succeeded", status=200, usage=usage)
    await here.round()
    assert (await steer(queue, pool))["gap"] == 180


async def test_tenants_are_named_up_to_a_number_and_the_others_are_one(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    """Tenants that come and go never add series without bound, whatever they are called."""
    here = Steering(queue, pool, 5)
    await here.round()
    for generation in range(3):
        for tenant in range(30):
            await submit(queue, pool, f"t{generation}-{tenant}")
        await submit(queue, pool, "busy", n=10)
        await submit(queue, pool, "other", n=10)
        leases = await take(queue, pool, 50)
        clock.advance(EVERY_MS)
        await finish(queue, pool, leases)
        await here.round()
        reading = PoolReading("llama", await queue.inspect.overview(pool), None, 0)
        rates = _metrics(reading)["fairlane_tenant_jobs_per_second"]
        assert len(rates) == 6
        assert rates["busy",] == pytest.approx(2, rel=0.01)
        assert sum(rates.values()) == pytest.approx(10, rel=0.01)
        assert len((await queue.inspect.load(pool)).steer) < 8192


async def test_the_longest_names_fit(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    here = Steering(queue, pool, 40)
    await here.round()
    for tenant in range(41):
        await submit(queue, pool, f"{tenant:0128d}")
    clock.advance(EVERY_MS)
    await finish(queue, pool, await take(queue, pool, 41))
    await here.round()
    assert len((await steer(queue, pool))["tenants"]) == 41


async def test_when_more_ends_than_it_reads_it_compares_nothing_and_catches_up(
    queue: Queue, pool: Pool, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steering, "PAGE_MOST", 3)
    monkeypatch.setattr(steering, "PAGES_MOST", 2)
    here = Steering(queue, pool, 20)
    await here.round()
    await worked(queue, pool, clock, 20)
    await here.round()
    assert (await steer(queue, pool))["tenants"] == [["other", 0]]
    clock.advance(10**9)  # the clock of the events is Redis's own
    for _ in range(4):
        await here.round()
    await worked(queue, pool, clock, 2, EVERY_MS)
    await here.round()
    assert (await steer(queue, pool))["tenants"][0][0] == "ann"


async def test_a_load_that_lasts_asks_for_more_backends(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    here = Steering(queue, pool, 20)
    await submit(queue, pool, n=50)
    await take(queue, pool, SLOTS)
    for _ in range(7):
        await here.round()
        clock.advance(EVERY_MS)
    seen = await steer(queue, pool)
    assert (seen["replicas"], seen["rho"]) == (2, 1)
    assert seen["freeness"] < -0.5
    reading = PoolReading("llama", await queue.inspect.overview(pool), None, 0)
    shown = _metrics(reading)
    assert shown["fairlane_pool_desired_replicas"] == {(): 2}
    assert shown["fairlane_gamma"] == {(): seen["gamma"]}


async def test_what_a_backend_said_before_it_went_down_is_not_shown(queue: Queue, pool: Pool) -> None:
    said = {"waiting": 2, "kv": 0.5, "token_ms": 9.0, "slots": SLOTS}
    await queue.observe(pool, "b1", {}, counted=NOTHING_COUNTED, seen=json.dumps(said))
    names = ("fairlane_backend_waiting", "fairlane_backend_kv_ratio", "fairlane_backend_token_seconds")
    up = _metrics(PoolReading("llama", await queue.inspect.overview(pool), None, 0))
    assert [up[name]["b1",] for name in names] == pytest.approx([2, 0.5, 0.009])
    await queue.set_backend(pool, "b1", "down")
    down = _metrics(PoolReading("llama", await queue.inspect.overview(pool), None, 0))
    assert [down[name] for name in names] == [{}, {}, {}]
    assert down["fairlane_backend_up"] == {("b1",): 0}


async def test_an_ejected_backend_is_no_capacity(queue: Queue, pool: Pool) -> None:
    await queue.set_backend(pool, "b2", "add")
    health = {"slots": SLOTS, "health": {"until_ms": 10**15, "seen_ms": 1}}
    await queue.observe(pool, "b2", {}, counted=NOTHING_COUNTED, seen=json.dumps(health))
    await submit(queue, pool, n=SLOTS)
    await take(queue, pool, SLOTS)
    await Steering(queue, pool, 20).round()
    overview = await queue.inspect.overview(pool)
    live = {backend.name: backend.counts.live for backend in overview.backends}
    assert (await steer(queue, pool))["rho"] == live["b1"] / SLOTS
    shown = _metrics(PoolReading("llama", overview, None, 0))
    assert shown["fairlane_backend_ejected"] == {("b1",): 0, ("b2",): 1}


async def test_it_goes_on_after_errors(queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [StoreUnavailable(), RuntimeError("a bug")]
    read = queue.inspect.lines

    async def sometimes(*args: Any) -> Any:
        if errors:
            raise errors.pop(0)
        return await read(*args)

    monkeypatch.setattr(queue.inspect, "lines", sometimes)
    monkeypatch.setattr(steering, "EVERY_S", 0.001)
    task = asyncio.create_task(Steering(queue, pool, 20).run())
    try:
        await until(lambda: _is_steered(queue, pool))
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_the_observer_steers(queue: Queue, pool: Pool) -> None:
    async with Page().client() as client:
        task = asyncio.create_task(Observer(queue, pool, client, 0.02).run())
        try:
            await until(lambda: _is_steered(queue, pool))
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _is_steered(queue: Queue, pool: Pool) -> bool:
    return (await queue.inspect.overview(pool)).steer != "{}"


def _metrics(reading: PoolReading) -> dict[str, dict[tuple[str, ...], float]]:
    """Each family's values by the labels after the pool."""
    return {
        family.name: {tuple(sample.labels.values())[1:]: sample.value for sample in family.samples}
        for family in pool_families([reading])
    }
