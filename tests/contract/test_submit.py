"""Taking jobs in: each on its own, in order, once, and only as many as may wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import (
    FairlaneError,
    IdempotencyMismatch,
    InvalidRequest,
    PayloadTooLarge,
    QueueFull,
    StoreUnavailable,
    UnknownTier,
)
from fairlane.model import JobSpec, Limits, Policy, Submitted
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import (
    another_process,
    finish,
    ids_of,
    spec,
    submit,
    submit_all,
    take,
    take_one,
)

pytestmark = pytest.mark.usefixtures("invariants")

KILOBYTE = 1 << 10
MEGABYTE = 1 << 20
BAD = [
    (spec("no spaces"), InvalidRequest),
    (spec(""), InvalidRequest),
    (spec("a" * 129), InvalidRequest),
    (spec(tier="gold"), UnknownTier),
    (spec(body=b"x" * (8 * MEGABYTE + 1)), PayloadTooLarge),
    (spec(head=b"x" * (KILOBYTE * 64 + 1)), PayloadTooLarge),
    (spec(idempotency_key=""), InvalidRequest),
    (spec(idempotency_key="k" * 513), InvalidRequest),
    (spec(idempotency_key="\udc80"), InvalidRequest),
    (spec(batch_id=""), InvalidRequest),
    (spec(delay_ms=1.5), InvalidRequest),
    (spec(max_attempts=True), InvalidRequest),
    (spec(max_attempts=0), InvalidRequest),
    (spec(max_attempts=101), InvalidRequest),
    (spec(delay_ms=-1), InvalidRequest),
    (spec(deadline_ms=-1), InvalidRequest),
    (spec(expected_ms=-1), InvalidRequest),
    (spec(delay_ms=10**15), InvalidRequest),
    (spec(input_tokens=-1), InvalidRequest),
    (spec(output_tokens=10**9), InvalidRequest),
]


async def test_a_submitted_job_is_there_with_all_that_it_came_with(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    body = bytes(range(256))
    given = JobSpec("ann@example.org", "flex", body, head=b'{"model":"\xc3\xbc"}', max_attempts=7, batch_id="batch_1")
    answer = await queue.submit(pool, given)
    job = await queue.inspect.job(answer.id)
    assert answer.created
    assert (job.tenant, job.tier, job.body, job.head) == (given.tenant, given.tier, given.body, given.head)
    assert (job.pool, job.state, job.max_attempts, job.batch_id) == ("llama", "queued", 7, "batch_1")
    assert (job.created_at_ms, job.attempts, job.result, job.error, job.dead) == (clock.now_ms(), (), None, None, False)
    assert (job.not_before_ms, job.deadline_at_ms, job.started_at_ms, job.finished_at_ms) == (None, None, None, None)


async def test_many_are_taken_in_each_on_its_own_and_answered_in_order(queue: Queue, pool: Pool) -> None:
    specs = [spec(n_bad_job) for n_bad_job in ("ann", "bob")]
    mixed = [specs[0], *(bad for bad, _ in BAD), specs[1]]
    first, *errors, last = await queue.submit_many(pool, mixed)
    assert [type(error) for error in errors] == [kind for _, kind in BAD]
    assert isinstance(first, Submitted)
    assert isinstance(last, Submitted)
    assert [(await queue.inspect.job(answer.id)).tenant for answer in (first, last)] == ["ann", "bob"]
    assert (await queue.inspect.overview(pool)).tiers[1].depth == 2


async def test_a_bad_job_leaves_nothing_behind(queue: Queue, pool: Pool) -> None:
    for bad, kind in BAD:
        with pytest.raises(kind):
            await queue.submit(pool, bad)
    assert [tier.depth for tier in (await queue.inspect.overview(pool)).tiers] == [0, 0, 0, 0]


async def test_nothing_submitted_is_nothing_answered(queue: Queue, pool: Pool) -> None:
    assert await queue.submit_many(pool, []) == []


async def test_a_job_of_exactly_the_limit_is_taken(queue: Queue, pool: Pool) -> None:
    small = another_process(queue, max_body_bytes=1000)
    await submit(small, pool, body=b"x" * 1000, head=b"y" * 64 * KILOBYTE)
    with pytest.raises(PayloadTooLarge):
        await submit(small, pool, body=b"x" * 1001)
    lease = await take_one(queue, pool)
    assert (lease.body, lease.head) == (b"x" * 1000, b"y" * 64 * KILOBYTE)


async def test_first_in_is_first_out_within_a_tenant_and_tier(queue: Queue, pool: Pool) -> None:
    """Case 3: all of the same millisecond, with equal deadlines and equal sizes."""
    ids = await submit_all(queue, pool, [spec(deadline_ms=1000, body=b"%d" % n) for n in range(30)])
    leases = [lease for n in (1, 7, 22) for lease in await take(queue, pool, n)]
    assert ids_of(leases) == ids
    assert [lease.body for lease in leases] == [b"%d" % n for n in range(30)]


async def test_more_than_a_hundred_jobs_keep_their_order(queue: Queue, pool: Pool) -> None:
    specs = [spec((n % 2 and "bob") or "ann", body=b"%d" % n) for n in range(230)]
    specs[150] = spec(tier="gold")
    answers = await queue.submit_many(pool, specs)
    assert [n for n, answer in enumerate(answers) if isinstance(answer, FairlaneError)] == [150]
    taken = [lease for _ in range(3) for lease in await take(queue, pool, 100)]
    for tenant, odd in (("ann", 0), ("bob", 1)):
        bodies = [int(lease.body) for lease in taken if lease.tenant == tenant]
        assert bodies == [n for n in range(230) if n % 2 == odd and n != 150]


async def test_large_jobs_arrive_whole_and_in_order_a_few_at_a_time(queue: Queue, pool: Pool) -> None:
    ids = await submit_all(queue, pool, [spec(body=b"%d" % n * 2 * MEGABYTE) for n in range(5)])
    calls = [await take(queue, pool, 5) for _ in range(4)]
    leases = [lease for call in calls for lease in call]
    assert ids_of(leases) == ids
    assert [(lease.body[:1], len(lease.body)) for lease in leases] == [(b"%d" % n, 2 * MEGABYTE) for n in range(5)]
    assert len(calls[0]) < 5, "one reply is bounded"


async def test_the_same_key_and_body_is_the_first_job_in_whatever_state(queue: Queue, pool: Pool) -> None:
    asked = spec(idempotency_key="order 1 \u2713", body=b"a")
    first = await queue.submit(pool, asked)
    assert first.created
    assert await queue.submit(pool, asked) == Submitted(first.id, created=False)
    await finish(queue, pool, [await take_one(queue, pool)])
    assert await queue.submit(pool, asked) == Submitted(first.id, created=False)
    assert await take(queue, pool) == []


@pytest.mark.parametrize("change", [{"body": b"b"}, {"head": b"b"}, {"tier": "flex"}])
async def test_the_same_key_with_another_request_is_refused(
    queue: Queue, pool: Pool, change: dict[str, object]
) -> None:
    asked = spec(idempotency_key="k", body=b"a")
    await queue.submit(pool, asked)
    with pytest.raises(IdempotencyMismatch):
        await queue.submit(pool, replace(asked, **change))  # pyright: ignore[reportArgumentType]
    assert len(await take(queue, pool, 10)) == 1


async def test_a_key_counts_within_its_tenant_and_pool(queue: Queue, pool: Pool) -> None:
    other = await queue.pools.open("mistral", Policy())
    places = [(pool, "ann"), (pool, "bob"), (other, "ann")]
    answers = [await queue.submit(where, spec(who, idempotency_key="k", body=who.encode())) for where, who in places]
    assert all(answer.created for answer in answers)
    assert len({answer.id for answer in answers}) == 3


async def test_a_key_counts_within_one_call_as_well(queue: Queue, pool: Pool) -> None:
    one, two = spec(idempotency_key="k", body=b"1"), spec(idempotency_key="k", body=b"2")
    first, again, other = await queue.submit_many(pool, [one, one, two])
    assert isinstance(first, Submitted)
    assert again == Submitted(first.id, created=False)
    assert isinstance(other, IdempotencyMismatch)


@pytest.mark.parametrize("policy", [Policy(max_waiting_tenant=2)], indirect=True)
async def test_a_tenant_may_let_only_so_many_wait(queue: Queue, pool: Pool) -> None:
    first = await queue.submit(pool, spec(idempotency_key="k"))
    await submit(queue, pool, tier="flex", delay_ms=60_000)
    with pytest.raises(QueueFull) as refused:
        await submit(queue, pool)
    assert refused.value.retryable
    assert refused.value.retry_after
    assert (await queue.submit(pool, spec(idempotency_key="k"))).id == first.id, "a repeat is answered even then"
    await submit(queue, pool, "bob")
    lease = (await take(queue, pool))[0]
    assert lease.id == first.id
    await submit(queue, pool)
    with pytest.raises(QueueFull):
        await queue.submit(pool, spec())


async def test_a_tenants_own_limit_goes_before_the_pools(queue: Queue, pool: Pool) -> None:
    for most in (0, 3):
        await queue.set_limits(pool, "ann", Limits(max_waiting=most))
        answers = await queue.submit_many(pool, [spec()] * 5)
        kinds = [type(answer) for answer in answers]
        assert kinds == [Submitted] * most + [QueueFull] * (5 - most)


@pytest.mark.parametrize("policy", [Policy(max_waiting_pool=3)], indirect=True)
async def test_a_pool_lets_only_so_many_wait(queue: Queue, pool: Pool) -> None:
    answers = await queue.submit_many(pool, [spec(f"t{n}") for n in range(5)])
    assert [type(answer) for answer in answers] == [Submitted] * 3 + [QueueFull] * 2
    await take(queue, pool, 2)
    answers = await queue.submit_many(pool, [spec(f"u{n}", delay_ms=1000) for n in range(3)])
    assert [type(answer) for answer in answers] == [Submitted] * 2 + [QueueFull]


async def test_a_delayed_job_waits_until_it_is_due_and_keeps_its_place(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    (late,) = await submit(queue, pool, delay_ms=5000)
    early = await submit(queue, pool, n=2)
    job = await queue.inspect.job(late)
    assert (job.state, job.not_before_ms) == ("delayed", clock.now_ms() + 5000)
    assert ids_of(await take(queue, pool)) == early[:1]
    clock.advance(4999)
    assert (await queue.sweep(pool)).due == 0
    clock.advance(1)
    assert (await queue.sweep(pool)).due == 1
    assert ids_of(await take(queue, pool, 9)) == [late, early[1]]


async def test_a_deadline_counts_from_the_submit(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    (id_,) = await submit(queue, pool, deadline_ms=1000, delay_ms=500)
    assert (await queue.inspect.job(id_)).deadline_at_ms == clock.now_ms() + 1000


@pytest.mark.parametrize("store", ["valkey"], indirect=True)
async def test_what_was_taken_in_before_redis_failed_is_answered_so(queue: Queue, pool: Pool) -> None:
    run, calls = queue._store.run, iter([True, False])

    async def fail_later(name: str, *args: Any, **options: Any) -> Any:
        if next(calls):
            return await run(name, *args, **options)
        raise StoreUnavailable()

    queue._store.run = fail_later
    answers = await queue.submit_many(pool, [spec()] * 350)
    queue._store.run = run
    assert [type(answer) for answer in answers] == [Submitted] * 100 + [StoreUnavailable] * 250
    assert (await queue.inspect.overview(pool)).tiers[1].depth == 100
