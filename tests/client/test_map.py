"""`client.map`: answers in order, few requests under way at once, and nothing left behind."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from fairlane import AsyncClient, JobFailed, JobRequest, WaitTimeout
from fairlane.errors import InvalidRequest
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.testing import AsyncFakeClient, Fails, FakeClient, Waits


def echo(request: JobRequest) -> str:
    return request.body["prompt"]


def prompt(text: object) -> dict[str, Any]:
    return {"model": "m", "prompt": str(text)}


def prompt_to_llama(text: object) -> dict[str, Any]:
    return {"model": "llama", "prompt": str(text)}


def texts(bodies: list[Any]) -> list[str]:
    return [body["choices"][0]["text"] for body in bodies]


def test_answers_are_in_the_order_of_the_requests() -> None:
    with FakeClient(echo) as client:
        assert texts(list(client.map(map(prompt, range(250))))) == [str(n) for n in range(250)]
        assert texts(list(client.map(prompt, "abc"))) == ["a", "b", "c"]
        assert texts(list(client.map(lambda a, b: prompt(a + b), [1, 2], [10, 20, 30]))) == ["11", "22"]
        assert list(client.map([])) == []


async def test_the_async_client_has_the_same() -> None:
    async with AsyncFakeClient(echo) as client:
        assert texts([body async for body in client.map(prompt, range(5), buffersize=2)]) == list("01234")


def test_only_so_many_are_taken_ahead() -> None:
    taken: list[int] = []

    def endless() -> Iterator[dict[str, Any]]:
        for n in itertools.count():
            taken.append(n)
            yield prompt(n)

    with FakeClient(echo) as client:
        answers = client.map(endless(), buffersize=3)
        assert taken == []
        assert texts([next(answers)]) == ["0"]
        assert len(taken) == 3
        assert texts([next(answers), next(answers)]) == ["1", "2"]
        assert len(taken) == 5
        answers.close()  # pyright: ignore[reportAttributeAccessIssue]


def test_an_error_comes_in_its_turn() -> None:
    with FakeClient(echo, answers=["0", Fails("timeout", "Slow.", None), "2"]) as client:
        answers = client.map(prompt, range(3))
        next(answers)
        with pytest.raises(JobFailed):
            next(answers)
        with pytest.raises(StopIteration):
            next(answers)


def test_errors_may_stand_among_the_answers() -> None:
    with FakeClient(echo, answers=["0", Fails("timeout", "Slow.", None), "2"]) as client:
        requests = [*map(prompt, range(3)), {"model": "m"}]
        answers = list(client.map(requests, return_exceptions=True))
        assert [type(one) for one in answers] == [dict, JobFailed, dict, InvalidRequest]


async def test_what_is_under_way_is_cancelled_when_nobody_takes_it() -> None:
    async with AsyncFakeClient(Waits(), answers=["0"]) as client:
        answers = client.map(prompt, range(10), buffersize=4)
        await anext(answers)
        await answers.aclose()
        assert {job.state async for job in client.jobs()} == {"succeeded", "cancelled"}
        assert len(client.requests) == 4


def test_it_ends_in_time() -> None:
    with FakeClient(Waits()) as client:
        with pytest.raises(WaitTimeout, match=r"0\.05"):
            list(client.map(prompt, range(3), timeout=0.05))
        assert {job.state for job in client.jobs()} == {"cancelled"}


def test_a_function_that_raises_is_heard_and_leaves_nothing() -> None:
    def ask(n: int) -> dict[str, Any]:
        return prompt(1 // (2 - n))

    with FakeClient(Waits()) as client:
        with pytest.raises(ZeroDivisionError):
            list(client.map(ask, range(5)))
        assert [job.state for job in client.jobs()] == ["cancelled", "cancelled"]


@pytest.mark.parametrize("wrong", [(prompt,), ([prompt(1)], [1])], ids=["no items", "items without a function"])
def test_what_makes_no_sense_is_refused(wrong: Any) -> None:
    with FakeClient() as client, pytest.raises(InvalidRequest):
        list(client.map(*wrong))
    with FakeClient() as client, pytest.raises(InvalidRequest):
        list(client.map([prompt(1)], buffersize=0))


async def test_what_was_just_being_sent_is_cancelled_too(client: AsyncClient, queue: Queue, pool: Pool) -> None:
    answers = client.map(prompt_to_llama, range(20), timeout=0.0)
    with pytest.raises(WaitTimeout):
        await anext(answers)
    jobs, _ = await queue.inspect.index(pool, "done", limit=1000)
    assert {job.state for job in jobs} <= {"cancelled"}
    assert (await queue.inspect.line(pool, "default", "ann", 0, 100))[0] == []


@pytest.mark.usefixtures("worker")
async def test_it_works_over_a_real_queue(client: AsyncClient) -> None:
    async with asyncio.timeout(20):
        answers = [body async for body in client.map({"model": "llama", "prompt": str(n)} for n in range(60))]
    assert len(answers) == 60
