"""Where a tenant starts that enters a ring: not behind the others' debts, not before its own turn, and nobody starves.

Found by attack: with the clock alone, a drain of a hundred leases put each newcomer behind a hundred turns, and a
stream of tenants that come once held the clock, and everyone else, where they were.
"""

from __future__ import annotations

import pytest

from fairlane.model import Limits, Policy, Usage
from fairlane.queue.connection import Client
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import finish, submit, take

pytestmark = pytest.mark.usefixtures("invariants")

TOKENS = Policy(fairness="tokens")


async def turns_before(queue: Queue, pool: Pool, tenant: str, most: int = 40) -> int:
    """How many others are served before `tenant` is."""
    for n in range(most):
        (lease,) = await take(queue, pool)
        await queue.settle(pool, lease, "succeeded", usage=Usage(lease.input_tokens, lease.output_tokens))
        if lease.tenant == tenant:
            return n
    return most


async def test_a_drain_of_many_leases_does_not_put_newcomers_behind(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "heavy", n=60)
    for lease in await take(queue, pool, 30):
        await queue.release(pool, lease)
    await submit(queue, pool, "light")
    assert await turns_before(queue, pool, "light") <= 2


@pytest.mark.parametrize("policy", [TOKENS], indirect=True)
@pytest.mark.parametrize("claimed", [50, 4096, 10**7])
async def test_a_corrected_estimate_does_not_put_newcomers_behind(queue: Queue, pool: Pool, claimed: int) -> None:
    await submit(queue, pool, "heavy", n=8, output_tokens=claimed)
    await submit(queue, pool, "heavy", n=60, output_tokens=50)
    for lease in await take(queue, pool, 8):
        await queue.settle(pool, lease, "succeeded", usage=Usage(0, 5))
    await submit(queue, pool, "light", output_tokens=50)
    assert await turns_before(queue, pool, "light") <= 2


@pytest.mark.parametrize("policy", [TOKENS], indirect=True)
async def test_a_huge_claim_of_one_tenant_does_not_put_others_behind(queue: Queue, pool: Pool) -> None:
    for heavy in ("h1", "h2", "h3"):
        await submit(queue, pool, heavy, n=20, output_tokens=100)
    await submit(queue, pool, "liar", n=2, output_tokens=10**7, expected_ms=1)
    for lease in await take(queue, pool, 10):
        used = Usage(0, 5) if lease.tenant == "liar" else Usage(0, 100)
        await queue.settle(pool, lease, "succeeded", usage=used)
    await submit(queue, pool, "light", output_tokens=100)
    assert await turns_before(queue, pool, "light") <= 4


async def test_a_tenant_of_little_weight_does_not_lift_the_clock_by_its_credit(queue: Queue, pool: Pool) -> None:
    await queue.set_limits(pool, "slight", Limits(weight=0.01))
    for heavy in ("h1", "h2", "h3"):
        await submit(queue, pool, heavy, n=20)
    await submit(queue, pool, "slight", n=5, expected_ms=1)
    await finish(queue, pool, await take(queue, pool, 10))
    await submit(queue, pool, "light")
    assert await turns_before(queue, pool, "light") <= 4


async def test_tenants_that_come_once_neither_starve_the_others_nor_leave_a_trace(
    queue: Queue, pool: Pool, client: Client
) -> None:
    await submit(queue, pool, "steady", n=8)
    served: list[str] = []
    for n in range(40):
        await submit(queue, pool, f"once{n}")
        (lease,) = await take(queue, pool)
        served.append(lease.tenant)
        await finish(queue, pool, [lease])
    assert served.count("steady") >= 6
    assert await client.zcard(pool.key("left", "default")) <= 16  # of 40
