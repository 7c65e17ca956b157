"""What was read a moment ago is remembered, for a moment, and read once for all who ask."""

from __future__ import annotations

import asyncio
import gc
import weakref

from producer.fresh import Fresh


class Source:
    """Counts reads; fails while `fails`; answers when `go` is set. `now` is its clock."""

    def __init__(self) -> None:
        self.reads: list[str] = []
        self.fails = False
        self.now = 0.0
        self.go = asyncio.Event()
        self.go.set()

    async def read(self, key: str) -> str:
        self.reads.append(key)
        await self.go.wait()
        if self.fails:
            raise ConnectionError
        return f"{key}{len(self.reads)}"

    def fresh(self, most: int = 10) -> Fresh[str, str]:
        return Fresh(self.read, age_s=1.0, most=most, clock=lambda: self.now)


async def test_it_is_read_again_when_it_is_old() -> None:
    source = Source()
    fresh = source.fresh()
    assert [await fresh.get("a"), await fresh.get("a")] == ["a1", "a1"]
    source.now = 0.99
    assert await fresh.get("a") == "a1"
    source.now = 1.0
    assert await fresh.get("a") == "a2"


async def test_its_age_counts_from_when_it_was_asked_for() -> None:
    source = Source()
    fresh = source.fresh()
    source.go.clear()
    first = asyncio.create_task(fresh.get("a"))
    await asyncio.sleep(0)
    source.now = 1.0
    second = asyncio.create_task(fresh.get("a"))
    await asyncio.sleep(0)
    source.go.set()
    assert (await first, await second) == ("a2", "a2")
    assert source.reads == ["a", "a"]
    assert await fresh.get("a") == "a2"
    assert len(source.reads) == 2


async def test_those_who_ask_at_once_share_one_read_also_if_the_first_is_cut_off() -> None:
    source = Source()
    fresh = source.fresh()
    source.go.clear()
    first, *others = [asyncio.create_task(fresh.get("a")) for _ in range(20)]
    await asyncio.sleep(0)
    first.cancel()
    source.go.set()
    assert set(await asyncio.gather(*others)) == {"a1"}


async def test_a_failure_is_everyones_and_is_not_remembered() -> None:
    source = Source()
    fresh = source.fresh()
    source.fails = True
    done = await asyncio.gather(*(fresh.get("a") for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in done] == [ConnectionError] * 3
    source.fails = False
    assert await fresh.get("a") == "a2"


async def test_what_was_asked_for_longest_ago_makes_room() -> None:
    source = Source()
    fresh = source.fresh(most=2)
    for key in ("a", "b", "a", "c"):
        await fresh.get(key)
    assert source.reads == ["a", "b", "c"]
    assert await fresh.get("a") == "a1"
    await fresh.get("b")
    assert source.reads == ["a", "b", "c", "b"]


async def test_what_is_old_is_let_go_when_something_new_comes() -> None:
    kept: list[weakref.ref[Answer]] = []

    async def read(key: str) -> Answer:
        kept.append(weakref.ref(answer := Answer()))
        return answer

    now = 0.0
    fresh = Fresh(read, age_s=1.0, most=1000, clock=lambda: now)
    for n in range(50):
        await fresh.get(f"{n}")
    now = 1.0
    await fresh.get("new")
    gc.collect()
    assert [number for number, answer in enumerate(kept) if answer() is not None] == [50]


class Answer:
    """Something that can be let go."""
