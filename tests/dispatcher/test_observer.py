"""The observer: what it writes for the fleet, for a backend that shows this or that."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from fairlane.model import BackendSpec, Policy, TierGate
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.standing import BackendView
from tests.contract.acts import NOTHING_COUNTED, take
from tests.dispatcher.observing import SCRAPE_S, observed, reached, seen, view
from tests.dispatcher.pages import Page
from tests.dispatcher.scripted import submit, until

TIERS = ("priority", "default", "flex", "batch")


@pytest.fixture
def policy() -> Policy:
    return Policy(stale_ms=round(3000 * SCRAPE_S))


@pytest.fixture
async def pool(queue: Queue, policy: Policy) -> Pool:
    made = await queue.pools.open("llama", policy)
    await queue.set_backend(made, "b1", "add", spec=BackendSpec("http://b1"))
    return made


async def limits(queue: Queue, pool: Pool) -> list[int]:
    gates = (await view(queue, pool)).gates
    return [gates[tier].limit for tier in TIERS]


async def test_it_writes_each_tier_s_limit_the_numbers_and_the_reason(queue: Queue, pool: Pool) -> None:
    """Case 6."""
    page = Page()
    page.kv = 0.5
    async with observed(queue, pool, page):
        await reached(queue, pool, running=0, waiting=0, kv=0.5, token_ms=20.0, slow=False, missing=[])
        assert await limits(queue, pool) == [4, 3, 2, 2]  # a new one has K = cap = 1, and θ = 3, 2, 1, 1
        gates = (await view(queue, pool)).gates
        assert {gate.why for gate in gates.values()} == {"full"}


async def test_the_lowest_tier_waits_for_an_empty_queue_and_lower_tiers_for_memory(queue: Queue, pool: Pool) -> None:
    page = Page()
    page.running, page.waiting, page.kv = 3, 1, 0.96
    async with observed(queue, pool, page):
        await reached(queue, pool, waiting=1)
        gates = (await view(queue, pool)).gates
        assert gates["priority"].limit > 0
        assert [(gates[tier].limit, gates[tier].why) for tier in TIERS[1:]] == [(0, "kv")] * 3
        page.kv = 0.1
        await reached(queue, pool, kv=0.1)
        assert await limits(queue, pool) == [4, 3, 2, 1]  # cap + θ, and none of the lowest tier waits


@pytest.mark.parametrize(("refused", "limit"), [(False, 12 + 3), (True, 4 + 3)])
async def test_what_an_engine_has_put_back_keeps_nobody_of_the_highest_tier_out_if_it_takes_our_priority(
    queue: Queue, pool: Pool, refused: bool, limit: int
) -> None:
    wide = {tier: TierGate(100, 100) for tier in TIERS}
    await queue.observe(pool, "b1", wide, counted=NOTHING_COUNTED, seen="{}")
    await submit(queue, pool, n=12, tier="batch")
    assert len(await take(queue, pool, 12)) == 12
    if refused:
        await queue.set_backend(pool, "b1", "no_priority")
    page = Page()
    page.running, page.waiting = 4, 8

    async def is_so() -> bool:
        return (await limits(queue, pool))[0] == limit

    async with observed(queue, pool, page):
        await reached(queue, pool, running=4, waiting=8)
        await until(is_so)
        assert (await limits(queue, pool))[1:] == [4 + 2, 4 + 1, 4], "nobody else goes ahead"


async def test_slow_tokens_shut_the_gate_until_they_are_clearly_faster(queue: Queue, pool: Pool) -> None:
    page = Page()
    page.token_ms = 160.0
    async with observed(queue, pool, page):
        await reached(queue, pool, slow=True)
        assert await limits(queue, pool) == [0, 0, 0, 0]
        page.token_ms = 140.0
        await until(lambda: _near(queue, pool, 140.0))
        assert (await seen(queue, pool))["slow"]
        page.token_ms = 130.0
        await reached(queue, pool, slow=False)


async def _near(queue: Queue, pool: Pool, token_ms: float) -> bool:
    shown = (await seen(queue, pool))["token_ms"]
    return shown is not None and abs(shown - token_ms) < 1


async def test_frozen_metrics_grow_stale_and_never_raise_a_limit(queue: Queue, pool: Pool) -> None:
    page = Page()
    async with observed(queue, pool, page):
        await reached(queue, pool, running=0)
        await submit(queue, pool, 10)
        taken = await take(queue, pool, 10)
        page.frozen = True
        looks = page.looks

        async def has_looked() -> bool:
            return page.looks > looks + 10

        await until(has_looked)
        before = await view(queue, pool)
        assert await take(queue, pool, 10) == []
        said = (await view(queue, pool)).said["default"]
        assert said.startswith("stale ")
        page.frozen = False
        await until(lambda: _fresher(queue, pool, before))
    assert 1 <= len(taken) <= 4


async def _fresher(queue: Queue, pool: Pool, before: BackendView) -> bool:
    return ((await view(queue, pool)).fresh_at_ms or 0) > (before.fresh_at_ms or 0)


@pytest.mark.parametrize("fault", ["renamed", "not-found"])
async def test_what_shows_no_load_is_bounded_by_its_slots_and_says_what_is_missing(
    queue: Queue, pool: Pool, fault: str
) -> None:
    """Case 5."""
    await queue.set_backend(pool, "b1", "add", spec=BackendSpec("http://b1", slots=5))
    page = Page()
    if fault == "renamed":
        page.names["running"] = "vllm:requests_that_run"
    else:
        page.status = 404
    async with observed(queue, pool, page):
        await reached(queue, pool, slots=5)
        shown = await seen(queue, pool)
        assert shown["missing"] == (["vllm:num_requests_running"] if fault == "renamed" else [])
        assert shown["why"]
        await submit(queue, pool, 10)
        assert len(await take(queue, pool, 10)) == 5


async def test_an_old_name_is_as_good(queue: Queue, pool: Pool) -> None:
    """Case 5."""
    page = Page()
    page.names["kv"], page.kv = "vllm:gpu_cache_usage_perc", 0.25
    async with observed(queue, pool, page):
        await reached(queue, pool, kv=0.25, missing=[])


async def test_a_backend_that_takes_no_connection_is_down_until_its_next_good_scrape(queue: Queue, pool: Pool) -> None:
    page = Page()
    async with observed(queue, pool, page):
        await reached(queue, pool, running=0)
        page.broken = httpx.ConnectError("refused")

        async def status_is(expected: str) -> bool:
            return (await view(queue, pool)).status == expected

        await until(lambda: status_is("down"))
        await submit(queue, pool)
        assert await take(queue, pool) == []
        page.broken = None
        await until(lambda: status_is("up"))
        assert len(await take(queue, pool)) == 1


@pytest.mark.parametrize("status", [401, 403, 301, 500])
async def test_a_backend_whose_metrics_were_never_read_is_bounded_by_its_slots(
    queue: Queue, pool: Pool, status: int
) -> None:
    """Found by attack: it got one job at a time, for ever."""
    await queue.set_backend(pool, "b1", "add", spec=BackendSpec("http://b1", slots=5))
    page = Page()
    page.status = status
    async with observed(queue, pool, page):
        await reached(queue, pool, slots=5)
        assert str(status) in (await seen(queue, pool))["why"]


async def test_metrics_that_break_do_not_keep_a_backend_down_that_answers(queue: Queue, pool: Pool) -> None:
    """Found by attack: one reset shut it, and only a good page would have opened it again."""
    page = Page()
    async with observed(queue, pool, page):
        await reached(queue, pool, running=0)
        page.status = 500

        async def is_up() -> bool:
            return (await view(queue, pool)).status == "up"

        for _ in range(2):
            await queue.set_backend(pool, "b1", "down")
            await until(is_up)


async def test_a_page_without_counters_is_not_taken_for_a_frozen_one(queue: Queue, pool: Pool) -> None:
    page = Page()
    page.counts = False
    async with observed(queue, pool, page):
        await reached(queue, pool, running=0)
        await submit(queue, pool, 3)
        assert await take(queue, pool, 1)
        before = await view(queue, pool)
        await until(lambda: _fresher(queue, pool, before))
        assert "vllm:generation_tokens_total" in (await seen(queue, pool))["missing"]


async def test_one_bad_backend_does_not_touch_the_others(queue: Queue, pool: Pool) -> None:
    """Case 14."""
    await queue.set_backend(pool, "b2", "add", spec=BackendSpec("http://b2"))
    silent = Page()
    silent.broken = httpx.ReadTimeout("silent")
    async with observed(queue, pool, b1=silent, b2=Page()):
        await until(lambda: _is_fresh(queue, pool))
        await submit(queue, pool, 10)
        assert {lease.backend for lease in await take(queue, pool, 3)} >= {"b2"}
    assert (await view(queue, pool, "b1")).fresh_at_ms is None


async def _is_fresh(queue: Queue, pool: Pool) -> bool:
    return (await view(queue, pool, "b2")).fresh_at_ms is not None


async def test_the_next_observer_goes_on_where_the_last_one_stopped(queue: Queue, pool: Pool) -> None:
    page = Page()
    page.running = 4
    async with observed(queue, pool, page):
        await submit(queue, pool, 40)
        held: list[object] = []

        async def has_ramped() -> bool:
            held.extend(await take(queue, pool, 40))
            page.running = len(held)
            return len(held) >= 16

        await until(has_ramped)
        page.waiting = 2
        await reached(queue, pool, waiting=2)
        learned = (await seen(queue, pool))["capacity"]["k"]
    async with observed(queue, pool, page):
        looks = page.looks

        async def has_looked() -> bool:
            return page.looks > looks + 3

        await until(has_looked)
        assert abs((await seen(queue, pool))["capacity"]["k"] - learned) <= 4
    assert learned > 4


async def test_rooms_follow_the_tiers_that_are_active(queue: Queue, pool: Pool) -> None:
    page = Page()
    async with observed(queue, pool, page):
        await reached(queue, pool, rooms=[1.0, 1.0, 1.0, 1.0])
        from fairlane.model import JobSpec

        for tier in ("priority", "flex"):
            await queue.submit(pool, JobSpec("ann", tier, b"{}"))
        await reached(queue, pool, rooms=[1.0, 0.8, 0.8, 0.762])


async def test_backends_come_and_go(queue: Queue, pool: Pool) -> None:
    page = Page()
    async with observed(queue, pool, page):
        await reached(queue, pool, running=0)
        await queue.set_backend(pool, "b2", "add", spec=BackendSpec("http://b2"))
        await until(lambda: _is_fresh(queue, pool))
        await queue.set_backend(pool, "b1", "remove")
        before = page.looks

        async def has_looked() -> bool:
            return page.looks > before + 5

        await until(has_looked)
        assert [b.name for b in (await queue.inspect.load(pool)).backends] == ["b2"]


async def test_one_that_who_called_it_shut_is_looked_at_again_soon_although_nothing_runs_there(
    queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.watch.IDLE_S", 0.3)
    page = Page()
    async with observed(queue, pool, page):

        async def learned() -> bool:
            return page.looks > 3

        async def is_up() -> bool:
            return (await view(queue, pool)).status == "up"

        await until(learned)
        began = asyncio.get_running_loop().time()
        for _ in range(6):
            await queue.set_backend(pool, "b1", "down")
            await until(is_up)
        assert asyncio.get_running_loop().time() - began < 0.3 + 5 * 0.2


async def test_numbers_too_large_to_add_up_are_not_written(queue: Queue, pool: Pool) -> None:
    page = Page()
    async with observed(queue, pool, page):
        await reached(queue, pool, token_ms=20.0)
        page.token_s = 1e308
        await reached(queue, pool, token_ms=None)
        assert "Infinity" not in (await view(queue, pool)).seen
