"""Fair turns: by weight, by tokens, with bounded credit, and without a gain for whoever comes and goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate

import pytest

from fairlane.clock import ManualClock
from fairlane.model import JobSpec, Lease, Limits, Policy, Usage
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import REFUSED, drain, finish, spec, submit, submit_all, take, take_one, tenants_of

pytestmark = pytest.mark.usefixtures("invariants")

both_modes = pytest.mark.parametrize(
    "policy", [Policy(), Policy(fairness="tokens")], indirect=True, ids=["requests", "tokens"]
)
EXPECTED_MS = JobSpec("", "", b"").expected_ms
by_tokens = pytest.mark.parametrize("policy", [Policy(fairness="tokens")], indirect=True, ids=["tokens"])


def leads(leases: Iterable[Lease], tokens: dict[str, int]) -> list[int]:
    """By how much ann is ahead of bob after each turn, when a turn of each counts `tokens`."""
    return list(accumulate(tokens[lease.tenant] * (1 if lease.tenant == "ann" else -1) for lease in leases))


@both_modes
async def test_equal_tenants_alternate_exactly(queue: Queue, pool: Pool) -> None:
    for tenant, n in (("ann", 9), ("bob", 5), ("cho", 3)):
        await submit(queue, pool, tenant, n=n, output_tokens=10)
    order = tenants_of(await drain(queue, pool))
    assert order == ["ann", "bob", "cho"] * 3 + ["ann", "bob"] * 2 + ["ann"] * 4


@both_modes
async def test_turns_follow_weights(queue: Queue, pool: Pool) -> None:
    await queue.set_limits(pool, "ann", Limits(weight=3))
    await queue.set_limits(pool, "bob", Limits(weight=0.5))
    for tenant in ("ann", "bob", "cho"):
        await submit(queue, pool, tenant, n=20, output_tokens=10)
    turns = Counter(tenants_of(await take(queue, pool, 27)))
    assert all(abs(turns[tenant] - fair) <= 1 for tenant, fair in {"ann": 18, "cho": 6, "bob": 3}.items())


async def test_a_heavy_user_does_not_hold_up_a_light_one(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "ann", n=60)
    await take(queue, pool, 10)
    for _ in range(5):
        await submit(queue, pool, "bob")
        assert "bob" in tenants_of(await take(queue, pool, 2))


@both_modes
async def test_credit_for_short_work_is_at_most_one_turn(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "bob", n=20, expected_ms=10_000_000, output_tokens=5)
    await submit(queue, pool, "ann", n=20, expected_ms=1, output_tokens=5)
    lead = leads(await take(queue, pool, 24), {"ann": 1, "bob": 1})
    assert lead[0] == 1, "it does get its head start"
    assert min(lead) >= -1
    assert max(lead) <= 2, "the one that it is ahead by, and the one it takes before bob's"


@both_modes
async def test_absence_earns_nothing(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool, "bob", output_tokens=10)
    (lease,) = await take(queue, pool, 1)
    clock.advance(EXPECTED_MS)  # as long as is expected of those who were never seen: no boost makes a difference
    await finish(queue, pool, [lease])
    await submit(queue, pool, "ann", n=30, output_tokens=10)
    await take(queue, pool, 20)
    await submit(queue, pool, "bob", n=10, output_tokens=10)
    await submit(queue, pool, "cho", n=10, output_tokens=10)
    assert Counter(tenants_of(await take(queue, pool, 9))) == {"ann": 3, "bob": 3, "cho": 3}


@both_modes
async def test_leaving_and_coming_back_at_each_pop_earns_nothing(queue: Queue, pool: Pool) -> None:
    others = [f"t{n}" for n in range(100)]
    await submit_all(queue, pool, [spec(other, output_tokens=10) for other in others for _ in range(2)])
    await submit(queue, pool, "sly", output_tokens=10)
    turns: Counter[str] = Counter()
    for _ in range(202):
        lease = await take_one(queue, pool)
        turns[lease.tenant] += 1
        if lease.tenant == "sly":
            await submit(queue, pool, "sly", output_tokens=10)
    assert turns["sly"] <= 1.2 * 202 / 101
    assert all(turns[other] == 2 for other in others)


async def test_coming_back_at_each_pop_earns_nothing_among_few(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "ann", n=12)
    turns: Counter[str] = Counter()
    for _ in range(12):
        await submit(queue, pool, "sly")
        (lease,) = await take(queue, pool)
        turns[lease.tenant] += 1
        await finish(queue, pool, [lease])
    assert abs(turns["sly"] - turns["ann"]) <= 1


@by_tokens
async def test_tokens_are_shared_out_when_that_is_what_counts(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "ann", n=6, input_tokens=400, output_tokens=300)
    await submit(queue, pool, "bob", n=40, input_tokens=40, output_tokens=30)
    cost = {"ann": 1000, "bob": 100}
    lead = leads(await take(queue, pool, 33), cost)
    assert max(map(abs, lead)) <= 2 * max(cost.values())


@by_tokens
async def test_weights_divide_tokens_as_well(queue: Queue, pool: Pool) -> None:
    await queue.set_limits(pool, "ann", Limits(weight=2))
    await submit(queue, pool, "ann", n=10, output_tokens=500)
    await submit(queue, pool, "bob", n=40, output_tokens=50)
    turns = Counter(tenants_of(await take(queue, pool, 26)))
    assert turns["ann"] * 500 / (turns["bob"] * 50) == pytest.approx(2, rel=0.3)


@by_tokens
async def test_what_was_really_used_is_what_counts_in_the_end(queue: Queue, pool: Pool) -> None:
    for tenant in ("ann", "bob"):
        await submit(queue, pool, tenant, n=40, output_tokens=50)
    used = {"ann": Usage(0, 500), "bob": Usage(0, 50)}
    done: list[Lease] = []
    for _ in range(33):
        lease = await take_one(queue, pool)
        await queue.settle(pool, lease, "succeeded", usage=used[lease.tenant])
        done.append(lease)
    lead = leads(done, {"ann": 1000, "bob": 100})
    assert max(map(abs, lead)) <= 2 * 1000 + 900


@by_tokens
async def test_a_debt_is_kept_while_its_tenant_is_away(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "ann", output_tokens=50)
    await submit(queue, pool, "bob", n=20, output_tokens=50)
    (first,) = [lease for lease in await take(queue, pool, 2) if lease.tenant == "ann"]
    await queue.settle(pool, first, "succeeded", usage=Usage(0, 500))
    await submit(queue, pool, "ann", n=5, output_tokens=50)
    assert tenants_of(await take(queue, pool, 8)) == ["bob"] * 8
    assert Counter(tenants_of(await take(queue, pool, 6))) == {"ann": 3, "bob": 3}


@by_tokens
async def test_an_estimate_that_was_too_high_is_given_back(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "ann", n=10, output_tokens=500)
    await submit(queue, pool, "bob", n=20, output_tokens=50)
    done: list[Lease] = []
    for _ in range(16):
        lease = await take_one(queue, pool)
        await queue.settle(pool, lease, "succeeded", usage=Usage(0, 50))
        done.append(lease)
    assert abs(Counter(tenants_of(done))["ann"] - 8) <= 1


async def test_usage_changes_no_turn_when_requests_count(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "ann", n=4)
    await submit(queue, pool, "bob", n=4)
    order: list[str] = []
    for _ in range(8):
        lease = await take_one(queue, pool)
        await queue.settle(pool, lease, "succeeded", usage=Usage(10**6, 10**6))
        order.append(lease.tenant)
    assert order == ["ann", "bob"] * 4


@by_tokens
async def test_work_of_unknown_size_takes_turns_too(queue: Queue, pool: Pool) -> None:
    for tenant in ("ann", "bob"):
        await submit(queue, pool, tenant, n=6, input_tokens=0, output_tokens=0)
    assert Counter(tenants_of(await take(queue, pool, 6))) == {"ann": 3, "bob": 3}


@by_tokens
async def test_what_a_failed_attempt_used_counts_too(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "ann", n=5, output_tokens=50)
    await submit(queue, pool, "bob", n=20, output_tokens=50)
    (first,) = [lease for lease in await take(queue, pool, 2) if lease.tenant == "ann"]
    await queue.retry(pool, first, REFUSED, delay_ms=0, usage=Usage(0, 500))
    assert tenants_of(await take(queue, pool, 8)) == ["bob"] * 8


async def test_a_head_start_is_not_passed_on_to_the_job_behind(queue: Queue, pool: Pool) -> None:
    (short,) = await submit(queue, pool, "zoe", expected_ms=1)
    for tenant in ("zoe", "bob"):
        await submit(queue, pool, tenant, n=4, expected_ms=10_000_000)
    await queue.cancel(short)
    assert tenants_of(await take(queue, pool, 6)) == ["bob", "zoe"] * 3
