"""Where a pool's backends are, who is told when they change, and what an observer gets to see of them in one call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import IllegalTransition, InvalidRequest
from fairlane.model import BackendSpec, Policy, TierGate
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.standing import TierLoad
from tests.contract.acts import REFUSED, finish, set_gate, submit, take, take_one
from tests.contract.test_settle_many import count_calls

pytestmark = pytest.mark.usefixtures("invariants")

HERE = BackendSpec("http://10.0.0.1:8000/v1", family="vllm", key_env="VLLM_KEY", slots=8)


async def test_a_backend_keeps_its_address(queue: Queue, pool: Pool) -> None:
    await queue.set_backend(pool, "b2", "add", spec=HERE)
    assert (await queue.inspect.backend(pool, "b2")).spec == HERE
    assert (await queue.inspect.backend(pool, "b1")).spec is None
    assert {b.name: b.spec for b in (await queue.inspect.overview(pool)).backends} == {"b1": None, "b2": HERE}
    await queue.set_backend(pool, "b2", "add")
    assert (await queue.inspect.backend(pool, "b2")).spec == HERE, "nothing new was said"
    moved = BackendSpec("https://elsewhere.example")
    await queue.set_backend(pool, "b2", "add", spec=moved)
    assert (await queue.inspect.backend(pool, "b2")).spec == moved


async def test_a_new_address_leaves_leases_and_status_alone(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool)
    await take_one(queue, pool)
    await queue.set_backend(pool, "b1", "drain")
    await queue.set_backend(pool, "b1", "add", spec=HERE)
    view = await queue.inspect.backend(pool, "b1")
    assert (view.status, view.counts.live, view.spec) == ("draining", 1, HERE)


async def words(client: Any, pool: Pool, act: Callable[[], Awaitable[object]]) -> list[bytes]:
    """What is said on `control` in the course of `act`."""
    async with client.pubsub() as pubsub:
        await pubsub.subscribe(pool.key("control"))
        assert (await pubsub.get_message(timeout=5))["type"] == "subscribe"
        await act()
        await client.publish(pool.key("control"), "the end")
        heard: list[bytes] = []
        while (word := (await pubsub.get_message(timeout=5))["data"]) != b"the end":
            heard.append(word)
        return heard


async def test_each_change_of_the_backends_is_told(queue: Queue, pool: Pool, client: Any) -> None:
    async def told(act: Any, spec: BackendSpec | None = None) -> list[bytes]:
        return await words(client, pool, lambda: queue.set_backend(pool, "b2", act, spec=spec))

    assert await told("add") == [b"backends"]
    assert await told("add") == []
    assert await told("add", HERE) == [b"backends"]
    assert await told("add", HERE) == []
    assert await told("down") == [b"backends"]
    assert await told("down") == []
    assert await words(client, pool, lambda: set_gate(queue, pool, "b2", 1)) == [b"backends"], "it is up again"
    assert await words(client, pool, lambda: set_gate(queue, pool, "b2", 1)) == []
    assert await told("drain") == [b"backends"]
    assert await told("down") == [], "it is draining, and stays so"
    assert await told("undrain") == [b"backends"]
    assert await told("remove") == [b"backends"]


@pytest.mark.parametrize(
    "url",
    [
        "", "10.0.0.1:8000", "ftp://a", "redis://a", "file:///etc/passwd", "http://", "http:///v1", "http://a:port",
        "http://a b", "http://a\n", "http://ä", "http://[::1", "https://" + "a" * 2048, "javascript:alert(1)",
    ],
)  # fmt: skip
async def test_an_address_is_one_that_can_be_called(queue: Queue, pool: Pool, url: str) -> None:
    with pytest.raises(InvalidRequest):
        await queue.set_backend(pool, "b2", "add", spec=BackendSpec(url))


@pytest.mark.parametrize(
    "url", ["null://", "null://x", "http://a", "https://user@a.example:8443/v1?x=1", "http://[::1]:80"]
)
async def test_addresses_that_can_be_called(queue: Queue, pool: Pool, url: str) -> None:
    await queue.set_backend(pool, "b2", "add", spec=BackendSpec(url))
    spec = (await queue.inspect.backend(pool, "b2")).spec
    assert spec == BackendSpec(url)


@pytest.mark.parametrize(
    "change",
    [
        {"key_env": "sk-secret"}, {"key_env": ""}, {"key_env": "lower"}, {"key_env": "A" * 65}, {"key_env": "1A"},
        {"slots": 0}, {"slots": 100_001}, {"slots": True}, {"family": "V LLM"}, {"family": ""},
    ],
)  # fmt: skip
async def test_the_rest_of_a_spec_is_checked_too(queue: Queue, pool: Pool, change: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        await queue.set_backend(pool, "b2", "add", spec=BackendSpec("http://a", **change))


async def test_a_spec_comes_with_add_only(queue: Queue, pool: Pool) -> None:
    with pytest.raises(InvalidRequest):
        await queue.set_backend(pool, "b1", "drain", spec=HERE)


async def test_a_backend_that_works_is_not_removed(queue: Queue, pool: Pool, client: Any) -> None:
    await submit(queue, pool)
    leases = await take(queue, pool)

    async def remove() -> None:
        with pytest.raises(IllegalTransition):
            await queue.set_backend(pool, "b1", "remove")

    assert await words(client, pool, remove) == []
    await finish(queue, pool, leases)
    await queue.set_backend(pool, "b1", "remove")


@pytest.mark.parametrize("policy", [Policy(tiers=("high", "low", "idle"))], indirect=True)
async def test_an_observer_sees_all_that_it_decides_on_in_one_call(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    await queue.set_backend(pool, "b1", "add", spec=HERE)
    await queue.observe(
        pool,
        "b1",
        {"high": TierGate(9, 3, "kv")},
        counted=(await queue.inspect.backend(pool, "b1")).counts,
        seen='{"running": 1}',
    )
    await queue.set_backend(pool, "b0", "add")
    await submit(queue, pool, "ann", "high", n=3)
    await submit(queue, pool, "bob", "low", n=2)
    assert len(await take(queue, pool, 2)) == 2
    await queue.pause(pool, tier="low")
    calls = count_calls(queue, "load")
    load = await queue.inspect.load(pool)
    assert len(calls) == 1
    assert load.now_ms == clock.now_ms()
    assert load.tiers == (
        TierLoad("high", 1, clock.now_ms(), 2),
        TierLoad("low", 2, None, 0),
        TierLoad("idle", 0, None, 0),
    )
    assert load.backends == (await queue.inspect.backend(pool, "b0"), await queue.inspect.backend(pool, "b1"))
    assert [tier.inflight for tier in (await queue.inspect.overview(pool)).tiers] == [2, 0, 0]


async def test_the_load_of_a_pool_without_backends(queue: Queue) -> None:
    empty = await queue.pools.open("empty", Policy())
    load = await queue.inspect.load(empty)
    assert load.backends == ()
    assert all(tier == TierLoad(tier.tier, 0, None, 0) for tier in load.tiers)


async def test_faults_are_counted_and_whether_one_tenant_has_them_all(queue: Queue, pool: Pool) -> None:
    for tenant, blamers in (("ann", 1), ("ann", 1), ("bob", 2), ("ann", 3)):
        await submit(queue, pool, tenant, max_attempts=1)
        await queue.retry(pool, await take_one(queue, pool), REFUSED, delay_ms=0, fault=True)
        assert (await queue.inspect.backend(pool, "b1")).blamers == blamers
    await submit(queue, pool, max_attempts=1)
    await queue.retry(pool, await take_one(queue, pool), REFUSED, delay_ms=0)
    await submit(queue, pool)
    await queue.settle(pool, await take_one(queue, pool), "failed", status=400)
    await submit(queue, pool)
    await queue.settle(pool, await take_one(queue, pool), "succeeded", status=200)
    view = await queue.inspect.backend(pool, "b1")
    assert (view.faults, view.answered, view.finished) == (4, 2, 1)
