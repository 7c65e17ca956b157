"""Jobs whose prompts begin alike go to one backend while it is half empty, or has room and not more than its share."""

from __future__ import annotations

from collections import Counter

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import InvalidRequest
from fairlane.model import Lease, Policy, TierGate
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import NOTHING_COUNTED, finish, open_backend, spec, submit, take, take_one

pytestmark = [
    pytest.mark.usefixtures("invariants"),
    pytest.mark.parametrize("policy", [Policy(affinity="prefix", stale_ms=3_600_000)], indirect=True, ids=["prefix"]),
]
TALK = ("aaaa", "bbbb", "cccc")  # a prompt of three blocks, by the hashes of what leads up to each


@pytest.fixture(autouse=True)
async def backends(queue: Queue, pool: Pool) -> None:
    for name in ("b1", "b2", "b3"):
        await open_backend(queue, pool, name, 10)


async def lease_of(queue: Queue, pool: Pool, *prefix: str, keep: bool = False) -> Lease:
    """Takes one job with this prompt."""
    await submit(queue, pool, prefix=prefix)
    lease = await take_one(queue, pool)
    if not keep:
        await finish(queue, pool, [lease])
    return lease


async def test_the_longest_common_beginning_wins(queue: Queue, pool: Pool) -> None:
    first = (await lease_of(queue, pool, "aaaa", "bbbb")).backend
    for other in ("dddd", "eeee", "ffff"):
        await lease_of(queue, pool, other, keep=True)
    second = (await lease_of(queue, pool, "aaaa", "9999")).backend
    assert second == first
    assert (await lease_of(queue, pool, *TALK)).backend == first


async def test_without_a_known_beginning_it_is_the_most_free(queue: Queue, pool: Pool) -> None:
    seen = Counter([(await lease_of(queue, pool, f"{n:04x}", keep=True)).backend for n in range(6)])
    assert seen == {"b1": 2, "b2": 2, "b3": 2}


async def test_a_prompt_that_everybody_sends_does_not_pile_up(queue: Queue, pool: Pool) -> None:
    """Beyond half of its room no backend carries more than 1.25 × its share of the leases, counted up."""
    seen: Counter[str] = Counter()
    for n in range(1, 25):
        seen[(await lease_of(queue, pool, *TALK, keep=True)).backend] += 1
        assert max(seen.values()) <= max(5, -(-5 * n // 12))
    assert max(seen.values()) > 8, "it does pull"


async def test_a_few_conversations_stay_where_they_are(queue: Queue, pool: Pool) -> None:
    """Of a few leases chance alone gives one backend more than 1.25 × its share: that is no reason to leave it."""
    for talk in ("aaaa", "bbbb"):
        await lease_of(queue, pool, talk)  # one after another: both begin at the first backend
    assert (await lease_of(queue, pool, "aaaa", keep=True)).backend == "b1"
    assert (await lease_of(queue, pool, "bbbb", keep=True)).backend == "b1"


async def test_a_shut_gate_counts_more_than_a_warm_cache(queue: Queue, pool: Pool) -> None:
    near = (await lease_of(queue, pool, *TALK)).backend
    gates = {tier: TierGate(0, 0) for tier in pool.policy.tiers}
    await queue.observe(pool, near, gates, counted=NOTHING_COUNTED)
    assert (await lease_of(queue, pool, *TALK)).backend != near


async def test_a_backend_that_restarted_has_an_empty_cache(queue: Queue, pool: Pool) -> None:
    near = await lease_of(queue, pool, *TALK)
    others = {"b1", "b2", "b3"} - {near.backend}
    open_to_all = {tier: TierGate(3, 3) for tier in pool.policy.tiers}
    await queue.observe(pool, near.backend, open_to_all, counted=NOTHING_COUNTED, epoch=2)
    assert (await lease_of(queue, pool, *TALK)).backend in others, "it has less room than they"


async def test_what_nobody_asked_for_is_forgotten(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    near = (await lease_of(queue, pool, *TALK)).backend
    gates = {tier: TierGate(3, 3) for tier in pool.policy.tiers}
    await queue.observe(pool, near, gates, counted=NOTHING_COUNTED)
    clock.advance(290_000)
    assert (await lease_of(queue, pool, *TALK)).backend == near
    clock.advance(700_000)
    assert (await lease_of(queue, pool, *TALK)).backend != near


async def test_a_move_takes_the_prompts_hashes_along(queue: Queue, pool: Pool) -> None:
    near = (await lease_of(queue, pool, *TALK)).backend
    there = await queue.pools.open("other", pool.policy)
    (id_,) = await submit(queue, pool, prefix=TALK)
    await queue.move(id_, there)
    await queue.move(id_, pool)
    gates = {tier: TierGate(3, 3) for tier in pool.policy.tiers}
    await queue.observe(pool, near, gates, counted=NOTHING_COUNTED)
    assert (await take_one(queue, pool)).backend == near


@pytest.mark.parametrize("prefix", [("xyz!",), ("aaaa",) * 9, ("",)])
async def test_hashes_are_a_few_hex_digits(queue: Queue, pool: Pool, prefix: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest, match="prefix"):
        await queue.submit(pool, spec(prefix=prefix))
    assert await take(queue, pool, 1) == []
