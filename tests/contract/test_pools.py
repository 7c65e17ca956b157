"""The registry of pools: one code for each name, one policy for all, and nothing shared between namespaces."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import IllegalTransition, InvalidRequest, NotFound, StoreUnavailable
from fairlane.ids import RandomIds, SeededIds, parse_job_id
from fairlane.model import Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import another_process, open_backend, submit, take
from tests.contract.invariants import check_invariants

pytestmark = pytest.mark.usefixtures("invariants")


async def test_an_id_leads_to_its_pool(queue: Queue, pool: Pool) -> None:
    other = await queue.pools.open("mistral/7b:{x}", Policy())
    for place in (pool, other):
        (id_,) = await submit(queue, place)
        parts = parse_job_id(id_)
        assert parts is not None
        assert parts.code == place.code
        assert (await queue.inspect.job(id_)).pool == place.name


@pytest.mark.parametrize(
    "policy",
    [
        Policy(tiers=()),
        Policy(tiers=("a", "a")),
        Policy(tiers=("Upper",)),
        Policy(tiers=tuple(f"t{n}" for n in range(11))),
        Policy(lease_ms=0),
        Policy(gamma=-1),
    ],
)
async def test_a_policy_that_makes_no_sense_is_refused(queue: Queue, policy: Policy) -> None:
    with pytest.raises(InvalidRequest):
        await queue.pools.open("llama", policy)


@pytest.mark.parametrize(
    "name",
    ["", "a\x00b", "a\r\nb", "a\x7fb", "a\u202eb", "\ud800", "x" * 257, ".", "..", "a/../b", "a//b", "/a", "a/", "./a"],
)
async def test_a_name_that_cannot_be_shown_or_be_in_an_address_is_refused(queue: Queue, name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await queue.pools.open(name, Policy())
    assert refused.value.param == "pool"
    assert await queue.pools.all() == []


@pytest.mark.parametrize("name", ["org/Model-7B.v2:fp8", "a b {x}", "...", "模型", "x" * 256])
async def test_a_model_may_be_called_whatever_else(queue: Queue, name: str) -> None:
    opened = await queue.pools.open(name, Policy())
    assert await queue.pools.by_name(name) == opened


async def test_a_pool_keeps_its_first_policy_and_code(queue: Queue) -> None:
    first = await queue.pools.open("llama", Policy(tiers=("fast", "slow"), gamma=0.5))
    again = await queue.pools.open("llama", Policy())
    assert again == first
    assert await queue.pools.by_name("llama") == first
    assert await queue.pools.all() == [first]
    await open_backend(queue, first, "b1", 1)
    await submit(queue, first, tier="slow")
    with pytest.raises(NotFound):
        await queue.pools.by_name("mistral")


async def test_all_who_open_a_pool_at_once_get_the_same_one(queue: Queue) -> None:
    opened = await asyncio.gather(
        *(another_process(queue, ids=RandomIds()).pools.open("llama", Policy()) for _ in range(9))
    )
    assert len({pool.code for pool in opened}) == 1


async def test_two_pools_never_share_a_code(queue: Queue) -> None:
    first = await queue.pools.open("llama", Policy())
    second = await another_process(queue, ids=SeededIds()).pools.open("mistral", Policy())
    assert first.code != second.code
    assert [pool.name for pool in await queue.pools.all()] == ["llama", "mistral"]


async def test_a_pool_is_found_by_a_process_that_did_not_open_it(queue: Queue, pool: Pool) -> None:
    (id_,) = await submit(queue, pool)
    stranger = another_process(queue)
    assert (await stranger.inspect.job(id_)).pool == "llama"
    assert await stranger.pools.by_name("llama") == pool


async def test_namespaces_share_nothing(queue: Queue, pool: Pool, client: Any, clock: ManualClock) -> None:
    other = Queue(client, namespace=f"{queue._store.namespace}-other", clock=clock, ids=SeededIds())
    await other.check()
    assert await other.pools.all() == []
    twin = await other.pools.open("llama", Policy())
    await open_backend(other, twin, "b1", 1)
    (id_,) = await submit(queue, pool)
    with pytest.raises(NotFound):
        await other.inspect.job(id_)
    assert await take(other, twin) == []
    await check_invariants(other, twin)


async def test_a_pool_that_nothing_needs_is_removed_and_its_name_can_be_given_again(
    queue: Queue, pool: Pool, clock: ManualClock, client: Any
) -> None:
    stranger = another_process(queue)
    (id_,) = await submit(queue, pool, deadline_ms=10)
    assert (await stranger.inspect.job(id_)).state == "queued"
    for needed in ("backends are b1", "1 waiting job"):
        with pytest.raises(IllegalTransition, match=needed):
            await queue.pools.remove("llama")
        if "b1" in needed:
            await queue.set_backend(pool, "b1", "remove")
            assert await queue.pools.served() == []
    clock.advance(10)
    await queue.sweep(pool)
    await queue.pools.remove("llama")
    assert await queue.pools.all() == []
    with pytest.raises(NotFound):
        await queue.inspect.job(id_)
    with pytest.raises(NotFound):
        await submit(stranger, pool)
    with pytest.raises(NotFound):
        await queue.pools.remove("llama")
    left = [key async for key in client.scan_iter(match=f"{pool.prefix}*")]
    assert left
    assert all([0 < await client.pttl(key) <= 60_000 for key in left])
    anew = await queue.pools.open("llama", Policy())
    assert anew.code != pool.code
    await open_backend(queue, anew, "b1", 1)
    await submit(queue, anew)


async def test_a_pool_whose_jobs_run_or_lead_elsewhere_stays(queue: Queue, pool: Pool, target: Pool) -> None:
    moved, _ = await submit(queue, pool, n=2)
    await queue.move(moved, target)
    await take(queue, pool)
    for name in ("b1",):
        await queue.set_backend(pool, name, "drain")
    with pytest.raises(IllegalTransition):
        await queue.pools.remove("llama")
    assert (await queue.inspect.job(moved)).pool == "mistral"


async def test_a_removal_that_was_cut_off_is_ended_by_the_next(
    queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.set_backend(pool, "b1", "remove")
    run = queue.store.run
    for cut in ("fade_keys", "unregister_pool"):

        async def cut_off(name: str, *args: Any, cut: str = cut) -> Any:
            if name == cut:
                raise StoreUnavailable
            return await run(name, *args)

        with monkeypatch.context() as patched:
            patched.setattr(queue.store, "run", cut_off)
            with pytest.raises(StoreUnavailable):
                await queue.pools.remove("llama")
        assert await queue.pools.all() == []
        with pytest.raises(IllegalTransition, match="being removed"):
            await queue.pools.open("llama", Policy())
    await queue.pools.remove("llama")
    assert (await queue.pools.open("llama", Policy())).code != pool.code
