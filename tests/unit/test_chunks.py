"""Many items go out chunk by chunk: in order, each once, and what fails does not touch the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fairlane.errors import FairlaneError, InvalidRequest, StoreUnavailable
from fairlane.queue.chunks import CALL_BYTES, CALL_JOBS, send_in_chunks


class Wire:
    """Answers each item with itself, and keeps what it saw; `faults` are raised for the chunks of these numbers."""

    def __init__(self, **faults: FairlaneError) -> None:
        self.calls: list[list[int]] = []
        self.events: list[str] = []
        self._faults = faults

    def pack(self, chunk: Sequence[int]) -> list[int]:
        self.events.append(f"packed {chunk[0]}")
        return list(chunk)

    async def send(self, packed: list[int]) -> list[int]:
        self.events.append(f"sent {packed[0]}")
        self.calls.append(packed)
        for _ in range(10):
            await asyncio.sleep(0)
        if fault := self._faults.get(f"n{len(self.calls)}"):
            raise fault
        self.events.append(f"answered {packed[0]}")
        return packed

    async def run(self, n: int, size: int = 1) -> list[int | FairlaneError]:
        return await send_in_chunks(range(n), lambda _: size, self.pack, self.send)


@pytest.mark.parametrize("n", [0, 1, CALL_JOBS, CALL_JOBS + 1, 3 * CALL_JOBS + 7])
async def test_all_are_answered_in_order(n: int) -> None:
    wire = Wire()
    assert await wire.run(n) == list(range(n))
    assert [item for call in wire.calls for item in call] == list(range(n))
    assert all(len(call) <= CALL_JOBS for call in wire.calls)


async def test_large_items_go_fewer_at_a_time() -> None:
    wire = Wire()
    await wire.run(5, size=CALL_BYTES // 2)
    assert wire.calls == [[0, 1], [2, 3], [4]]


async def test_the_next_is_packed_while_one_is_on_its_way_and_sent_after_its_answer() -> None:
    wire = Wire()
    await wire.run(2 * CALL_JOBS)
    assert wire.events == ["packed 0", "sent 0", "packed 100", "answered 0", "sent 100", "answered 100"]


async def test_a_chunk_that_fails_is_answered_with_its_error_and_the_next_goes_on() -> None:
    fault = InvalidRequest("no")
    wire = Wire(n2=fault)
    assert await wire.run(250) == [*range(100), *[fault] * 100, *range(200, 250)]
    assert [call[0] for call in wire.calls] == [0, 100, 200]


async def test_what_comes_after_a_store_that_is_away_is_not_sent() -> None:
    fault = StoreUnavailable()
    wire = Wire(n2=fault)
    assert await wire.run(450) == [*range(100), *[fault] * 350]
    assert [call[0] for call in wire.calls] == [0, 100]


async def test_who_is_cancelled_leaves_nothing_on_its_way() -> None:
    wire, before = Wire(), asyncio.all_tasks()
    running = asyncio.create_task(wire.run(300))
    for _ in range(5):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert asyncio.all_tasks() == before
    assert wire.events == ["packed 0", "sent 0", "packed 100"]
