"""Readers of a streamed answer: whatever is lost, late or cut, what they hand on is the text, to the byte."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.holds import Hold
from dispatcher.relay import Flow, Relay
from fairlane import sse
from fairlane.errors import Draining, StoreUnavailable, StreamBroken
from fairlane.head import Head
from fairlane.model import BackendSpec, JobSpec, Lease, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Hear, Signals
from fairlane.queue.streams import Chunk, Page, Position
from producer.streaming import Ended, Event, Pause, Streams
from tests.contract.acts import REFUSED, open_backend, set_gate, take_one
from tests.contract.invariants import end_lease_early
from tests.servers import ValkeyServer

HEAD = Head("/v1/chat/completions", "llama", stream=True).encode()
EVENTS = [b"data: %d\n\n" % n for n in range(1, 10)]
EVENT = st.sampled_from(
    [
        b"data: 1\n\n",
        b"data: \xff\r\n\r\n",
        b": x\n\n",
        b"\n\n",
        b"id: 9\ndata: a\ndata: b\n\n",
        b"data: c\r\r",
        b"data: d",
    ]
)
_names = count()


class Lossy:
    """A subscription that loses messages, as `loses` says."""

    def __init__(self, signals: Signals, loses: Callable[[], bool]) -> None:
        self._signals = signals
        self._loses = loses

    def listen(self, channel: str, hear: Hear) -> AbstractAsyncContextManager[None]:
        return self._signals.listen(channel, lambda text: None if self._loses() else hear(text))


class Reader:
    """One caller, who may hang up and come again."""

    def __init__(self, queue: Queue, signals: Signals | Lossy, job_id: str) -> None:
        self.streams = Streams(queue, signals)  # pyright: ignore[reportArgumentType]
        self.events: list[Event] = []
        self._job_id = job_id

    @property
    def text(self) -> bytes:
        return b"".join(event.data for event in self.events)

    async def read(self, most: int = 10**9, closing: asyncio.Event | None = None) -> Ended | None:
        """Goes on until it has so many events more, and hangs up; returns the end, if it is reached."""
        after = self.events[-1].position if self.events else None
        items = self.streams.events(self._job_id, after, closing)
        try:
            async for item in items:
                if isinstance(item, Ended):
                    return item
                if not isinstance(item, Pause):
                    self.events += item[:most]
                    most -= len(item)
                    if most <= 0:
                        return None
            raise AssertionError("it has an end")
        finally:
            await items.aclose()


async def begun(queue: Queue, pool: Pool) -> tuple[str, Lease]:
    """A job that runs."""
    submitted = await queue.submit(pool, JobSpec("ann", "default", b"{}", HEAD))
    return submitted.id, await take_one(queue, pool)


async def append(queue: Queue, pool: Pool, lease: Lease, first: int, *events: bytes) -> None:
    chunk = Chunk(lease.token, first, first + len(events) - 1, b"".join(events))
    assert await queue.append(pool, [(lease.id, chunk)]) == ["ok"]


async def lose(queue: Queue, pool: Pool, lease: Lease) -> None:
    """Its dispatcher has vanished."""
    await end_lease_early(queue, pool, lease.id)
    await queue.sweep(pool)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[Queue, Pool, Signals]]:
    queue = await Queue.open(url, namespace=f"r{next(_names)}x{random.randrange(10**9)}")
    pool = await queue.pools.open("llama", Policy(stale_ms=3_600_000))
    await open_backend(queue, pool, "b1", 1000)
    async with queue.signals() as signals:
        yield queue, pool, signals
    await queue.close()


def parts_of(text: bytes, lengths: Sequence[int]) -> list[bytes]:
    parts: list[bytes] = []
    for length in lengths:
        parts.append(text[:length])
        text = text[length:]
    return [*parts, text]


@given(
    text=st.lists(EVENT, max_size=30).map(b"".join),
    lengths=st.lists(st.integers(1, 40), max_size=20),
    cuts=st.lists(st.lists(st.integers(1, 5), max_size=6), min_size=1, max_size=3),
    loses=st.integers(0, 100),
    forgets=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_streams_cut_at_random_points_and_resumed_give_byte_equal_text(
    valkey: ValkeyServer, text: bytes, lengths: list[int], cuts: list[list[int]], loses: int, forgets: bool
) -> None:
    """With messages lost, parts of any size, several readers, each on front doors of its own; and one that is late."""
    dice = random.Random(loses)

    async def run() -> None:
        async with opened(valkey.url) as (queue, pool, signals):
            job_id, lease = await begun(queue, pool)
            lossy = Lossy(signals, lambda: dice.randrange(100) < loses)
            readers = [Reader(queue, lossy, job_id) for _ in cuts]
            reading = [asyncio.create_task(cut_again_and_again(*pair)) for pair in zip(readers, cuts, strict=True)]
            await spoken(queue, pool, lease, parts_of(text, lengths))
            await queue.settle(pool, lease, "succeeded", status=200, result=text)
            await asyncio.gather(*reading)
            if forgets:
                client: Any = queue.store.raw
                await client.delete(pool.key("chunks", job_id))
            late = Reader(queue, signals, job_id)
            await cut_again_and_again(late, cuts[0])
            for reader in (*readers, late):
                assert reader.text == (text if sse.is_stream(text) or not forgets or reader is not late else b"")
                assert [event.position.ordinal for event in reader.events] == list(range(1, len(reader.events) + 1))

    async def cut_again_and_again(reader: Reader, cuts: list[int]) -> None:
        for most in cuts:
            if await reader.read(most):
                break
        await reader.read()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("producer.streaming.REREAD_S", (0.02, 0.04))
        asyncio.run(run())


async def spoken(queue: Queue, pool: Pool, lease: Lease, parts: Sequence[bytes]) -> None:
    """What a dispatcher makes of it, as it comes from a backend."""
    flow: Flow = Relay(queue, pool).open(Hold(lease, 0.0, 30_000))
    for part in parts:
        flow.hear(part)
        await asyncio.sleep(0)
    await flow.finish(whole=True)
    flow.close()


async def test_a_reader_who_hears_nothing_reads_again(
    queue: Queue, pool: Pool, signals: Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 20: every message is lost, also the last word."""
    monkeypatch.setattr("producer.streaming.REREAD_S", (0.02, 0.04))
    job_id, lease = await begun(queue, pool)
    reader = Reader(queue, Lossy(signals, lambda: True), job_id)
    reading = asyncio.create_task(reader.read())
    for n, event in enumerate(EVENTS, 1):
        await append(queue, pool, lease, n, event)
        await asyncio.sleep(0.01)
    await queue.settle(pool, lease, "succeeded", status=200, result=b"".join(EVENTS))
    assert await reading
    assert [event.data for event in reader.events] == EVENTS


async def test_a_gap_is_filled_at_once(queue: Queue, pool: Pool, signals: Signals) -> None:
    """Not only when it is time to read again anyhow."""
    told = count(1)
    job_id, lease = await begun(queue, pool)
    reader = Reader(queue, Lossy(signals, lambda: next(told) in (2, 3)), job_id)
    reading = asyncio.create_task(reader.read(5))
    await subscribed(queue, pool, job_id)
    async with asyncio.timeout(3):
        for n, event in enumerate(EVENTS[:5], 1):
            await append(queue, pool, lease, n, event)
        await reading
    assert [event.data for event in reader.events] == EVENTS[:5]


async def test_after_a_broken_subscription_nothing_is_missed(queue: Queue, pool: Pool, signals: Signals) -> None:
    client: Any = queue.store.raw
    job_id, lease = await begun(queue, pool)
    reader = Reader(queue, signals, job_id)
    reading = asyncio.create_task(reader.read(len(EVENTS)))
    await subscribed(queue, pool, job_id)
    async with asyncio.timeout(3):
        for n, event in enumerate(EVENTS, 1):
            if n % 3 == 0:
                await client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            await append(queue, pool, lease, n, event)
        await reading
    assert [event.data for event in reader.events] == EVENTS


async def test_who_has_events_of_a_lost_attempt_is_told_and_who_has_none_follows_the_next(
    queue: Queue, pool: Pool, signals: Signals
) -> None:
    job_id, lost = await begun(queue, pool)
    had, none = Reader(queue, signals, job_id), Reader(queue, signals, job_id)
    await append(queue, pool, lost, 1, *EVENTS[:3])
    await had.read(2)
    await lose(queue, pool, lost)
    waiting = asyncio.create_task(none.read())
    with pytest.raises(StreamBroken):
        await had.read()
    lease = await take_one(queue, pool)
    await append(queue, pool, lease, 1, b"data: new\n\n")
    with pytest.raises(StreamBroken):
        await had.read()
    await queue.settle(pool, lease, "succeeded", status=200, result=b"data: new\n\n")
    with pytest.raises(StreamBroken):
        await had.read()
    assert await waiting
    assert none.text == b"data: new\n\n"


async def test_who_reads_while_the_attempt_is_lost_is_told(queue: Queue, pool: Pool, signals: Signals) -> None:
    job_id, lost = await begun(queue, pool)
    reader = Reader(queue, signals, job_id)
    await append(queue, pool, lost, 1, EVENTS[0])
    await reader.read(1)
    reading = asyncio.create_task(reader.read())
    await subscribed(queue, pool, job_id)
    await lose(queue, pool, lost)
    await append(queue, pool, await take_one(queue, pool), 1, EVENTS[0])
    async with asyncio.timeout(2):
        with pytest.raises(StreamBroken):
            await reading


async def test_a_job_that_is_moved_while_it_waits_is_followed(queue: Queue, pool: Pool, signals: Signals) -> None:
    target = await queue.pools.open("mistral", Policy(stale_ms=3_600_000))
    await queue.set_backend(target, "m1", "add", spec=BackendSpec("http://scripted"))
    await set_gate(queue, target, "m1", 10)
    job_id = (await queue.submit(pool, JobSpec("ann", "default", b"{}", HEAD))).id
    reader = Reader(queue, signals, job_id)
    reading = asyncio.create_task(reader.read())
    await subscribed(queue, pool, job_id)
    await queue.move(job_id, target)
    async with asyncio.timeout(3):
        await subscribed(queue, target, job_id)
        lease = await take_one(queue, target)
        await append(queue, target, lease, 1, *EVENTS)
        await queue.settle(target, lease, "succeeded", status=200, result=b"".join(EVENTS))
        assert await reading
    assert reader.text == b"".join(EVENTS)


async def test_what_redis_had_no_room_for_comes_from_the_result(queue: Queue, pool: Pool, signals: Signals) -> None:
    job_id, lease = await begun(queue, pool)
    reader = Reader(queue, signals, job_id)
    await append(queue, pool, lease, 1, *EVENTS[:4])
    await queue.settle(pool, lease, "succeeded", status=200, result=b"".join(EVENTS))
    await reader.read()
    assert reader.text == b"".join(EVENTS)
    assert reader.events[-1].position == Position(lease.token, len(EVENTS))


async def test_a_process_that_ends_tells_its_readers(queue: Queue, pool: Pool, signals: Signals) -> None:
    job_id, lease = await begun(queue, pool)
    reader, closing = Reader(queue, signals, job_id), asyncio.Event()
    await append(queue, pool, lease, 1, EVENTS[0])
    reading = asyncio.create_task(reader.read(closing=closing))
    await subscribed(queue, pool, job_id)
    closing.set()
    with pytest.raises(Draining):
        await reading
    await queue.settle(pool, lease, "succeeded", status=200, result=EVENTS[0])
    assert await reader.read()  # elsewhere
    assert reader.text == EVENTS[0]


async def subscribed(queue: Queue, pool: Pool, job_id: str) -> None:
    client: Any = queue.store.raw
    async with asyncio.timeout(5):
        while not await client.pubsub_channels(pool.key("settled", job_id)):
            await asyncio.sleep(0.002)


async def test_while_redis_is_away_a_reader_waits_and_then_is_told(
    queue: Queue, pool: Pool, signals: Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 18. Nothing is lost: told or not, it goes on where it was."""
    monkeypatch.setattr("producer.streaming.AGAIN_S", (0.01, 0.02))
    monkeypatch.setattr("producer.streaming.OUTAGE_S", 0.3)
    chunks, is_away = queue.inspect.chunks, True

    async def away(*args: Any) -> Page:
        if is_away:
            raise StoreUnavailable()
        return await chunks(*args)

    monkeypatch.setattr(queue.inspect, "chunks", away)
    job_id, lease = await begun(queue, pool)
    await append(queue, pool, lease, 1, *EVENTS)
    reader = Reader(queue, signals, job_id)
    with pytest.raises(StoreUnavailable):
        await reader.read()
    reading = asyncio.create_task(reader.read(len(EVENTS)))
    await subscribed(queue, pool, job_id)
    is_away = False
    await reading
    assert [event.data for event in reader.events] == EVENTS


async def test_what_was_said_before_a_dead_job_was_requeued_is_not_handed_on(
    queue: Queue, pool: Pool, signals: Signals
) -> None:
    submitted = await queue.submit(pool, JobSpec("ann", "default", b"{}", HEAD, max_attempts=1))
    lease = await take_one(queue, pool)
    await append(queue, pool, lease, 1, b"data: old\n\n")
    assert await queue.retry(pool, lease, REFUSED, delay_ms=0) == "failed"
    await queue.requeue(submitted.id)
    reader = Reader(queue, signals, submitted.id)
    reading = asyncio.create_task(reader.read())
    await subscribed(queue, pool, submitted.id)
    lease = await take_one(queue, pool)
    await append(queue, pool, lease, 1, b"data: new\n\n")
    await queue.settle(pool, lease, "succeeded", status=200, result=b"data: new\n\n")
    assert await reading
    assert reader.text == b"data: new\n\n"
