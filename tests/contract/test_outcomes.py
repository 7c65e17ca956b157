"""Outcomes: written whole, once, and readable whatever the backend said."""

from __future__ import annotations

import pytest

from fairlane.clock import ManualClock
from fairlane.model import Attempt, JobError, Usage
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import REFUSED, live, submit, take, take_one

pytestmark = pytest.mark.usefixtures("invariants")


async def test_an_outcome_is_written_whole(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool, n=2)
    good, bad = await take(queue, pool, 2)
    began = clock.now_ms()
    clock.advance(1500)
    await queue.settle(pool, good, "succeeded", status=200, result=b"\x00\xff", usage=Usage(3, 4))
    error = JobError("backend_error", "It said «no».", 400)
    await queue.settle(pool, bad, "failed", status=400, result=b"{}", error=error)
    job = await queue.inspect.job(good.id)
    assert (job.state, job.status, job.result, job.error, job.usage) == (
        "succeeded",
        200,
        b"\x00\xff",
        None,
        Usage(3, 4),
    )
    assert (job.started_at_ms, job.finished_at_ms) == (began, began + 1500)
    assert job.attempts == (Attempt(1, "b1", began, began + 1500, "succeeded", 200),)
    job = await queue.inspect.job(bad.id)
    assert (job.state, job.dead, job.error, job.result, job.usage) == ("failed", False, error, b"{}", None)


async def test_an_outcome_without_an_answer_has_no_status(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, n=2, max_attempts=1)
    timeout = JobError("timeout", "It took too long.")
    settled, dead = await take(queue, pool, 2)
    await queue.settle(pool, settled, "failed", error=timeout)
    await queue.retry(pool, dead, timeout, delay_ms=0)
    for id_ in (settled.id, dead.id):
        job = await queue.inspect.job(id_)
        assert (job.status, job.error, job.attempts[0].status) == (None, timeout, None)


async def test_an_outcome_is_written_once(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool)
    lease = await take_one(queue, pool)
    assert await queue.settle(pool, lease, "succeeded", status=200, result=b"1") == "succeeded"
    before = await queue.inspect.job(lease.id)
    assert await queue.settle(pool, lease, "succeeded", status=200, result=b"1") == "succeeded"
    assert await queue.settle(pool, lease, "failed", status=500, result=b"2") == "succeeded"
    assert await queue.inspect.job(lease.id) == before
    assert await live(queue, pool) == 0
    assert await queue.retry(pool, lease, REFUSED, delay_ms=0) == "succeeded"
    assert await queue.release(pool, lease) == "succeeded"
    assert await queue.inspect.job(lease.id) == before


async def test_whatever_a_backend_calls_its_error_is_kept(queue: Queue, pool: Pool) -> None:
    (id_,) = await submit(queue, pool, max_attempts=3)
    codes = ["rate limit exceeded", "", "two\nlines \u2713"]
    for code in codes:
        await queue.retry(pool, await take_one(queue, pool), JobError(code, "no", 429), delay_ms=0)
    job = await queue.inspect.job(id_)
    assert [attempt.n for attempt in job.attempts] == [1, 2, 3]
    assert [attempt.status for attempt in job.attempts] == [429] * 3
    assert job.error == JobError(codes[-1], "no", 429)
