"""Which batches are handed over: each tenant has a few at a time, in turn, however many wait."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fairlane.accounts import Caller
from fairlane.batches.ledger import Ledger
from fairlane.batches.turns import Turns
from fairlane.batches.work import AGAIN_S, MOST_DUE, due
from fairlane.clock import ManualClock
from fairlane.errors import FilesUnavailable
from fairlane.model import Policy
from fairlane.queue import keys
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import spec, take
from tests.contract.shop import CHAT, Shop, good

HANDED = 4
AGAIN_MS = round(1000 * AGAIN_S)
on_one_store = pytest.mark.parametrize("store", ["valkey"], indirect=True)


@pytest.fixture
def shop(queue: Queue, pool: Pool, clock: ManualClock, tmp_path: Path) -> Shop:
    return Shop(queue, pool, clock, tmp_path)


@pytest.fixture
def ledger(queue: Queue) -> Ledger:
    return Ledger(queue.store)


@pytest.fixture
def turns(queue: Queue) -> Turns:
    return Turns(queue.store)


async def order(shop: Shop, tenant: str, n: int) -> list[str]:
    """So many batches of one file."""
    file = await shop.upload([b"{}"], tenant=tenant)
    return [(await shop.batches.create(Caller(tenant), file.id, CHAT)).id for _ in range(n)]


async def given(shop: Shop) -> list[str]:
    return (await due(shop.queue)).batches


async def test_200_batches_of_another_do_not_hold_up_ones_own(shop: Shop) -> None:
    many = await order(shop, "ann", 200)
    (one,) = await order(shop, "bob", 1)
    first = await given(shop)
    assert one in first
    assert len(set(first) & set(many)) == HANDED
    assert await given(shop) == []


async def test_each_has_its_turn_and_none_is_given_twice_meanwhile(shop: Shop, turns: Turns) -> None:
    many = await order(shop, "ann", 60)
    handed, came = list[str](), list[str]()
    while len(came) < len(many) or handed:
        new = await given(shop)
        handed += new
        came += new
        assert len(set(handed)) == len(handed) <= HANDED
        await turns.look_at(handed.pop(0), 5.0)
        shop.clock.advance(10)
    assert sorted(came) == sorted(many)
    shop.clock.advance(5_000)
    assert len(await given(shop)) == HANDED


async def test_what_is_to_be_looked_at_while_it_is_looked_at_comes_right_after(shop: Shop, turns: Turns) -> None:
    batch, *_ = await order(shop, "ann", 1)
    assert await given(shop) == [batch]
    await shop.batches.cancel("ann", batch)
    assert await given(shop) == []
    await turns.look_at(batch, 5.0)
    assert await given(shop) == [batch]
    await turns.look_at(batch, 5.0)
    assert await given(shop) == []


async def test_a_step_that_is_lost_is_handed_over_again(shop: Shop, turns: Turns) -> None:
    """Those that wait have their turn before."""
    many = await order(shop, "ann", HANDED + 2)
    lost = await given(shop)
    shop.clock.advance(AGAIN_MS - 1)
    assert await given(shop) == []
    shop.clock.advance(1)
    again = await given(shop)
    assert set(many) - set(lost) < set(again)
    for batch in again:
        await turns.look_at(batch, None)
    assert sorted(await given(shop)) == sorted(set(lost) - set(again))


@on_one_store
async def test_steps_that_fail_make_room_for_others(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if they fail for ever."""

    async def away(*_: object) -> None:
        raise FilesUnavailable("It is away.")

    left = set(await order(shop, "ann", 3 * HANDED))
    monkeypatch.setattr(shop.files, "get", away)
    while left:
        for batch in (some := await given(shop)):
            with pytest.raises(FilesUnavailable):
                await shop.work.advance(batch)
        assert some
        assert left >= set(some)
        left -= set(some)
    assert await given(shop) == []
    shop.clock.advance(AGAIN_MS)
    assert len(await given(shop)) == HANDED


@on_one_store
async def test_tenants_have_their_turns_one_after_the_other(shop: Shop, ledger: Ledger, turns: Turns) -> None:
    """More of them than one answer has room for."""
    tenants = MOST_DUE + 50
    for tenant in range(tenants):
        for n in range(2 * HANDED):
            await ledger.create(f"t{tenant}", f"x{tenant}_{n}", 1000, {"input": "", "endpoint": "", "window": ""}, None)
    seen = set[str]()
    for _ in range(2):
        shop.clock.advance(1)
        batches = await given(shop)
        assert len(batches) == MOST_DUE
        for batch in batches:
            seen.add((await ledger.load(batch)).view.tenant)
            await turns.look_at(batch, 0.0)  # so that this tenant has something to do at once
    assert len(seen) == tenants


@on_one_store
async def test_what_it_costs_does_not_grow_with_what_is_due(shop: Shop, ledger: Ledger, client: Any) -> None:
    async def commands() -> int:
        before = await client.info("commandstats")
        assert len(await given(shop)) == HANDED
        after = await client.info("commandstats")
        return sum(stats["calls"] - before.get(name, {"calls": 0})["calls"] for name, stats in after.items())

    costs = list[int]()
    waiting = keys.account(shop.queue.store.namespace, "batch_turns", "ann")
    for count in (20, 10_000):
        some = await ledger.create("ann", f"x{count}", 1000, {"input": ""}, None)
        raw = await client.hgetall(keys.account(shop.queue.store.namespace, "batch", some))
        pipe = client.pipeline(transaction=False)
        for n in range(count):
            pipe.hset(keys.account(shop.queue.store.namespace, "batch", f"batch_{n}"), mapping=raw)
            pipe.zadd(waiting, {f"batch_{n}": n})
        await pipe.execute()
        costs.append(await commands())
        shop.clock.advance(AGAIN_MS)
    assert costs[1] <= costs[0] + 3 * HANDED  # those that were lost
    assert costs[0] < 100


async def test_a_batch_that_is_past_its_retention_is_forgotten(shop: Shop, client: Any) -> None:
    gone, kept = await order(shop, "ann", 2)
    await client.delete(keys.account(shop.queue.store.namespace, "batch", gone))
    assert await given(shop) == [kept]
    shop.clock.advance(AGAIN_MS)
    assert await given(shop) == [kept]


@on_one_store
@pytest.mark.parametrize("policy", [Policy(max_waiting_tenant=3)], indirect=True)
async def test_a_queue_that_stays_full_is_asked_ever_more_seldom(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    store, run = shop.queue.store, shop.queue.store.run
    tries: list[int] = []

    async def count(name: str, *args: Any, **options: Any) -> Any:
        if name == "submit":
            tries.append(shop.clock.now_ms() // 1000)
        return await run(name, *args, **options)

    await shop.queue.submit_many(shop.pool, [spec() for _ in range(3)])
    batch = await shop.create(3)
    monkeypatch.setattr(store, "run", count)
    await shop.steps(120)
    pauses = [after - before for before, after in pairwise(tries)]
    assert pauses[:5] == [1, 2, 4, 8, 16]
    assert set(pauses[5:]) == {30}
    await shop.queue.settle_many(shop.pool, [good(lease) for lease in await take(shop.queue, shop.pool, 3)])
    await shop.steps(31)
    assert await shop.answer() == 3
    await shop.steps()
    assert (await shop.view(batch)).completed == 3
