"""Batches of all tenants, as an operator finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlane.accounts import Caller
from fairlane.batches.finding import BatchSearch
from fairlane.batches.view import ENDED
from fairlane.clock import ManualClock
from fairlane.errors import InvalidRequest, NotFound
from fairlane.queue import keys
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.shop import Shop

DAY_MS = 86_400_000


@pytest.fixture
def shop(queue: Queue, pool: Pool, clock: ManualClock, tmp_path: Path) -> Shop:
    return Shop(queue, pool, clock, tmp_path)


@pytest.fixture
def search(queue: Queue) -> BatchSearch:
    return BatchSearch(queue)


async def create(shop: Shop, *tenants: str) -> list[str]:
    """A batch of each, one after the other; their ids."""
    ids: list[str] = []
    for tenant in tenants:
        shop.clock.advance(1)
        ids.append((await shop.create(2, Caller(tenant))).id)
    return ids


async def test_all_tenants_batches_come_the_newest_first_page_by_page(shop: Shop, search: BatchSearch) -> None:
    ids = (await create(shop, "ann", "bob", "ann", "cho", "bob"))[::-1]
    first = await search.find(most=2)
    second = await search.find(after=first.after, most=2)
    third = await search.find(after=second.after, most=2)
    assert [[one.id for one in page.batches] for page in (first, second, third)] == [ids[:2], ids[2:4], ids[4:]]
    assert third.after is None


async def test_whose_tenants_are_named_sees_no_others(shop: Shop, search: BatchSearch) -> None:
    ids = await create(shop, "ann", "bob", "cho", "ann")
    assert [one.id for one in (await search.find(["ann"])).batches] == [ids[3], ids[0]]
    assert [one.id for one in (await search.find(["bob", "cho"])).batches] == [ids[2], ids[1]]
    assert (await search.find([])).batches == ()
    assert (await search.find(["nobody"])).batches == ()


async def test_batches_are_found_by_state(shop: Shop, search: BatchSearch) -> None:
    cancelled, running = await create(shop, "ann", "bob")
    await shop.batches.cancel("ann", cancelled)
    await shop.steps()
    assert [one.id for one in (await search.find(states=["in_progress", "validating"])).batches] == [running]
    assert [one.id for one in (await search.find(states=list(ENDED))).batches] == [cancelled]


async def test_what_is_rare_is_looked_for_a_stretch_at_a_time(
    shop: Shop, search: BatchSearch, queue: Queue, client: Any
) -> None:
    """Case 22."""
    (old,) = await create(shop, "ann")
    forgotten = {f"batch_9{n:05}": 0 for n in range(1_200)}  # of which there is nothing but their ids
    await client.zadd(keys.account(queue.store.namespace, "all_batches"), forgotten)
    looked: list[int] = []
    page = await search.find()
    while page.after:
        looked.append(page.looked)
        assert page.batches == ()
        page = await search.find(after=page.after)
    assert ([one.id for one in page.batches], looked) == ([old], [500, 500])


async def test_what_runs_is_shown_with_what_is_left_of_it(shop: Shop, search: BatchSearch, pool: Pool) -> None:
    (id_,) = await create(shop, "ann")
    before = await search.get(id_)
    assert (before.pool, before.fed, before.left_ms) == (None, 0, None)
    await shop.steps(2)
    await shop.answer(1)
    await shop.steps(2)
    now = await search.get(id_)
    assert (now.pool, now.fed, now.open_jobs, now.done) == (pool.name, 2, 1, 1)
    assert now.left_ms == now.now_ms - (now.batch.in_progress_at_ms or 0), "as long again as the first half"


async def test_what_is_past_its_retention_is_listed_no_more(
    shop: Shop, search: BatchSearch, clock: ManualClock
) -> None:
    (old,) = await create(shop, "ann")
    await shop.batches.cancel("ann", old)
    await shop.steps()
    clock.advance(32 * DAY_MS)
    (new,) = await create(shop, "bob")
    assert [one.id for one in (await search.find()).batches] == [new]


async def test_one_that_is_not_there_is_not_found(search: BatchSearch) -> None:
    with pytest.raises(NotFound):
        await search.get("batch_1")
    for wrong in ({"after": "x"}, {"after": ""}, {"most": 0}, {"most": 101}):
        with pytest.raises(InvalidRequest):
            await search.find(**wrong)  # pyright: ignore[reportArgumentType]
