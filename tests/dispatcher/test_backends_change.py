"""Backends are added, drained, removed and moved to another address while the pool works; no job notices."""

from __future__ import annotations

import asyncio

import pytest

from dispatcher import worker as worker_module
from dispatcher.backends.answer import Answer
from fairlane.errors import IllegalTransition
from fairlane.model import BackendSpec, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from tests.dispatcher.fleet import served, work
from tests.dispatcher.observing import view
from tests.dispatcher.scripted import OK, Script, answer, finished, submit, until

GOOD = answer(OK, 0.01)


@pytest.fixture
def policy() -> Policy:
    return Policy(stale_ms=2_000)


@pytest.fixture
def scripts() -> dict[str, Script]:
    made = {name: Script() for name in ("b1", "b2", "b3")}
    for script in made.values():
        script.then(GOOD)
    return made


@pytest.fixture
async def pool(queue: Queue, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> Pool:
    monkeypatch.setattr(worker_module, "REFRESH_S", 60.0)  # it is told, or it looks when it needs one
    made = await queue.pools.open("llama", policy)
    await queue.set_backend(made, "b1", "add", spec=BackendSpec("http://b1"))
    return made


async def test_a_backend_that_is_added_gets_work_and_one_that_drains_ends_what_it_has(
    queue: Queue, pool: Pool, signals: Signals, scripts: dict[str, Script]
) -> None:
    one, two = scripts["b1"], scripts["b2"]
    tried = asyncio.Event()

    async def when_tried() -> Answer:
        await tried.wait()
        return OK

    one.then(when_tried)
    async with served(queue, pool, signals, scripts):
        ids = await submit(queue, pool, 400)
        await one.began.wait()
        await queue.set_backend(pool, "b2", "add", spec=BackendSpec("http://b2"))
        await two.began.wait()
        await queue.set_backend(pool, "b1", "drain")
        with pytest.raises(IllegalTransition):
            await queue.set_backend(pool, "b1", "remove")  # it works
        tried.set()

        async def is_free() -> bool:
            return (await view(queue, pool)).counts.live == 0

        await until(is_free)
        before = len(one.calls)
        await queue.set_backend(pool, "b1", "remove")
        jobs = [await finished(queue, id_) for id_ in ids]
        assert len(one.calls) == before
        assert [b.name for b in (await queue.inspect.load(pool)).backends] == ["b2"]
    assert {job.state for job in jobs} == {"succeeded"}
    assert {len(job.attempts) for job in jobs} == {1}
    assert not one.aborted


async def test_a_drained_backend_comes_back(
    queue: Queue, pool: Pool, signals: Signals, scripts: dict[str, Script]
) -> None:
    await queue.set_backend(pool, "b2", "add", spec=BackendSpec("http://b2"))
    async with served(queue, pool, signals, scripts):
        await work(queue, pool)
        await queue.set_backend(pool, "b1", "drain")
        before = len(scripts["b1"].calls)
        await work(queue, pool)
        assert len(scripts["b1"].calls) == before
        await queue.set_backend(pool, "b1", "undrain")
        await work(queue, pool)
        assert len(scripts["b1"].calls) > before


async def test_another_address_is_used_once_it_is_heard_of_and_what_runs_ends_at_the_old_one(
    queue: Queue, pool: Pool, signals: Signals, scripts: dict[str, Script]
) -> None:
    old, new = scripts["b1"], scripts["b3"]
    ready = asyncio.Event()

    async def when_ready() -> Answer:
        await ready.wait()
        return OK

    old.then(when_ready, GOOD)  # until its dispatcher has heard of the change
    async with served(queue, pool, signals, scripts):
        (slow,) = await submit(queue, pool)
        await old.began.wait()
        await queue.set_backend(pool, "b1", "add", spec=BackendSpec("http://b3"))

        async def is_new_used() -> bool:
            await work(queue, pool, 2)
            return len(new.calls) > 0

        await until(is_new_used)
        before = len(old.calls)
        await work(queue, pool, 20)
        assert len(old.calls) == before
        ready.set()
        assert (await finished(queue, slow)).state == "succeeded"
    assert not old.aborted
