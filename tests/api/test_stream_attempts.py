"""Whatever becomes of the attempts, a reader never hands on the events of two as one text, and never leaves any out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.errors import InvalidRequest, StreamBroken
from fairlane.model import JobError, JobSpec, Lease
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from fairlane.queue.streams import Page, Position
from producer.streaming import AT_ONCE, Event, Streams
from tests.api.test_stream_readers import EVENTS, HEAD, Lossy, Reader, append, begun, lose, subscribed
from tests.contract.acts import set_gate, take_one

TIMEOUT = JobError("timeout", "It took too long.", 504)
TEXT = b"".join(EVENTS)


async def fail(queue: Queue, pool: Pool, lease: Lease, result: bytes = b"") -> None:
    await queue.settle(pool, lease, "failed", status=504, result=result, error=TIMEOUT)


async def forget_chunks(queue: Queue, pool: Pool, job_id: str) -> None:
    """Their time is over."""
    client: Any = queue.store.raw
    await client.delete(pool.key("chunks", job_id))


def who_had(queue: Queue, signals: Signals | Lossy, job_id: str, at: Position) -> Reader:
    """One who comes again, after an event that came before."""
    reader = Reader(queue, signals, job_id)
    reader.events = [Event(at, b"")]
    return reader


@pytest.mark.parametrize("end", ["failed", "cancelled", "cancelled while it waits", "lost again"])
async def test_of_a_job_that_is_over_who_has_events_of_an_earlier_attempt_gets_the_outcome_alone(
    queue: Queue, pool: Pool, signals: Signals, end: str
) -> None:
    submitted = await queue.submit(pool, JobSpec("ann", "default", b"{}", HEAD, max_attempts=2))
    lease = await take_one(queue, pool)
    await append(queue, pool, lease, 1, *EVENTS[:3])
    reader = Reader(queue, signals, submitted.id)
    await reader.read(3)
    await lose(queue, pool, lease)
    if end == "cancelled while it waits":
        await queue.cancel(submitted.id)
    else:
        again = await take_one(queue, pool)
        await append(queue, pool, again, 1, *(b"data: new %d\n\n" % n for n in range(9)))
        match end:
            case "failed":
                await fail(queue, pool, again)
            case "cancelled":
                await queue.cancel(submitted.id)
            case _:
                await lose(queue, pool, again)
    ended = await reader.read()
    assert ended
    assert ended.job.state == end.split()[0].replace("lost", "failed")
    assert [event.data for event in reader.events] == EVENTS[:3]


async def test_a_stream_that_was_handed_back_begins_anew(queue: Queue, pool: Pool, signals: Signals) -> None:
    job_id, lease = await begun(queue, pool)
    had, none = Reader(queue, signals, job_id), Reader(queue, signals, job_id)
    for n, event in enumerate(EVENTS, 1):
        await append(queue, pool, lease, n, event)
    await had.read(2)
    await queue.release(pool, lease)
    with pytest.raises(StreamBroken):
        await had.read()
    reading = asyncio.create_task(none.read())
    again = await take_one(queue, pool)
    await append(queue, pool, again, 1, b"data: new\n\n")
    await queue.settle(pool, again, "succeeded", status=200, result=b"data: new\n\n")
    await reading
    assert none.text == b"data: new\n\n"


async def test_a_job_that_waits_again_is_not_read_all_the_time(
    queue: Queue, pool: Pool, signals: Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although more was said in its last attempt than fits into one read."""
    job_id, lease = await begun(queue, pool)
    for n in range(1, 151):
        await append(queue, pool, lease, n, b"data: %d\n\n" % n)
    await set_gate(queue, pool, "b1", 0)
    await queue.release(pool, lease)
    chunks, reads = queue.inspect.chunks, 0

    async def counted(*args: Any) -> Page:
        nonlocal reads
        reads += 1
        return await chunks(*args)

    monkeypatch.setattr(queue.inspect, "chunks", counted)
    reading = asyncio.create_task(Reader(queue, signals, job_id).read())
    await subscribed(queue, pool, job_id)
    await asyncio.sleep(0.3)
    assert reads <= 2
    await queue.cancel(job_id)
    await reading


class TestGaps:
    """Events that are gone before they were handed on."""

    async def test_while_the_job_runs_the_stream_is_broken(self, queue: Queue, pool: Pool, signals: Signals) -> None:
        job_id, lease = await begun(queue, pool)
        await append(queue, pool, lease, 1, *EVENTS[:2])
        await forget_chunks(queue, pool, job_id)
        await append(queue, pool, lease, 3, *EVENTS[2:4])
        for reader in (Reader(queue, signals, job_id), who_had(queue, signals, job_id, Position(lease.token, 1))):
            with pytest.raises(StreamBroken):
                await reader.read()
        had_all = who_had(queue, signals, job_id, Position(lease.token, 2))
        await had_all.read(2)
        assert had_all.text == b"".join(EVENTS[2:4])

    @pytest.mark.parametrize("state", ["succeeded", "failed"])
    async def test_once_it_is_over_they_come_from_the_result(
        self, queue: Queue, pool: Pool, signals: Signals, state: str
    ) -> None:
        job_id, lease = await begun(queue, pool)
        await append(queue, pool, lease, 1, *EVENTS[:2])
        await forget_chunks(queue, pool, job_id)
        await append(queue, pool, lease, 3, *EVENTS[2:4])
        if state == "succeeded":
            await queue.settle(pool, lease, "succeeded", status=200, result=TEXT)
        else:
            await fail(queue, pool, lease, TEXT)
        reader = Reader(queue, signals, job_id)
        await reader.read()
        assert reader.text == TEXT
        assert [event.position.ordinal for event in reader.events] == list(range(1, len(EVENTS) + 1))

    async def test_chunks_are_kept_for_as_long_as_the_lease_is_renewed(self, queue: Queue, pool: Pool) -> None:
        client: Any = queue.store.raw
        job_id, lease = await begun(queue, pool)
        await append(queue, pool, lease, 1, EVENTS[0])
        await client.pexpire(pool.key("chunks", job_id), 5_000)
        assert await queue.renew(pool, [lease]) == ["ok"]
        assert await client.pttl(pool.key("chunks", job_id)) > 500_000


class TestPositions:
    """One that does not exist is refused, rather than taken for the end."""

    @pytest.mark.parametrize("of", ["the running attempt", "an attempt to come"])
    async def test_beyond_a_stream_that_runs(self, queue: Queue, pool: Pool, signals: Signals, of: str) -> None:
        job_id, lease = await begun(queue, pool)
        await append(queue, pool, lease, 1, *EVENTS)
        at = Position(lease.token, 10) if of == "the running attempt" else Position(lease.token + 1, 1)
        with pytest.raises(InvalidRequest):
            await who_had(queue, signals, job_id, at).read()

    @pytest.mark.parametrize("kept", [True, False], ids=["chunks", "result"])
    @pytest.mark.parametrize("state", ["succeeded", "failed"])
    async def test_beyond_a_stream_that_has_ended(
        self, queue: Queue, pool: Pool, signals: Signals, state: str, kept: bool
    ) -> None:
        job_id, lease = await begun(queue, pool)
        await append(queue, pool, lease, 1, *EVENTS)
        if state == "succeeded":
            await queue.settle(pool, lease, "succeeded", status=200, result=TEXT)
        else:
            await fail(queue, pool, lease, TEXT)
        if not kept:
            await forget_chunks(queue, pool, job_id)
        with pytest.raises(InvalidRequest):
            await who_had(queue, signals, job_id, Position(lease.token, 10)).read()
        at_the_end = who_had(queue, signals, job_id, Position(lease.token, 9))
        assert await at_the_end.read()
        assert at_the_end.text == b""


async def test_a_large_replay_leaves_room_for_others_and_comes_in_parts(
    queue: Queue, pool: Pool, signals: Signals
) -> None:
    """Eight megabytes of blank lines are four million events."""
    job_id, lease = await begun(queue, pool)
    text = b"data: 1\n\n" + b"\n" * (8 << 20)
    await queue.settle(pool, lease, "succeeded", status=200, result=text)
    ticks, parts = 0, 0

    async def others() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(others())
    items = Streams(queue, signals).events(job_id)
    async with asyncio.timeout(20):
        async for item in items:
            assert isinstance(item, list)
            assert len(item) <= AT_ONCE
            parts += 1
            if parts == 200:
                break
    await items.aclose()
    working.cancel()
    assert ticks >= 200


async def test_one_read_takes_so_many_bytes_at_the_most(queue: Queue, pool: Pool) -> None:
    job_id, lease = await begun(queue, pool)
    event = b"data: " + b"x" * 30_000 + b"\n\n"
    for n in range(1, 31):
        await append(queue, pool, lease, n, event)
    read: list[Position] = []
    while True:
        page = await queue.inspect.chunks(pool, job_id, read[-1] if read else None)
        assert sum(len(text) for _, text in page.chunks) < (128 << 10) + len(event)
        read += [at for at, _ in page.chunks]
        if not page.more:
            break
    assert [at.ordinal for at in read] == list(range(1, 31))
