"""Limits: whoever may not run is parked, is put back when it may, and nobody else notices."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict, replace

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import IllegalTransition, InvalidRequest
from fairlane.model import Limits, Policy, Usage
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import (
    REFUSED,
    finish,
    ids_of,
    spec,
    state_of,
    submit,
    submit_all,
    take,
    tenants_of,
)

pytestmark = pytest.mark.usefixtures("invariants")

NO_LIMITS = Limits()


async def test_no_tenant_has_more_in_flight_than_it_may(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await queue.set_limits(pool, "ann", Limits(max_inflight=2))
    await submit(queue, pool, "ann", n=6)
    await submit(queue, pool, "ann", "flex", n=3)
    await submit(queue, pool, "bob", n=2)
    first, second, *_ = [lease for lease in await take(queue, pool, 20) if lease.tenant == "ann"]
    assert await take(queue, pool, 20) == []
    await finish(queue, pool, [first])
    (third,) = await take(queue, pool, 20)
    await queue.cancel(second.id)
    assert await take(queue, pool, 20) == []
    await queue.release(pool, second)
    (fourth,) = await take(queue, pool, 20)
    await queue.retry(pool, third, REFUSED, delay_ms=1000)
    (fifth,) = await take(queue, pool, 20)
    clock.advance(30_000)
    await queue.sweep(pool)
    again = [lease.id for lease in await take(queue, pool, 20) if lease.tenant == "ann"]
    assert again == [third.id, fourth.id]
    assert await state_of(queue, fifth.id) == "queued"


async def test_none_in_flight_means_none(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "ann", n=3)
    await queue.set_limits(pool, "ann", Limits(max_inflight=0))
    assert await take(queue, pool, 9) == []
    await queue.set_limits(pool, "ann", Limits(max_inflight=1))
    assert len(await take(queue, pool, 9)) == 1
    await queue.set_limits(pool, "ann", NO_LIMITS)
    assert len(await take(queue, pool, 9)) == 2


async def test_a_lower_limit_holds_from_the_next_turn_on(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "ann", n=6)
    leases = await take(queue, pool, 3)
    await queue.set_limits(pool, "ann", Limits(max_inflight=2))
    await finish(queue, pool, leases[:1])
    assert await take(queue, pool, 9) == []
    await finish(queue, pool, leases[1:])
    assert len(await take(queue, pool, 9)) == 2


async def test_a_request_rate_allows_five_seconds_at_once_and_then_its_pace(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    await queue.set_limits(pool, "ann", Limits(requests_per_minute=60))
    await submit(queue, pool, "ann", n=20)
    assert len(await take(queue, pool, 20)) == 5
    for _ in range(3):
        clock.advance(1000)
        await queue.sweep(pool)
        assert len(await take(queue, pool, 20)) == 1
    clock.advance(60_000)
    await queue.sweep(pool)
    assert len([lease for lease in await take(queue, pool, 20) if lease.attempt == 1]) <= 5


async def test_a_slow_rate_allows_one_at_a_time(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await queue.set_limits(pool, "ann", Limits(requests_per_minute=2))
    await submit(queue, pool, "ann", n=3)
    await finish(queue, pool, await take(queue, pool, 9))
    clock.advance(29_999)
    await queue.sweep(pool)
    assert await take(queue, pool, 9) == []
    clock.advance(1)
    await queue.sweep(pool)
    assert len(await take(queue, pool, 9)) == 1


async def test_a_token_rate_counts_what_was_really_used(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await queue.set_limits(pool, "ann", Limits(tokens_per_minute=6000))
    await submit(queue, pool, "ann", n=20, input_tokens=100, output_tokens=100)
    leases = await take(queue, pool, 20)
    assert len(leases) == 3, "500 tokens are five seconds' worth; the job that crosses that line still goes"
    await queue.settle(pool, leases[0], "succeeded", usage=Usage(100, 900))
    clock.advance(1000)
    await queue.sweep(pool)
    assert await take(queue, pool, 20) == []
    clock.advance(8000)
    await queue.sweep(pool)
    assert len(await take(queue, pool, 20)) == 1
    await queue.settle(pool, leases[1], "succeeded", usage=Usage(0, 0))
    assert len(await take(queue, pool, 20)) == 1


async def test_a_release_gives_back_what_it_took_of_a_rate(queue: Queue, pool: Pool) -> None:
    await queue.set_limits(pool, "ann", Limits(requests_per_minute=60, tokens_per_minute=6000))
    await submit(queue, pool, "ann", n=20, input_tokens=50)
    leases = await take(queue, pool, 20)
    assert len(leases) == 5
    for lease in leases:
        await queue.release(pool, lease)
    assert ids_of(await take(queue, pool, 20)) == ids_of(leases)


async def test_a_rate_that_was_lifted_holds_nobody(queue: Queue, pool: Pool) -> None:
    await queue.set_limits(pool, "ann", Limits(requests_per_minute=60))
    await submit(queue, pool, "ann", n=20)
    await take(queue, pool, 20)
    await queue.set_limits(pool, "ann", NO_LIMITS)
    assert len(await take(queue, pool, 20)) == 15


async def test_weights_may_change_while_tenants_wait(queue: Queue, pool: Pool) -> None:
    for tenant in ("ann", "bob"):
        await submit(queue, pool, tenant, n=40)
    assert Counter(tenants_of(await take(queue, pool, 8))) == {"ann": 4, "bob": 4}
    await queue.set_limits(pool, "ann", Limits(weight=3))
    assert abs(Counter(tenants_of(await take(queue, pool, 16)))["ann"] - 12) <= 1
    await queue.set_limits(pool, "ann", Limits(weight=0.5))
    assert abs(Counter(tenants_of(await take(queue, pool, 12)))["ann"] - 4) <= 1


@pytest.mark.parametrize("policy", [Policy(gamma=0.01)], indirect=True, ids=["much-credit"])
async def test_changing_a_weight_to_and_fro_earns_nothing(queue: Queue, pool: Pool) -> None:
    for tenant in ("ann", "bob"):
        await submit(queue, pool, tenant, n=20)
    order: list[str] = []
    for _ in range(20):
        for weight in (0.01, 1000, 1):
            await queue.set_limits(pool, "ann", Limits(weight=weight))
        order += tenants_of(await take(queue, pool))
    assert abs(Counter(order)["ann"] - 10) <= 1


async def test_limits_are_kept_as_they_were_given(queue: Queue, pool: Pool) -> None:
    for limits in (Limits(0.25, 3, 60, 10**9, 0), Limits(1000), NO_LIMITS):
        await queue.set_limits(pool, "ann", limits)
        assert await queue.inspect.limits(pool, "ann") == limits
    assert await queue.inspect.limits(pool, "nobody") == NO_LIMITS


@pytest.mark.parametrize(
    "limits",
    [
        Limits(weight=0),
        Limits(weight=1001),
        Limits(weight=float("nan")),
        Limits(max_inflight=-1),
        Limits(requests_per_minute=0),
        Limits(tokens_per_minute=0),
        Limits(max_waiting=10**10),
    ],
)
async def test_limits_that_make_no_sense_are_refused(queue: Queue, pool: Pool, limits: Limits) -> None:
    with pytest.raises(InvalidRequest):
        await queue.set_limits(pool, "ann", limits)


async def test_a_held_tenant_goes_unnoticed_by_the_others(queue: Queue, pool: Pool) -> None:
    """Case 9: 100 others, while one is beyond its limit, one beyond its rate and one is paused."""
    await queue.set_limits(pool, "over", Limits(max_inflight=1))
    await queue.set_limits(pool, "fast", Limits(requests_per_minute=1))
    await queue.pause(pool, tenant="off")
    held = ["over", "fast", "off"]
    others = [f"t{n}" for n in range(100)]
    await submit_all(queue, pool, [spec(tenant) for tenant in held for _ in range(30)])
    await submit_all(queue, pool, [spec(tenant) for tenant in others for _ in range(2)])
    turns = Counter(tenants_of([lease for _ in range(3) for lease in await take(queue, pool, 67)]))
    assert (turns["over"], turns["fast"], turns["off"]) == (1, 1, 0)
    explained = await queue.inspect.explain((await submit(queue, pool, "over"))[0])
    assert (explained.rank, explained.held_by) == (None, "inflight")
    assert explained.tenants <= len(others), "no pop passes over one that is held"
    assert sum(turns[other] for other in others) == 199


async def test_a_new_weight_keeps_the_credit_of_the_work_that_waits(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "ann", n=5, expected_ms=1)
    await submit(queue, pool, "bob", n=5, expected_ms=10_000_000)
    await queue.set_limits(pool, "ann", Limits(weight=0.01))
    turns = Counter(tenants_of(await take(queue, pool, 5)))
    assert turns == {"ann": 2, "bob": 3}, "her head start is of one turn, of a hundred of his"


@pytest.mark.parametrize("known", [NO_LIMITS, Limits(2, 50, 6000, 10**9, 0), Limits(0.1)])
async def test_a_change_from_what_is_known_is_made_once_and_only_from_there(
    queue: Queue, pool: Pool, known: Limits
) -> None:
    """However many make it at once. (The defaults need not be set to be known.)"""
    if known != NO_LIMITS:
        await queue.set_limits(pool, "ann", known)
    known = await queue.inspect.limits(pool, "ann")
    wanted = [replace(known, **{name: 7 + n}) for n, name in enumerate(["weight", *asdict(known)])]
    made = [queue.set_limits(pool, "ann", limits, expected=known) for limits in wanted]
    done = await asyncio.gather(*made, return_exceptions=True)
    assert sum(one is None for one in done) == 1
    assert [type(one) for one in done if one] == [IllegalTransition] * (len(wanted) - 1)
    assert await queue.inspect.limits(pool, "ann") == wanted[done.index(None)]
    for name in asdict(known):
        is_ = await queue.inspect.limits(pool, "ann")
        with pytest.raises(IllegalTransition, match="Somebody else"):
            await queue.set_limits(pool, "ann", NO_LIMITS, expected=replace(is_, **{name: 999}))
