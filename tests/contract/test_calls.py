"""Calls of many at once: whoever is cancelled harms nobody else, and nobody's own clock matters."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from fairlane.clock import ManualClock, RedisClock
from fairlane.errors import IdempotencyMismatch, NotFound, UnknownTier
from fairlane.model import Submitted
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import another_process, finish, ids_of, spec, submit, submit_all, take

pytestmark = pytest.mark.usefixtures("invariants")


async def cancelled_after(steps: int, call: asyncio.Task[object]) -> None:
    """Lets `call` run for some turns of the event loop, and cancels it."""
    for _ in range(steps):
        await checkpoint()
    call.cancel()
    await asyncio.wait([call])


async def test_a_cancelled_call_leaves_its_reply_to_nobody(queue: Queue, pool: Pool) -> None:
    ids = await submit_all(queue, pool, [spec(body=b"%d" % n) for n in range(12)])
    unknown = f"job_{pool.code}99aaaaaaaaaaaa"
    for steps in range(12):
        calls = [asyncio.create_task(queue.inspect.job(id_)) for id_ in ids]
        dropped: list[asyncio.Task[Any]] = [asyncio.create_task(queue.inspect.job(unknown)) for _ in range(4)]
        dropped += [asyncio.create_task(queue.cancel(unknown)) for _ in range(4)]
        for _ in range(steps):
            await checkpoint()
        for call in dropped:
            call.cancel()
        jobs = await asyncio.gather(*calls)
        assert [(job.id, job.body) for job in jobs] == [(id_, b"%d" % n) for n, id_ in enumerate(ids)]
        gone = await asyncio.gather(*dropped, return_exceptions=True)
        assert all(isinstance(error, asyncio.CancelledError | NotFound) for error in gone)


async def test_cancelled_calls_use_up_no_connections(queue: Queue, pool: Pool) -> None:
    (id_,) = await submit(queue, pool)
    for n in range(150):
        await cancelled_after(n % 10, asyncio.create_task(queue.inspect.explain(id_)))
    jobs = await asyncio.gather(*(queue.inspect.job(id_) for _ in range(70)))
    assert {job.id for job in jobs} == {id_}


@pytest.mark.parametrize("steps", range(0, 12, 2))
async def test_what_a_cancelled_acquire_leased_is_told_to_the_next_one(queue: Queue, pool: Pool, steps: int) -> None:
    ids = await submit(queue, pool, n=4)
    await cancelled_after(steps, asyncio.create_task(queue.acquire(pool, "d", 5, 2)))
    leases = await queue.acquire(pool, "d", 5, 2)
    assert ids_of(leases) == ids[:2]
    assert (await queue.inspect.overview(pool)).leased == 2
    await finish(queue, pool, leases)


async def test_submits_at_once_are_answered_each_by_itself_and_in_order(queue: Queue, pool: Pool) -> None:
    await queue.submit(pool, spec(idempotency_key="k", body=b"other"))
    specs = [spec(body=b"%d" % n) for n in range(130)]
    specs[5] = spec(tier="gold")
    specs[7] = spec(idempotency_key="k", body=b"7")
    specs[9] = spec(idempotency_key="l", body=b"9")
    answers = await asyncio.gather(*(queue.submit(pool, one) for one in specs), return_exceptions=True)
    failed = {n: type(answer) for n, answer in enumerate(answers) if isinstance(answer, BaseException)}
    assert failed == {5: UnknownTier, 7: IdempotencyMismatch}
    ids = [answer.id for answer in answers if isinstance(answer, Submitted)]
    jobs = [await queue.inspect.job(id_) for id_ in ids[::10]]
    assert [job.body for job in jobs] == [one.body for n, one in enumerate(specs) if n not in failed][::10]
    taken = [lease.body for _ in range(2) for lease in await take(queue, pool, 100)]
    unkeyed = [one.body for n, one in enumerate(specs) if n not in (5, 7, 9)]
    assert [body for body in taken if body not in (b"9", b"other")] == unkeyed


@pytest.mark.parametrize("steps", range(0, 8, 2))
async def test_a_submit_that_is_cancelled_takes_no_other_with_it(queue: Queue, pool: Pool, steps: int) -> None:
    calls = [asyncio.create_task(queue.submit(pool, spec(body=b"%d" % n))) for n in range(12)]
    for _ in range(steps):
        await checkpoint()
    for call in calls[::3]:
        call.cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    kept = [answer.id for answer in answers if isinstance(answer, Submitted)]
    assert all(isinstance(answer, Submitted) for n, answer in enumerate(answers) if n % 3)
    await submit(queue, pool, "bob")
    waiting = [lease.id for lease in await take(queue, pool, 20)]
    assert set(kept) < set(waiting)


# Not on fakeredis: its server's clock is this process's own.
@pytest.mark.parametrize("store", ["valkey", "redis", "cluster"], indirect=True)
@pytest.mark.parametrize("minutes", [-10, 10])
async def test_a_workers_wrong_clock_does_not_matter(
    queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    """Case 25."""
    right = another_process(queue, RedisClock())
    (mark,) = await submit(right, pool, "zoe")
    now = (await right.inspect.job(mark)).created_at_ms
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 60 * minutes)
    monkeypatch.setattr(time, "time_ns", lambda: int((real() + 60 * minutes) * 1e9))
    wrong = another_process(queue, RedisClock())
    await submit(wrong, pool, n=2, deadline_ms=60_000)
    (delayed,) = await submit(wrong, pool, delay_ms=60_000)
    await queue.set_backend(pool, "b2", "add")
    held = await take(wrong, pool, 2)
    assert all(now + 30_000 <= lease.until_ms < now + 60_000 for lease in held)
    await take(right, pool, 1)
    for sweeper in (wrong, right):
        swept = await sweeper.sweep(pool)
        assert (swept.lost, swept.due, swept.expired) == (0, 0, 0)
    assert await wrong.renew(pool, held) == ["ok"] * len(held)
    await finish(wrong, pool, held)
    for id_ in (*ids_of(held), delayed):
        assert abs((await right.inspect.job(id_)).created_at_ms - now) < 30_000


async def test_a_clock_that_goes_back_loses_nothing(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool, n=3, deadline_ms=5000)
    await take(queue, pool)
    clock.advance(-3_600_000)
    await submit(queue, pool, "bob", delay_ms=1000)
    swept = await queue.sweep(pool)
    assert (swept.lost, swept.due, swept.expired) == (0, 0, 0)
    assert len(await take(queue, pool, 9)) == 2
    clock.advance(2 * 3_600_000)
    swept = await queue.sweep(pool)
    assert (swept.lost, swept.due) == (3, 1)
