"""A worker: what it does with jobs, answers, cancels, lost leases and the end of its process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from dispatcher import worker as worker_module
from dispatcher.backends.answer import Answer, CallFailed
from dispatcher.holds import AHEAD, RENEWALS, Holds
from fairlane.errors import StoreUnavailable
from fairlane.model import JobSpec, Leases, Limits, Policy, Usage
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Hear, Signals
from tests.contract.acts import set_gate
from tests.contract.invariants import check_invariants, end_lease_early
from tests.dispatcher.scripted import (
    HEAD,
    OK,
    Script,
    answer,
    fail,
    finished,
    hang,
    in_state,
    inflight,
    make_worker,
    submit,
    until,
    working,
)

BRIEF = Policy(lease_ms=300, stale_ms=3_600_000)  # leases of 0.3 s


class Late:
    """Signals that hear nothing before they may."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self.may = asyncio.Event()

    @asynccontextmanager
    async def listen(self, channel: str, hear: Hear) -> AsyncIterator[None]:
        await self.may.wait()
        async with self._signals.listen(channel, hear):
            yield


async def all_released(queue: Queue, pool: Pool) -> None:
    """No lease is left, and all counts say so."""

    async def none_left() -> bool:
        return await inflight(queue, pool) == 0

    await until(none_left)
    await check_invariants(queue, pool)


async def test_a_job_runs_and_keeps_its_answer(queue: Queue, pool: Pool, signals: Signals, script: Script) -> None:
    async with working(make_worker(queue, pool, script), signals):
        (id_,) = await submit(queue, pool)
        job = await finished(queue, id_)
    assert (job.state, job.status, job.result, job.usage) == ("succeeded", 200, OK.body, Usage(3, 4))
    assert [(a.n, a.backend, a.outcome, a.status) for a in job.attempts] == [(1, "b1", "succeeded", 200)]
    await all_released(queue, pool)


async def test_a_submit_wakes_an_idle_worker_at_once(
    queue: Queue, pool: Pool, signals: Signals, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "POLL_S", (60.0, 60.0))
    async with working(make_worker(queue, pool, script), signals):
        for _ in range(5):
            (id_,) = await submit(queue, pool)
            await finished(queue, id_)


async def test_nobody_asks_again_for_what_is_not_there(
    queue: Queue, pool: Pool, signals: Signals, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "POLL_S", (60.0, 60.0))
    acquire, asked = queue.acquire, list[int]()

    async def counted(pool: Pool, dispatcher: str, call_no: int, n: int) -> Leases:
        asked.append(n)
        return await acquire(pool, dispatcher, call_no, n)

    monkeypatch.setattr(queue, "acquire", counted)
    async with working(make_worker(queue, pool, script), signals):
        (id_,) = await submit(queue, pool)
        await finished(queue, id_)
        await all_released(queue, pool)
        asked.clear()
        for n in range(1, 6):
            (id_,) = await submit(queue, pool)
            await finished(queue, id_)
            assert len(asked) == n


async def test_whoever_was_refused_comes_when_a_job_of_its_own_has_ended(
    queue: Queue, pool: Pool, signals: Signals, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deaf, so that nothing but the end of its own job can tell it."""
    monkeypatch.setattr(worker_module, "POLL_S", (60.0, 60.0))
    await set_gate(queue, pool, "b1", 1)
    ids = await submit(queue, pool, 5)
    async with working(make_worker(queue, pool, script), cast(Signals, Late(signals))):
        for id_ in ids:
            await finished(queue, id_)


async def test_a_tenant_that_waits_for_its_own_jobs_goes_on_when_one_has_ended(
    queue: Queue, pool: Pool, signals: Signals, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "POLL_S", (60.0, 60.0))
    await queue.set_limits(pool, "ann", Limits(max_inflight=1))
    async with working(make_worker(queue, pool, script), signals):
        for id_ in await submit(queue, pool, 5):
            await finished(queue, id_)


async def test_room_wakes_whoever_was_refused(
    queue: Queue, pool: Pool, signals: Signals, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "POLL_S", (60.0, 60.0))
    await set_gate(queue, pool, "b1", 0)
    async with working(make_worker(queue, pool, script), signals):
        (id_,) = await submit(queue, pool)

        async def was_refused() -> bool:
            return (await queue.inspect.backend(pool, "b1")).counts.denied > 0

        await until(was_refused)
        assert script.calls == []
        await set_gate(queue, pool, "b1", 1)
        await finished(queue, id_)


async def test_no_more_than_its_concurrency_runs_at_once(
    queue: Queue, pool: Pool, signals: Signals, script: Script
) -> None:
    script.then(answer(OK, 0.01))
    async with working(make_worker(queue, pool, script, concurrency=3), signals):
        ids = await submit(queue, pool, 12)
        for id_ in ids:
            await finished(queue, id_)
    assert script.most == 3


async def test_a_refusal_of_the_request_is_final_and_reaches_the_caller(
    queue: Queue, pool: Pool, signals: Signals, script: Script
) -> None:
    script.then(answer(Answer(400, b'{"error":{"message":"no"}}')))
    async with working(make_worker(queue, pool, script), signals):
        (id_,) = await submit(queue, pool)
        job = await finished(queue, id_)
    assert (job.state, job.dead, job.status, job.result) == ("failed", False, 400, b'{"error":{"message":"no"}}')
    assert job.error is not None
    assert (job.error.code, job.error.status) == ("backend_error", 400)
    assert len(script.calls) == 1


async def test_what_may_pass_is_tried_again_and_in_the_end_dead_with_the_last_answer(
    queue: Queue, pool: Pool, signals: Signals, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 2: the pauses are waited for, and there are no more tries than allowed."""
    monkeypatch.setattr("dispatcher.policy.verdict.BASE_MS", 50)
    script.then(fail(CallFailed("reset", "gone")), answer(Answer(503, b"busy", 0.2)), answer(Answer(500, b"broken")))
    async with working(make_worker(queue, pool, script), signals):
        (id_,) = await submit(queue, pool, max_attempts=3)
        while (await queue.inspect.job(id_)).finished_at_ms is None:
            await queue.set_backend(pool, "b1", "undrain")  # the reset had closed its gate
            await queue.sweep(pool)
            await asyncio.sleep(0.005)
        job = await queue.inspect.job(id_)
    assert (job.state, job.dead, job.status, job.result) == ("failed", True, 500, b"broken")
    assert [(a.outcome, a.status) for a in job.attempts] == [
        ("backend_unreachable", 502), ("backend_error", 503), ("backend_error", 500),
    ]  # fmt: skip
    second, third = job.attempts[1:]
    assert second.ended_at_ms is not None
    assert third.started_at_ms - second.ended_at_ms >= 200
    await all_released(queue, pool)


async def test_a_refused_connection_uses_no_attempt_and_closes_the_backend(
    queue: Queue, pool: Pool, signals: Signals, script: Script
) -> None:
    script.then(fail(CallFailed("refused", "nobody there")), answer(OK))
    async with working(make_worker(queue, pool, script), signals):
        (id_,) = await submit(queue, pool, max_attempts=1)

        async def is_down() -> bool:
            return (await queue.inspect.backend(pool, "b1")).status == "down"

        await until(is_down)
        await in_state(queue, id_, "queued")
        await set_gate(queue, pool, "b1", 100)  # its next good scrape
        job = await finished(queue, id_)
    assert job.state == "succeeded"
    assert len(job.attempts) == 1


async def test_a_cancelled_job_stops_its_call(queue: Queue, pool: Pool, signals: Signals, script: Script) -> None:
    """Case 17."""
    script.then(hang)
    async with working(make_worker(queue, pool, script), signals):
        (id_,) = await submit(queue, pool)
        await script.began.wait()
        assert await queue.cancel(id_) == "cancelled"
        await all_released(queue, pool)
        assert script.aborted == [id_]
    assert (await queue.inspect.job(id_)).state == "cancelled"


async def test_a_cancel_that_was_said_before_the_worker_listened_is_learnt_as_soon_as_it_does(
    queue: Queue, pool: Pool, signals: Signals, script: Script
) -> None:
    script.then(hang)
    late = Late(signals)
    async with working(make_worker(queue, pool, script), late):  # pyright: ignore[reportArgumentType]
        (id_,) = await submit(queue, pool)
        await script.began.wait()
        assert await queue.cancel(id_) == "cancelled"
        late.may.set()
        async with asyncio.timeout(pool.policy.lease_ms / 1000 / RENEWALS / 2):  # well before the next renewal
            await all_released(queue, pool)


async def test_a_cancel_may_be_heard_before_the_answer_that_brings_the_lease(queue: Queue, pool: Pool) -> None:
    (id_, other) = await submit(queue, pool, 2)
    leases = {lease.id: lease for lease in await queue.acquire(pool, "d1", 1, 2)}
    holds = Holds(queue, pool)
    holds.cancel(id_)
    assert holds.add(leases[id_], 0.0).stopped == "cancelled"
    assert holds.add(leases[other], 0.0).stopped is None
    for n in range(AHEAD):  # they are not kept for ever
        holds.cancel(f"job_{n}")
    assert holds.add(leases[id_], 0.0).stopped is None


@pytest.mark.parametrize("policy", [BRIEF], indirect=True, ids=["brief-leases"])
async def test_a_call_may_take_longer_than_a_lease(queue: Queue, pool: Pool, signals: Signals, script: Script) -> None:
    """Case 13."""
    script.then(answer(OK, 1.0))
    async with working(make_worker(queue, pool, script), signals):
        (id_,) = await submit(queue, pool)
        while (await queue.inspect.job(id_)).finished_at_ms is None:
            assert (await queue.sweep(pool)).lost == 0
            await asyncio.sleep(0.02)
    assert len((await queue.inspect.job(id_)).attempts) == 1


@pytest.mark.parametrize("policy", [BRIEF], indirect=True, ids=["brief-leases"])
async def test_a_lost_lease_stops_its_call_and_the_job_runs_elsewhere(
    queue: Queue, pool: Pool, signals: Signals, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(*_: object) -> Any:
        raise StoreUnavailable(retry_after=1)

    script.then(hang, answer(OK))
    worker = make_worker(queue, pool, script, concurrency=1)
    async with working(worker, signals):
        (id_,) = await submit(queue, pool)
        await script.began.wait()
        monkeypatch.setattr(queue, "renew", unreachable)

        async def lost() -> bool:
            return (await queue.sweep(pool)).lost == 1

        await until(lost)
        job = await finished(queue, id_)
    assert script.aborted == [id_]
    assert [a.outcome for a in job.attempts] == ["lost", "succeeded"]
    await all_released(queue, pool)


async def test_a_lost_reply_of_acquire_loses_no_job(
    queue: Queue, pool: Pool, signals: Signals, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire, losses = queue.acquire, [2]

    async def unsure(pool: Pool, dispatcher: str, call_no: int, n: int) -> Leases:
        leases = await acquire(pool, dispatcher, call_no, n)
        if leases and losses[0]:
            losses[0] -= 1
            raise StoreUnavailable(retry_after=1)
        return leases

    monkeypatch.setattr(queue, "acquire", unsure)
    ids = await submit(queue, pool, 4)
    async with working(make_worker(queue, pool, script), signals):
        jobs = [await finished(queue, id_) for id_ in ids]
    assert losses == [0]
    assert [len(job.attempts) for job in jobs] == [1] * 4
    assert sorted(script.calls) == sorted(ids)


async def test_an_answer_is_written_when_redis_is_back(
    queue: Queue, pool: Pool, signals: Signals, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, refusals = queue.settle, [3]

    async def away(*args: Any, **more: Any) -> Any:
        if refusals[0]:
            refusals[0] -= 1
            raise StoreUnavailable(retry_after=1)
        return await settle(*args, **more)

    monkeypatch.setattr(queue, "settle", away)
    monkeypatch.setattr("dispatcher.attempt.WRITE_AGAIN_S", 0.1)
    async with working(make_worker(queue, pool, script), signals):
        (id_,) = await submit(queue, pool)
        job = await finished(queue, id_)
    assert (job.state, len(script.calls)) == ("succeeded", 1)


async def test_a_fault_of_our_own_is_an_attempt_and_releases_its_lease(
    queue: Queue, pool: Pool, signals: Signals, script: Script
) -> None:
    script.then(fail(RuntimeError("a bug")))
    async with working(make_worker(queue, pool, script), signals):
        (id_,) = await submit(queue, pool, max_attempts=1)
        job = await finished(queue, id_)
        await all_released(queue, pool)
    assert (job.state, job.dead) == ("failed", True)
    assert job.error is not None
    assert job.error.code == "internal"


async def test_a_head_that_cannot_be_read_fails_its_job_only(
    queue: Queue, pool: Pool, signals: Signals, script: Script
) -> None:
    async with working(make_worker(queue, pool, script), signals):
        bad = await queue.submit(pool, JobSpec("ann", "default", b"{}", head=b"[1]"))
        (good,) = await submit(queue, pool)
        assert (await finished(queue, good)).state == "succeeded"
        job = await finished(queue, bad.id)
    assert job.state == "failed"
    assert job.error is not None
    assert job.error.code == "invalid_request"


async def test_a_drain_lets_what_runs_end(queue: Queue, pool: Pool, signals: Signals, script: Script) -> None:
    """Case 30."""
    script.then(answer(OK, 0.2))
    async with working(make_worker(queue, pool, script, concurrency=2), signals) as worker:
        ids = await submit(queue, pool, 5)
        await script.began.wait()
        worker.drain()
    states = [(await queue.inspect.job(id_)).state for id_ in ids]
    assert states.count("succeeded") == len(script.calls) < 5
    assert states.count("queued") == 5 - len(script.calls)
    await all_released(queue, pool)


async def test_a_drain_hands_back_what_does_not_end_in_time(
    queue: Queue, pool: Pool, signals: Signals, script: Script
) -> None:
    script.then(hang)
    async with working(make_worker(queue, pool, script, drain_s=0.1), signals):
        ids = await submit(queue, pool, 5)

        async def all_run() -> bool:
            return script.running == 5

        await until(all_run)
    await all_released(queue, pool)
    for id_ in ids:
        job = await queue.inspect.job(id_)
        assert (job.state, job.attempts) == ("queued", ())
    script.then(answer(OK))
    async with working(make_worker(queue, pool, script, concurrency=1), signals):
        for id_ in ids:
            assert len((await finished(queue, id_)).attempts) == 1
    assert script.calls[5:] == ids  # in their old order


async def test_a_drain_ends_although_no_acquire_succeeds(
    queue: Queue, pool: Pool, signals: Signals, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> Any:
        raise ValueError("a bug")

    monkeypatch.setattr(queue, "acquire", broken)
    async with working(make_worker(queue, pool, script), signals):
        pass


async def test_a_second_drain_does_not_wait(queue: Queue, pool: Pool, signals: Signals, script: Script) -> None:
    script.then(hang)
    async with working(make_worker(queue, pool, script, drain_s=60), signals) as worker:
        (id_,) = await submit(queue, pool)
        await script.began.wait()
        worker.drain()
        worker.drain(hurry=True)
    assert (await queue.inspect.job(id_)).state == "queued"


async def test_calls_at_a_backend_that_has_gone_do_not_hang(
    queue: Queue, pool: Pool, signals: Signals, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real vLLM that gets SIGTERM ends without closing the requests that it was working on."""
    monkeypatch.setattr("dispatcher.backends.known.GONE_MS", 0)
    monkeypatch.setattr(worker_module, "REFRESH_S", 0.05)
    script.then(hang)
    async with working(make_worker(queue, pool, script), signals):
        (id_,) = await submit(queue, pool, max_attempts=1)
        await script.began.wait()
        await queue.set_backend(pool, "b1", "down")
        job = await finished(queue, id_)
    assert [(a.outcome, a.status) for a in job.attempts] == [("backend_unreachable", 502)]
    assert script.aborted == [id_]


async def test_a_job_that_comes_back_while_its_old_call_runs_ends_that_call(
    queue: Queue, pool: Pool, signals: Signals, script: Script
) -> None:
    """Found by attack: the old call was forgotten, and ran on at the backend, counted by nobody."""
    script.then(hang)
    worker = make_worker(queue, pool, script)
    async with working(worker, signals):
        (id_,) = await submit(queue, pool, max_attempts=9)
        await script.began.wait()
        await end_lease_early(queue, pool, id_)

        async def runs_again() -> bool:
            await queue.sweep(pool)
            return len(script.calls) == 2 and script.aborted == [id_]

        await until(runs_again)
        assert script.running == 1
        await queue.cancel(id_)
        await all_released(queue, pool)
        assert script.running == 0


async def test_large_jobs_fill_the_room_as_fast_as_small_ones(
    queue: Queue, pool: Pool, signals: Signals, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by attack: an acquire brings 4 MiB at the most, and the worker took that for the end of the work."""
    monkeypatch.setattr(worker_module, "POLL_S", (60.0, 60.0))
    script.then(hang)
    async with working(make_worker(queue, pool, script, concurrency=8, drain_s=0.1), signals) as worker:
        await queue.pause(pool)
        big = JobSpec("ann", "default", bytes(3 << 20), head=HEAD)
        for _ in range(8):
            await queue.submit(pool, big)
        await queue.resume(pool)

        async def all_run() -> bool:
            return script.running == 8

        await until(all_run)
        worker.drain(hurry=True)


async def test_a_dispatcher_that_cannot_call_a_backend_does_not_close_it_for_the_others(
    queue: Queue, pool: Pool, signals: Signals, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.attempt.UNREADY_S", (0.0, 0.01))
    script.then(fail(CallFailed("unready", "no key")), answer(OK))
    async with working(make_worker(queue, pool, script), signals):
        (id_,) = await submit(queue, pool, max_attempts=1)
        job = await finished(queue, id_)
    assert (job.state, len(job.attempts)) == ("succeeded", 1)
    assert (await queue.inspect.backend(pool, "b1")).down_at_ms is None


@pytest.mark.parametrize("error", [RuntimeError("the handler is closed"), OSError("gone"), ValueError("a bug")])
async def test_no_error_of_a_call_to_redis_ends_a_worker_or_loses_an_answer(
    queue: Queue, pool: Pool, signals: Signals, script: Script, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Found by attack: uvloop raises RuntimeError when a connection is closed under its hands."""
    monkeypatch.setattr("dispatcher.attempt.WRITE_AGAIN_S", 0.2)
    acts = {name: getattr(queue, name) for name in ("acquire", "settle", "renew")}
    left = dict.fromkeys(acts, 2)

    def breaking(name: str) -> Any:
        async def act(*args: Any, **more: Any) -> Any:
            if left[name]:
                left[name] -= 1
                raise error
            return await acts[name](*args, **more)

        return act

    for name in acts:
        monkeypatch.setattr(queue, name, breaking(name))
    async with working(make_worker(queue, pool, script), signals):
        (id_,) = await submit(queue, pool)
        job = await finished(queue, id_)
    assert (job.state, len(job.attempts), len(script.calls)) == ("succeeded", 1, 1)


async def test_every_way_out_of_a_call_releases_once(
    queue: Queue, pool: Pool, signals: Signals, script: Script
) -> None:
    """Cases 8 and 16, as a whole kind: the ways out are mixed, and the counts are right after each mix."""
    ways = [
        answer(OK), answer(OK, 0.02), answer(Answer(404, b"")), fail(CallFailed("too_large", "too large")), hang,
        answer(Answer(500, b"")), fail(CallFailed("timeout", "late")), fail(RuntimeError("a bug")),
    ]  # fmt: skip
    async with working(make_worker(queue, pool, script, concurrency=50), signals):
        for turn in range(4):
            script.then(*ways[turn:], *ways[:turn], *ways, hang)
            ids = await submit(queue, pool, 16, max_attempts=1)

            async def all_called(expected: int = 16 * (turn + 1)) -> bool:
                return len(script.calls) == expected

            await until(all_called)
            for id_ in ids:
                await queue.cancel(id_)
            await all_released(queue, pool)
            for id_ in ids:
                assert (await queue.inspect.job(id_)).state in ("succeeded", "failed", "cancelled")
