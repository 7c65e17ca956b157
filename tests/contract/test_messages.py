"""Words to whoever waits. Each may be lost without harm, since who waits re-reads the state; but they are sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pytest

from fairlane.clock import ManualClock
from fairlane.errors import InvalidRequest
from fairlane.model import JobError, Lease, Limits, Policy, Usage
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.telling import Letter, outcome_told, submitted_job
from tests.contract.acts import REFUSED, finish, open_backend, set_gate, spec, submit, take, take_one

pytestmark = pytest.mark.usefixtures("invariants")

Act = Callable[[Queue, Pool, Lease], Awaitable[object]]
SOON_S = 5


async def hear(client: Any, channel: str, act: Callable[[], Awaitable[object]]) -> str:
    """The first message on `channel` after `act` began."""
    async with client.pubsub() as pubsub:
        await pubsub.subscribe(channel)
        messages = pubsub.listen()
        assert (await anext(messages))["type"] == "subscribe"
        await act()
        with anyio.fail_after(SOON_S):
            return (await anext(messages))["data"].decode(errors="surrogateescape")


async def end_by_sweep(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    clock.advance(30_000)
    await queue.sweep(pool)


ENDS: dict[str, Act] = {
    "failed": lambda q, p, lease: q.retry(p, lease, REFUSED, delay_ms=0),
    "cancelled": lambda q, p, lease: q.cancel(lease.id),
}


@pytest.mark.parametrize("state", ENDS)
async def test_whoever_waits_for_an_outcome_is_told(queue: Queue, pool: Pool, client: Any, state: str) -> None:
    await submit(queue, pool, max_attempts=1)
    lease = await take_one(queue, pool)
    assert await hear(client, pool.key("settled", lease.id), lambda: ENDS[state](queue, pool, lease)) == state
    if state == "cancelled":
        await queue.release(pool, lease)


OUTCOMES: list[dict[str, Any]] = [
    {"state": "succeeded"},
    {"state": "succeeded", "status": 200, "result": b'{"a":\n"\xc3\xa9\x00\xff"}', "usage": Usage(3, 4)},
    {"state": "succeeded", "status": 200, "result": b"x" * 16_384},
    {"state": "failed", "status": 400, "result": b"no", "error": JobError("backend_error", "It said: \nno", 400)},
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=["bare", "bytes", "largest", "failed"])
async def test_whoever_waits_is_told_the_whole_of_a_small_outcome(
    queue: Queue, pool: Pool, client: Any, clock: ManualClock, outcome: dict[str, Any]
) -> None:
    await submit(queue, pool)
    first = await take_one(queue, pool)
    before = await queue.inspect.outcome(first.id)
    await queue.retry(pool, first, REFUSED, delay_ms=0)
    lease = await take_one(queue, pool)
    clock.advance(100)
    how = dict(outcome)
    state = how.pop("state")
    message = await hear(client, pool.key("settled", lease.id), lambda: queue.settle(pool, lease, state, **how))
    assert outcome_told(before, message) == await queue.inspect.outcome(lease.id)


async def test_of_a_large_outcome_only_the_state_is_told(queue: Queue, pool: Pool, client: Any) -> None:
    await submit(queue, pool)
    lease = await take_one(queue, pool)
    before = await queue.inspect.outcome(lease.id)
    settle = partial(queue.settle, pool, lease, "succeeded", result=b"x" * 16_385)
    message = await hear(client, pool.key("settled", lease.id), settle)
    assert message == "succeeded"
    assert outcome_told(before, message) is None


INBOX = "0123456789abcdef"


@pytest.mark.parametrize("outcome", OUTCOMES, ids=["bare", "bytes", "largest", "failed"])
async def test_an_inbox_is_told_all_of_a_small_outcome_of_each_of_its_jobs(
    queue: Queue, pool: Pool, client: Any, clock: ManualClock, outcome: dict[str, Any]
) -> None:
    asked = spec(head=b'{"model":"x"}', deadline_ms=60_000, max_attempts=2, inbox=INBOX)
    made = await queue.submit(pool, asked)
    await submit(queue, pool)  # somebody else's
    clock.advance(30)
    lease, other = await take(queue, pool, 2)
    clock.advance(100)
    how = dict(outcome)
    state = how.pop("state")

    async def settle() -> None:
        await queue.settle(pool, other, "succeeded")
        await queue.settle(pool, lease, state, **how)

    letter = Letter.parse(await hear(client, pool.key("settled", INBOX), settle))
    assert letter
    told = letter.outcome(submitted_job(pool, asked, made.id))
    assert told == await queue.inspect.outcome(made.id)
    assert told
    assert told.created_at_ms == clock.now_ms() - 130


@pytest.mark.parametrize("end", ["large", "cancelled", "dead", "expired", "tried again", "requeued"])
async def test_of_other_outcomes_an_inbox_is_told_that_there_is_one(
    queue: Queue, pool: Pool, client: Any, clock: ManualClock, end: str
) -> None:
    asked = spec(deadline_ms=1000 if end == "expired" else None, max_attempts=1 + (end == "tried again"), inbox=INBOX)
    made = await queue.submit(pool, asked)
    if end == "requeued":
        await queue.retry(pool, await take_one(queue, pool), REFUSED, delay_ms=0)
        await queue.requeue(made.id)

    async def conclude() -> None:
        if end == "cancelled":
            await queue.cancel(made.id)
        elif end == "expired":
            clock.advance(1000)
            await queue.sweep(pool)
        else:
            lease = await take_one(queue, pool)
            if end in ("dead", "tried again"):
                await queue.retry(pool, lease, REFUSED, delay_ms=0)
            if end == "tried again":
                lease = await take_one(queue, pool)
            if end != "dead":
                await queue.settle(pool, lease, "succeeded", result=b"x" * (16_385 if end == "large" else 1))

    letter = Letter.parse(await hear(client, pool.key("settled", INBOX), conclude))
    assert letter
    assert (letter.job_id, letter.outcome(submitted_job(pool, asked, made.id))) == (made.id, None)


@pytest.mark.parametrize("inbox", ["", "short", "a b c d e f", "0123456789abcdef-", "x" * 65])
async def test_an_inbox_is_letters_and_digits(queue: Queue, pool: Pool, inbox: str) -> None:
    with pytest.raises(InvalidRequest, match="inbox"):
        await queue.submit(pool, spec(inbox=inbox))


async def test_whoever_waits_for_an_expired_or_lost_job_is_told(
    queue: Queue, pool: Pool, client: Any, clock: ManualClock
) -> None:
    (late,) = await submit(queue, pool, delay_ms=60_000, deadline_ms=10)
    assert await hear(client, pool.key("settled", late), lambda: end_by_sweep(queue, pool, clock)) == "expired"
    await submit(queue, pool, max_attempts=1)
    lost = await take_one(queue, pool)
    assert await hear(client, pool.key("settled", lost.id), lambda: end_by_sweep(queue, pool, clock)) == "failed"


async def test_whoever_waits_for_a_job_that_moves_is_told_to_look_elsewhere(
    queue: Queue, pool: Pool, client: Any
) -> None:
    target = await queue.pools.open("mistral", Policy())
    (id_,) = await submit(queue, pool)
    assert await hear(client, pool.key("settled", id_), lambda: queue.move(id_, target)) == "moved"


async def test_whoever_runs_a_job_is_told_that_it_was_cancelled(queue: Queue, pool: Pool, client: Any) -> None:
    await submit(queue, pool)
    lease = await take_one(queue, pool)
    assert await hear(client, pool.key("control"), lambda: queue.cancel(lease.id)) == f"cancel {lease.id}"
    await queue.release(pool, lease)


ROOM: dict[str, Act] = {
    "a job is settled": lambda q, p, lease: finish(q, p, [lease]),
    "a job is released": lambda q, p, lease: q.release(p, lease),
    "a job is retried": lambda q, p, lease: q.retry(p, lease, REFUSED, delay_ms=0),
    "a gate opens": lambda q, p, lease: set_gate(q, p, "b1", 9),
    "a backend comes": lambda q, p, lease: q.set_backend(p, "b2", "add"),
    "a backend is back": lambda q, p, lease: q.set_backend(p, "b1", "undrain"),
}


@pytest.mark.parametrize("what", ROOM)
async def test_whoever_was_refused_is_woken_when_there_may_be_room(
    queue: Queue, pool: Pool, client: Any, what: str
) -> None:
    await set_gate(queue, pool, "b1", 1)
    await submit(queue, pool, n=3)
    (lease,) = await take(queue, pool, 3)
    assert await take(queue, pool) == []
    await hear(client, pool.key("wake"), lambda: ROOM[what](queue, pool, lease))


async def test_whoever_was_refused_is_woken_when_a_lost_lease_ends(
    queue: Queue, pool: Pool, client: Any, clock: ManualClock
) -> None:
    await set_gate(queue, pool, "b1", 1)
    await submit(queue, pool, n=2)
    await take(queue, pool, 2)
    await hear(client, pool.key("wake"), lambda: end_by_sweep(queue, pool, clock))


async def test_whoever_found_nothing_is_woken_when_there_is_work(
    queue: Queue, pool: Pool, client: Any, clock: ManualClock
) -> None:
    wake = pool.key("wake")
    assert await hear(client, wake, lambda: submit(queue, pool)) == "default"
    lease = await take_one(queue, pool)
    assert await hear(client, wake, lambda: queue.release(pool, lease)) == "default"
    for scope in ({}, {"tier": "default"}, {"tenant": "ann"}):
        await queue.pause(pool, **scope)
        assert await hear(client, wake, lambda scope=scope: queue.resume(pool, **scope)) == "default"
    await queue.set_limits(pool, "ann", Limits(max_inflight=0))
    assert await hear(client, wake, lambda: queue.set_limits(pool, "ann", Limits())) == "default"
    await take_one(queue, pool)
    await submit(queue, pool, tier="flex", delay_ms=10)
    clock.advance(10)
    assert await hear(client, wake, lambda: queue.sweep(pool)) == "flex"


# Not on a Cluster, where messages of two nodes may overtake each other.
@pytest.mark.parametrize("store", ["fakeredis", "valkey", "redis"], indirect=True)
async def test_nobody_is_woken_when_nobody_waits(queue: Queue, pool: Pool, client: Any) -> None:
    await submit(queue, pool, n=6)
    await open_backend(queue, pool, "b2", 9)

    async def work() -> None:
        await finish(queue, pool, await take(queue, pool, 2))
        await submit(queue, pool)
        await set_gate(queue, pool, "b1", 5)
        await queue.retier(pool, [(await take_one(queue, pool)).id], "flex")
        await client.publish(pool.key("wake"), "the end")

    assert await hear(client, pool.key("wake"), work) == "the end"
