"""Streamed answers: appended in order, once, and only by who holds the lease; read again from any position."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import NotFound
from fairlane.model import Lease
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.streams import KEPT_MS, PAGE, Chunk, Origin, Position, heard
from tests.contract.acts import REFUSED, finish, submit, take, take_one
from tests.contract.test_messages import hear

pytestmark = pytest.mark.usefixtures("invariants")


def chunk(lease: Lease, first: int, *events: bytes) -> tuple[str, Chunk]:
    return lease.id, Chunk(lease.token, first, first + len(events) - 1, b"".join(events))


async def text_of(queue: Queue, pool: Pool, job_id: str, after: Position | None = None) -> bytes:
    page = await queue.inspect.chunks(pool, job_id, after)
    return b"".join(text for _, text in page.chunks)


async def test_what_is_appended_is_read_from_any_position(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool)
    lease = await take_one(queue, pool)
    assert await queue.append(pool, [chunk(lease, 1, b"a", b"b"), chunk(lease, 3, b"\xff\x00\n")]) == ["ok", "ok"]
    page = await queue.inspect.chunks(pool, lease.id)
    at = [Position(lease.token, 2), Position(lease.token, 3)]
    assert (page.state, page.token, page.more) == ("leased", lease.token, False)
    assert page.chunks == ((at[0], b"ab"), (at[1], b"\xff\x00\n"))
    assert await text_of(queue, pool, lease.id, Position(lease.token, 1)) == b"ab\xff\x00\n"  # 2 is in the first
    assert await text_of(queue, pool, lease.id, at[0]) == b"\xff\x00\n"
    assert await text_of(queue, pool, lease.id, at[1]) == b""
    await finish(queue, pool, [lease])
    assert (await queue.inspect.chunks(pool, lease.id)).state == "succeeded"


async def test_repeated_it_changes_nothing(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool)
    lease = await take_one(queue, pool)
    for _ in range(3):
        assert await queue.append(pool, [chunk(lease, 1, b"a"), chunk(lease, 2, b"b")]) == ["ok", "ok"]
    assert await text_of(queue, pool, lease.id) == b"ab"
    await finish(queue, pool, [lease])


async def test_many_streams_go_in_one_call_each_on_its_own(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, n=250)
    leases = [lease for _ in range(3) for lease in await take(queue, pool, 100)]
    await queue.cancel(leases[7].id)
    await queue.release(pool, leases[8])
    answers = await queue.append(pool, [chunk(lease, 1, lease.id.encode()) for lease in leases])
    assert (answers[7], answers[8]) == ("cancelled", "lost")
    assert answers[:7] + answers[9:] == ["ok"] * 248
    assert await text_of(queue, pool, leases[249].id) == leases[249].id.encode()
    assert await text_of(queue, pool, leases[7].id) == b""
    await queue.release(pool, leases[7])


async def test_a_lost_lease_cannot_append(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool)
    old = await take_one(queue, pool)
    clock.advance(pool.policy.lease_ms)
    await queue.sweep(pool)
    assert await queue.append(pool, [chunk(old, 1, b"late")]) == ["lost"]
    new = await take_one(queue, pool)
    assert new.token > old.token
    assert await queue.append(pool, [chunk(old, 1, b"late"), chunk(new, 1, b"new")]) == ["lost", "ok"]
    assert await text_of(queue, pool, new.id) == b"new"


@pytest.mark.parametrize("end", ["settle", "retry", "cancel"])
async def test_nobody_appends_once_the_attempt_has_ended(queue: Queue, pool: Pool, end: str) -> None:
    await submit(queue, pool)
    lease = await take_one(queue, pool)
    match end:
        case "settle":
            await finish(queue, pool, [lease])
        case "retry":
            await queue.retry(pool, lease, REFUSED, delay_ms=1000)
        case _:
            await queue.cancel(lease.id)
    assert await queue.append(pool, [chunk(lease, 1, b"x")]) == ["cancelled" if end == "cancel" else "lost"]
    if end == "cancel":
        await queue.release(pool, lease)


async def test_the_first_chunk_of_an_attempt_takes_the_earlier_ones_away(
    queue: Queue, pool: Pool, clock: ManualClock, client: Any
) -> None:
    await submit(queue, pool)
    old = await take_one(queue, pool)
    await queue.append(pool, [chunk(old, n, b"old") for n in range(1, 9)])
    clock.advance(pool.policy.lease_ms)
    await queue.sweep(pool)
    assert await text_of(queue, pool, old.id) == b""  # they are of no attempt that is still
    new = await take_one(queue, pool)
    await queue.append(pool, [chunk(new, 1, b"new")])
    assert await client.xlen(pool.key("chunks", new.id)) == 1


async def test_it_is_kept_for_a_while_after_the_last_chunk(queue: Queue, pool: Pool, client: Any) -> None:
    await submit(queue, pool)
    lease = await take_one(queue, pool)
    await queue.append(pool, [chunk(lease, 1, b"x")])
    assert KEPT_MS - 5_000 < await client.pttl(pool.key("chunks", lease.id)) <= KEPT_MS


async def test_long_streams_are_read_page_by_page(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool)
    lease = await take_one(queue, pool)
    await queue.append(pool, [chunk(lease, n, b"%d," % n) for n in range(1, 2 * PAGE + 2)])
    seen, after, pages = b"", None, 0
    while True:
        page = await queue.inspect.chunks(pool, lease.id, after)
        seen += b"".join(text for _, text in page.chunks)
        pages += 1
        if not page.more:
            break
        after = page.chunks[-1][0]
    assert (seen, pages) == (b"".join(b"%d," % n for n in range(1, 2 * PAGE + 2)), 3)


async def test_readers_are_told_of_each_chunk(queue: Queue, pool: Pool, client: Any) -> None:
    await submit(queue, pool)
    lease = await take_one(queue, pool)
    for first, events in ((1, b"data: 1\n\n"), (2, b"x" * 20_000)):
        sent = chunk(lease, first, events)
        told = heard(await hear(client, pool.key("chunks", lease.id), lambda sent=sent: queue.append(pool, [sent])))
        large = len(events) > 16_384  # which the reader fetches itself
        waited = Origin("b1", lease.until_ms - pool.policy.lease_ms - lease.arrived_at_ms) if first == 1 else None
        assert told == Chunk(lease.token, first, first, None if large else events, waited)


async def test_a_job_that_is_not_there_has_no_stream(queue: Queue, pool: Pool) -> None:
    with pytest.raises(NotFound):
        await queue.inspect.chunks(pool, "job_gone")
