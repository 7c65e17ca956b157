"""Waiting for a job: its outcome, whatever it is, or that there is none yet."""

from __future__ import annotations

import asyncio
import time

import pytest

from dispatcher.backends.answer import Answer as Given
from fairlane import AsyncClient, JobCancelled, JobExpired, JobFailed, WaitTimeout
from fairlane.errors import IllegalTransition, NotFound
from fairlane.job import Answer, Failure, Tokens
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.dispatcher.scripted import Script, answer, hang, make_worker, working

SOON_S = 10.0


@pytest.mark.usefixtures("worker")
async def test_the_answer_comes_back(client: AsyncClient, script: Script) -> None:
    body = b'{"id": 1, "usage": {"prompt_tokens": 3, "completion_tokens": 4}}'
    script.then(answer(Given(200, body)))
    handle = await client.submit(model="llama", prompt="x")
    assert (await handle.result(SOON_S))["id"] == 1
    job = await handle.wait()
    assert (job.state, job.finished, job.dead, job.error, job.usage) == (
        "succeeded",
        True,
        False,
        None,
        Tokens(3, 4, 7),
    )
    assert job.result == Answer(200, {"id": 1, "usage": {"prompt_tokens": 3, "completion_tokens": 4}})
    (attempt,) = job.attempts
    assert (attempt.n, attempt.backend, attempt.outcome, attempt.status) == (1, "b1", "succeeded", 200)
    assert await handle.status() == "succeeded"


@pytest.mark.usefixtures("worker")
async def test_a_failed_job_says_what_the_backend_said(client: AsyncClient, script: Script) -> None:
    script.then(answer(Given(422, b'{"error": "too long"}')))
    handle = await client.submit(model="llama", prompt="x")
    with pytest.raises(JobFailed) as raised:
        await handle.result(SOON_S)
    job = await handle.wait()
    assert job.error
    assert (raised.value.status, raised.value.body, raised.value.job) == (422, {"error": "too long"}, job)
    assert raised.value.code == job.error.code
    assert job.error.message in str(raised.value)


@pytest.mark.usefixtures("worker")
async def test_the_backends_own_words_are_in_the_error(client: AsyncClient, script: Script) -> None:
    script.then(answer(Given(400, b'{"error": {"message": "max_tokens must be at least 1"}}')))
    with pytest.raises(JobFailed, match="max_tokens must be at least 1"):
        await (await client.submit(model="llama", prompt="x")).result(SOON_S)


@pytest.mark.usefixtures("worker")
async def test_a_dead_job_can_be_put_back(client: AsyncClient, script: Script) -> None:
    script.then(answer(Given(500, b"{}")), answer(Given(200, b"{}")))
    handle = await client.submit(model="llama", prompt="x", max_attempts=1)
    assert (await handle.wait(SOON_S)).dead
    assert (await handle.requeue()).state in ("queued", "leased", "succeeded")
    assert (await handle.wait(SOON_S)).state == "succeeded"
    with pytest.raises(IllegalTransition):
        await handle.requeue()


async def test_a_cancelled_job_is_cancelled_for_all(client: AsyncClient) -> None:
    handle = await client.submit(model="llama", prompt="x")
    waiting = asyncio.create_task(client.get(handle.id).result(SOON_S))
    await asyncio.sleep(0)
    assert (await handle.cancel()).state == "cancelled"
    with pytest.raises(JobCancelled) as raised:
        await waiting
    assert raised.value.job.id == handle.id
    assert (await client.cancel(handle.id)).state == "cancelled"  # again
    assert (await client.get(handle.id).wait()).state == "cancelled"


async def test_an_expired_job_says_so(client: AsyncClient, queue: Queue, pool: Pool) -> None:
    handle = await client.submit(model="llama", prompt="x", deadline_s=0.001)
    while (await handle.status()) == "queued":
        await queue.sweep(pool)
    with pytest.raises(JobExpired):
        await handle.result(SOON_S)


@pytest.mark.usefixtures("worker")
async def test_a_running_job_can_be_cancelled(client: AsyncClient, script: Script) -> None:
    script.then(hang)
    handle = await client.submit(model="llama", prompt="x")
    await script.began.wait()
    assert await handle.status() == "leased"
    await handle.cancel()
    assert (await handle.wait(SOON_S)).state == "cancelled"


@pytest.mark.parametrize("time_s", [0, 0.2])
async def test_a_wait_ends_in_time_and_the_job_goes_on(client: AsyncClient, time_s: float) -> None:
    handle = await client.submit(model="llama", prompt="x")
    began = time.monotonic()
    with pytest.raises(WaitTimeout, match=handle.id):
        await handle.wait(time_s)
    assert time_s <= time.monotonic() - began < time_s + 1.0
    with pytest.raises(TimeoutError):  # Python's own, for those who expect that
        await handle.result(time_s)
    assert await handle.status() == "queued"


@pytest.mark.usefixtures("worker")
async def test_a_wait_of_no_time_sees_an_outcome(client: AsyncClient) -> None:
    handle = await client.submit(model="llama", prompt="x")
    await handle.wait(SOON_S)
    assert (await client.get(handle.id).wait(0)).finished


async def test_many_wait_for_one_job(client: AsyncClient, queue: Queue, pool: Pool, script: Script) -> None:
    handle = await client.submit(model="llama", prompt="x")
    waiting = [asyncio.create_task(client.get(handle.id).result(SOON_S)) for _ in range(20)]
    async with queue.signals() as signals, working(make_worker(queue, pool, script), signals):
        results = await asyncio.gather(*waiting)
    assert all("usage" in result for result in results)


@pytest.mark.parametrize("job_id", ["job_none", "job_0000100000000000000", "../health/live", "?a=b"])
async def test_a_job_that_is_not_there_is_not_waited_for(client: AsyncClient, job_id: str) -> None:
    handle = client.get(job_id)
    for act in (handle.wait, handle.result, handle.status, handle.cancel):
        with pytest.raises(NotFound):
            await act()
    with pytest.raises(NotFound):
        await client.explain(job_id)


async def test_an_answer_that_is_no_json_is_text(client: AsyncClient, queue: Queue, pool: Pool, script: Script) -> None:
    script.then(answer(Given(200, b"plain")), answer(Given(500, b"<html>")))
    handles = await client.submit_many([{"model": "llama", "prompt": "x", "max_attempts": 1}] * 2)
    async with queue.signals() as signals, working(make_worker(queue, pool, script, concurrency=1), signals):
        assert await handles[0].result(SOON_S) == "plain"
        failed = await handles[1].wait(SOON_S)
    assert (failed.state, failed.dead, failed.result) == ("failed", True, Answer(500, "<html>"))
    assert isinstance(failed.error, Failure)
