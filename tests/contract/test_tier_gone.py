"""A tier was taken away, and somebody does not know yet: nothing ever stands in a line that nobody looks at."""

from __future__ import annotations

import pytest

from fairlane.errors import UnknownTier
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import REFUSED, another_process, drain, ids_of, spec, state_of, submit, take_one
from tests.contract.test_move_broken import before

pytestmark = pytest.mark.usefixtures("invariants")


async def without_flex(queue: Queue, pool: Pool) -> Pool:
    """Another process takes the tier away; `pool` is as those know it who have not read the policy since."""
    return await another_process(queue).set_policy(pool, {"tiers": "priority,default,batch"}, by="ops")


async def test_a_submit_is_refused_and_others_of_its_call_are_not(queue: Queue, pool: Pool) -> None:
    await without_flex(queue, pool)
    with pytest.raises(UnknownTier, match="priority, default, batch"):
        await queue.submit(pool, spec(tier="flex"))
    good, bad = await queue.submit_many(pool, [spec(tier="batch"), spec(tier="flex")])
    assert isinstance(bad, UnknownTier)
    assert not isinstance(good, Exception)
    assert ids_of(await drain(queue, pool)) == [good.id]


async def test_a_repeated_submit_still_leads_to_its_job(queue: Queue, pool: Pool) -> None:
    first = await queue.submit(pool, spec(tier="flex", idempotency_key="k"))
    await drain(queue, pool)
    await without_flex(queue, pool)
    assert (await queue.submit(pool, spec(tier="flex", idempotency_key="k"))).id == first.id


async def test_a_dead_job_is_not_requeued_into_it(queue: Queue, pool: Pool) -> None:
    (id_,) = await submit(queue, pool, tier="flex", max_attempts=1)
    await queue.retry(pool, await take_one(queue, pool), REFUSED, delay_ms=0)
    await without_flex(queue, pool)
    with pytest.raises(UnknownTier, match="flex"):
        await queue.requeue(id_)
    assert (await queue.inspect.job(id_)).dead


async def test_no_job_is_put_into_it(queue: Queue, pool: Pool) -> None:
    (id_,) = await submit(queue, pool)
    await without_flex(queue, pool)
    (why,) = await queue.retier(pool, [id_], "flex")
    assert isinstance(why, UnknownTier)
    assert await state_of(queue, id_) == "queued"


@pytest.mark.parametrize("delay_ms", [0, 1])
async def test_a_job_on_its_way_comes_into_the_lowest(queue: Queue, pool: Pool, target: Pool, delay_ms: int) -> None:
    (id_,) = await submit(queue, pool, tier="flex", delay_ms=delay_ms)

    async def take_away() -> None:
        await without_flex(queue, target)

    before(queue, "arrive", take_away)
    await queue.move(id_, target)
    job = await queue.inspect.job(id_)
    assert (job.pool, job.tier) == ("mistral", "batch")
