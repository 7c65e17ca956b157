"""Streams on their way from a backend to Redis: at once, together, in order, whole before the outcome, and no further
than the lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dispatcher.backends.answer import Answer, CallFailed
from dispatcher.backends.known import Backends
from dispatcher.holds import Hold
from dispatcher.meters import Meters
from dispatcher.relay import GATHER_S, Relay
from dispatcher.worker import Worker, WorkerOptions
from fairlane.errors import StoreFull, StoreUnavailable
from fairlane.head import Head
from fairlane.model import BackendSpec, JobSpec, Lease, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from fairlane.queue.streams import Appended, Chunk
from tests.contract.acts import set_gate
from tests.contract.invariants import end_lease_early
from tests.dispatcher.scripted import Script, fail, finished, hang, make_worker, speak, until, working

HEAD = Head("/v1/chat/completions", "llama", stream=True).encode()
POOL = Pool("llama", "x", "fl:{x}:", Policy())
EVENTS = [b"data: %d\n\n" % n for n in range(1, 6)]


class Store:
    """Takes what is appended, or answers as it is told."""

    def __init__(self, *answers: Appended) -> None:
        self.calls: list[list[tuple[str, Chunk]]] = []
        self.at: list[float] = []
        self._answers = list(answers)

    async def append(self, pool: Pool, chunks: Sequence[tuple[str, Chunk]]) -> list[Appended]:
        self.calls.append(list(chunks))
        self.at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.001)
        return [self._answers.pop(0) if self._answers else "ok" for _ in chunks]

    def text(self, job_id: str) -> bytes:
        """What was written of it, if all was well."""
        return b"".join(chunk.events or b"" for call in self.calls for id_, chunk in call if id_ == job_id)


def hold(job_id: str = "job_1") -> Hold:
    return Hold(Lease(job_id, 7, "b1", "ann", "default", 1, 1, 0, 0, 30_000, 5, 0, b"", b""), 0.0, 30_000)


def relay(store: Store) -> Relay:
    return Relay(store, POOL)  # type: ignore[arg-type]


async def test_the_first_event_goes_at_once_and_then_there_is_a_call_every_ten_milliseconds() -> None:
    store = Store()
    flow = relay(store).open(hold())
    for n in range(200):
        flow.hear(b"data: %d\n\n" % n)
        if n == 0:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(store.calls) == 1
        await asyncio.sleep(0.0005)
    await flow.finish(whole=True)
    assert store.text("job_1") == b"".join(b"data: %d\n\n" % n for n in range(200))
    assert all(later - at >= 0.9 * GATHER_S for at, later in zip(store.at, store.at[1:], strict=False))
    ends = [(chunk.first, chunk.last) for call in store.calls for _, chunk in call]
    assert [first for first, _ in ends] == [1, *(last + 1 for _, last in ends[:-1])]


async def test_all_streams_of_a_pool_go_in_one_call() -> None:
    store = Store()
    all_of_them = relay(store)
    flows = [all_of_them.open(hold(f"job_{n}")) for n in range(50)]
    for turn in range(3):
        for flow in flows:
            flow.hear(EVENTS[turn])
        await asyncio.sleep(2 * GATHER_S)
    for flow in flows:
        await flow.finish(whole=True)
    assert [len(call) for call in store.calls] == [50, 50, 50]


@pytest.mark.parametrize("word", ["lost", "cancelled"])
async def test_a_stream_ends_when_its_lease_or_its_job_does(word: str) -> None:
    store, held = Store(word), hold()
    flow = relay(store).open(held)
    flow.hear(EVENTS[0])
    await flow.finish(whole=True)
    assert held.stopped == word
    flow.hear(EVENTS[1])
    await flow.finish(whole=True)
    assert len(store.calls) == 1


async def test_while_redis_is_away_it_is_sent_again_in_order() -> None:
    store = Store(StoreUnavailable(), StoreUnavailable())
    flow = relay(store).open(hold())
    flow.hear(EVENTS[0])
    await asyncio.sleep(0)
    flow.hear(EVENTS[1])
    await flow.finish(whole=True)
    first = [chunk for (_, chunk), *_ in store.calls]
    assert [(chunk.first, chunk.last) for chunk in first[-2:]] in ([(1, 1), (2, 2)], [(1, 2), (1, 2)])
    assert all(chunk == first[0] for chunk in first[:3])


async def test_a_full_redis_ends_the_stream_and_not_the_work() -> None:
    store, held = Store(StoreFull()), hold()
    flow = relay(store).open(held)
    flow.hear(EVENTS[0])
    await flow.finish(whole=True)
    assert held.stopped is None
    assert flow.began


async def test_half_an_event_is_nothing_unless_the_answer_ends_there() -> None:
    store = Store()
    flow = relay(store).open(hold())
    flow.hear(b"data: half")
    await flow.finish(whole=False)
    assert (store.calls, flow.began) == ([], False)
    await flow.finish(whole=True)
    assert store.text("job_1") == b"data: half"


async def test_a_chunk_is_no_larger_than_a_reader_may_want_it() -> None:
    store, event = Store(), b"data: " + b"x" * 30_000 + b"\n\n"
    flow = relay(store).open(hold())
    flow.hear(event * 20)
    await flow.finish(whole=True)
    assert store.text("job_1") == event * 20
    ends = [(chunk.first, chunk.last) for call in store.calls for _, chunk in call]
    assert ends == [*((n, n + 2) for n in range(1, 19, 3)), (19, 20)]


class TestWorker:
    @pytest.fixture
    async def worker(self, queue: Queue, pool: Pool, signals: Signals, script: Script) -> AsyncIterator[None]:
        async with working(make_worker(queue, pool, script), signals):
            yield

    @pytest.mark.usefixtures("worker")
    async def test_the_outcome_comes_after_all_events(
        self, queue: Queue, pool: Pool, script: Script, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append = queue.append

        async def slow(*args: Any) -> list[Appended]:
            await asyncio.sleep(0.05)
            return await append(*args)

        monkeypatch.setattr(queue, "append", slow)
        script.then(speak(script, *EVENTS))
        id_ = (await queue.submit(pool, JobSpec("ann", "default", b"{}", HEAD))).id
        while (page := await queue.inspect.chunks(pool, id_)).state != "succeeded":
            await asyncio.sleep(0.005)
        assert b"".join(text for _, text in page.chunks) == b"".join(EVENTS)

    @pytest.mark.usefixtures("worker")
    @pytest.mark.parametrize("stopped_by", ["cancel", "loss"])
    async def test_the_backends_work_is_stopped_when_nobody_may_write_it(
        self, queue: Queue, pool: Pool, script: Script, stopped_by: str
    ) -> None:
        """Even if the word that tells so was lost: the next event finds out. Case 17."""

        async def endless() -> Answer:
            hear = script.hear
            assert hear
            while True:
                hear(EVENTS[0])
                await asyncio.sleep(0.005)

        script.then(endless, hang)
        id_ = (await queue.submit(pool, JobSpec("ann", "default", b"{}", HEAD))).id
        await script.began.wait()
        if stopped_by == "cancel":
            await queue.cancel(id_)
        else:
            await end_lease_early(queue, pool, id_)
            await queue.sweep(pool)
        await until(lambda: _is(script.aborted[:1] == [id_]))
        await queue.cancel(id_)

    @pytest.mark.usefixtures("worker")
    @pytest.mark.parametrize("fault", ["reset", "timeout", "idle_timeout", "too_large"])
    async def test_an_attempt_that_has_begun_to_speak_is_the_last(
        self, queue: Queue, pool: Pool, script: Script, fault: Any
    ) -> None:
        script.then(
            speak(script, EVENTS[0], b"data: half", fault=CallFailed(fault, "It failed.")), fail(AssertionError())
        )
        job = await finished(queue, (await queue.submit(pool, JobSpec("ann", "default", b"{}", HEAD))).id)
        assert (job.state, job.dead, len(job.attempts), len(script.calls)) == ("failed", False, 1, 1)
        assert job.usage
        assert job.result == EVENTS[0], "which was handed on, and is still there after the stream's time"

    @pytest.mark.usefixtures("worker")
    async def test_so_it_is_if_the_dispatcher_itself_fails(self, queue: Queue, pool: Pool, script: Script) -> None:
        script.then(speak(script, EVENTS[0], fault=ZeroDivisionError()), speak(script, *EVENTS))
        job = await finished(queue, (await queue.submit(pool, JobSpec("ann", "default", b"{}", HEAD))).id)
        assert (job.state, job.dead, len(job.attempts), len(script.calls)) == ("failed", False, 1, 1)
        assert job.error
        assert job.error.code == "internal"

    async def test_the_null_backend_streams(self, queue: Queue, pool: Pool, signals: Signals) -> None:
        await queue.set_backend(pool, "b1", "add", spec=BackendSpec("null://"))
        await set_gate(queue, pool, "b1", 10)
        backends = Backends(queue, pool, lambda spec: Script())
        worker = Worker(queue, pool, "null", backends, Meters(CollectorRegistry()), WorkerOptions())
        async with working(worker, signals):
            id_ = (await queue.submit(pool, JobSpec("ann", "default", b"{}", HEAD))).id
            job = await finished(queue, id_)
        events = b'data: {"id":"%b","object":"null"}\n\ndata: [DONE]\n\n' % id_.encode()
        assert job.result == events
        assert [text for _, text in (await queue.inspect.chunks(pool, id_)).chunks] == [events]


async def _is(what: bool) -> bool:
    return what
