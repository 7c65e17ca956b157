"""Callers who hang up, or take nothing any more: their jobs are cancelled, whatever Redis does meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import FastAPI

from dispatcher.backends.answer import Answer
from fairlane.errors import NotFound, StoreUnavailable
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from fairlane.settings import Settings
from producer.abandoned import Abandoned
from producer.api.app import create_app
from producer.api.state import State
from tests.api.door import CHAT, Served, serving
from tests.api.reading import STREAM, reading, soon
from tests.dispatcher.scripted import Script, finished, hang, make_worker, working


class Away:
    """A Redis that takes no cancel while it `is_away`."""

    def __init__(self) -> None:
        self.is_away = True
        self.cancelled: list[str] = []
        self.tries = 0

    async def cancel(self, job_id: str) -> None:
        self.tries += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise StoreUnavailable()
        if job_id == "job_gone":
            raise NotFound()
        self.cancelled.append(job_id)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producer.abandoned.AGAIN_S", (0.005, 0.01))


@pytest.fixture
async def served(settings: Settings, pool: Pool) -> AsyncIterator[tuple[Served, FastAPI]]:
    app = create_app(settings)
    async with serving(app, settings.drain_s) as door:
        yield door, app


@pytest.mark.parametrize("body", [CHAT, STREAM], ids=["whole", "stream"])
async def test_who_hangs_up_while_redis_is_away_has_cancelled_it(
    served: tuple[Served, FastAPI],
    queue: Queue,
    pool: Pool,
    signals: Signals,
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
    body: dict[str, Any],
) -> None:
    door, app = served
    state: State = app.state.fairlane
    cancel, away = state.queue.cancel, Away()
    monkeypatch.setattr(state.queue, "cancel", away.cancel)
    script.then(hang)
    async with working(make_worker(queue, pool, script, drain_s=0.0), signals):
        async with door.client() as http:
            asking = asyncio.create_task(http.post("/v1/chat/completions", json=body))
            await script.began.wait()
            asking.cancel()
            await asyncio.wait([asking])
        await soon(lambda: _is(away.tries >= 3))
        monkeypatch.setattr(state.queue, "cancel", cancel)
        assert (await finished(queue, script.calls[0])).state == "cancelled"
        await soon(lambda: _is(script.aborted == script.calls))
    assert not len(state.abandoned)


async def test_many_who_hang_up_are_few_calls_and_none_is_forgotten() -> None:
    away = Away()
    abandoned = Abandoned(away)  # type: ignore[arg-type]
    ids = [f"job_{n}" for n in range(500)]
    for id_ in ["job_gone", *ids]:
        await abandoned.cancel(id_)
    assert len(abandoned) == 501
    assert away.tries < 50
    away.is_away = False
    await soon(lambda: _is(not len(abandoned)))
    assert away.cancelled == ids
    await abandoned.cancel("job_last")
    assert away.cancelled[-1] == "job_last"
    await abandoned.close()


async def test_those_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producer.abandoned.MOST", 3)
    away = Away()
    abandoned = Abandoned(away)  # type: ignore[arg-type]
    for n in range(10):
        await abandoned.cancel(f"job_{n}")
    assert len(abandoned) == 3
    await abandoned.close()


async def test_who_takes_nothing_for_long_has_hung_up(
    served: tuple[Served, FastAPI],
    queue: Queue,
    pool: Pool,
    signals: Signals,
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("producer.api.streaming.STALLED_S", 0.3)
    event = b"data: " + b"x" * 50_000 + b"\n\n"

    async def endless() -> Answer:
        assert script.hear
        while True:
            script.hear(event)
            await asyncio.sleep(0.002)

    script.then(endless)
    async with working(make_worker(queue, pool, script, drain_s=0.0), signals):
        async with reading(served[0]) as read:
            await read.until(lambda: bool(read.events))
            assert (await finished(queue, read.job_id)).state == "cancelled"
            await soon(lambda: _is(not served[0].server.server_state.connections))
        await soon(lambda: _is(script.aborted == [read.job_id]))


async def test_who_is_slow_but_takes_something_gets_everything(
    served: tuple[Served, FastAPI],
    queue: Queue,
    pool: Pool,
    signals: Signals,
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("producer.api.streaming.STALLED_S", 1.0)
    events = [b"data: " + b"x" * 50_000 + b"\n\n"] * 60

    async def whole() -> Answer:
        assert script.hear
        for event in events:
            script.hear(event)
        return Answer(200, b"".join(events), streamed=True)

    script.then(whole)
    async with working(make_worker(queue, pool, script), signals), reading(served[0]) as read:
        for n in range(0, 60, 6):
            await read.until(lambda n=n: len(read.events) > n)
            await asyncio.sleep(0.15)
        assert (await read.all()).events == events


async def _is(what: bool) -> bool:
    return what
