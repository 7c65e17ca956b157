"""Reading the queue: a glance, pages that neither skip nor repeat, and why a job waits."""

from __future__ import annotations

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import InvalidRequest, NotFound
from fairlane.model import BackendCounts, Job, Limits, TierGate
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.standing import TenantView
from tests.contract.acts import REFUSED, finish, spec, submit, submit_all, take, take_one

pytestmark = pytest.mark.usefixtures("invariants")


def ids(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]


async def test_a_pool_at_a_glance(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    began = clock.now_ms()
    await submit(queue, pool, "ann", n=3)
    clock.advance(100)
    await submit(queue, pool, "bob", n=2)
    await submit(queue, pool, "bob", "flex", delay_ms=1000)
    await submit(queue, pool, "cho", "batch")
    await queue.pause(pool, tier="batch")
    await queue.pause(pool, tenant="bob")
    await take_one(queue, pool)
    await queue.observe(
        pool, "b1", {"flex": TierGate(3, 2, "kv")}, counted=BackendCounts(0, 0, 0), seen='{"running": 1}'
    )
    glance = await queue.inspect.overview(pool)
    rows = [(t.tier, t.depth, t.tenants, t.runnable, t.oldest_ms, t.paused) for t in glance.tiers]
    assert rows == [
        ("priority", 0, 0, 0, None, False),
        ("default", 4, 2, 1, began, False),
        ("flex", 0, 0, 0, None, False),
        ("batch", 1, 1, 0, began + 100, True),
    ]
    assert (glance.delayed, glance.leased, glance.held, glance.dead, glance.paused) == (1, 1, 1, 0, False)
    (backend,) = glance.backends
    assert (backend.name, backend.status, backend.counts.live) == ("b1", "up", 1)
    assert (backend.fresh_at_ms, backend.seen) == (clock.now_ms(), '{"running": 1}')
    assert backend.gates["flex"] == TierGate(3, 2, "kv")
    await queue.pause(pool)
    assert (await queue.inspect.overview(pool)).paused


async def test_an_empty_pool_at_a_glance(queue: Queue, pool: Pool) -> None:
    glance = await queue.inspect.overview(pool)
    assert [(t.depth, t.tenants, t.oldest_ms) for t in glance.tiers] == [(0, 0, None)] * 4
    assert (glance.delayed, glance.leased, glance.held, glance.dead) == (0, 0, 0, 0)


async def test_tenants_are_listed_by_who_waits_longest(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    began = clock.now_ms()
    for tenant in ("dee", "cho", "bob", "ann"):
        await submit(queue, pool, tenant, n=2)
        clock.advance(10)
    await submit(queue, pool, "cho", "flex", delay_ms=1000)
    await queue.set_limits(pool, "cho", Limits(max_inflight=0))
    await take_one(queue, pool)
    first, cursor = await queue.inspect.tenants(pool, "default", limit=3)
    assert cursor is not None
    rest, cursor = await queue.inspect.tenants(pool, "default", cursor, limit=3)
    assert first + rest == [
        TenantView("dee", began, waiting=2, inflight=0, held_until_ms=None),
        TenantView("cho", began + 10, waiting=3, inflight=0, held_until_ms=float("inf")),
        TenantView("bob", began + 20, waiting=2, inflight=0, held_until_ms=None),
        TenantView("ann", began + 30, waiting=1, inflight=1, held_until_ms=None),
    ]
    assert cursor is None
    assert await queue.inspect.tenants(pool, "priority") == ([], None)


async def test_a_line_lists_its_jobs_in_order(queue: Queue, pool: Pool) -> None:
    line = await submit(queue, pool, n=6)
    await submit(queue, pool, "bob")
    await submit(queue, pool, tier="flex")
    for lease in [lease for lease in await take(queue, pool, 5) if lease.tenant == "ann"]:
        await queue.release(pool, lease)
    jobs, cursor = await queue.inspect.line(pool, "default", "ann")
    assert ids(jobs) == line
    assert cursor is None
    assert await queue.inspect.line(pool, "default", "nobody") == ([], None)


async def test_pages_of_a_line_neither_skip_nor_repeat_while_it_moves(queue: Queue, pool: Pool) -> None:
    line = await submit(queue, pool, n=12)
    seen: list[str] = []
    cursor: int | None = 0
    while cursor is not None:
        jobs, cursor = await queue.inspect.line(pool, "default", "ann", cursor, limit=3)
        seen += ids(jobs)
        await take(queue, pool, 1)
        line += await submit(queue, pool)
        await queue.cancel(line[-4])
    stayed = [id_ for id_ in line[:12] if (await queue.inspect.job(id_)).state == "queued"]
    assert len(seen) == len(set(seen))
    assert seen == [id_ for id_ in line if id_ in seen]
    assert set(stayed) <= set(seen)


async def test_lists_of_jobs_by_what_becomes_of_them(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    late, soon = await submit_all(queue, pool, [spec(delay_ms=2000), spec(delay_ms=1000)])
    await submit(queue, pool, n=6, max_attempts=1)
    done, failed, dead, dead_later, long, short = await take(queue, pool, 6)
    await finish(queue, pool, [done])
    clock.advance(1)
    await queue.settle(pool, failed, "failed", status=400)
    await queue.retry(pool, dead, REFUSED, delay_ms=0)
    clock.advance(1)
    await queue.retry(pool, dead_later, REFUSED, delay_ms=0)
    await queue.renew(pool, [long])
    assert ids((await queue.inspect.index(pool, "delayed"))[0]) == [soon, late]
    assert ids((await queue.inspect.index(pool, "leased"))[0]) == [short.id, long.id]
    assert ids((await queue.inspect.index(pool, "dead"))[0]) == [dead_later.id, dead.id]
    finished, cursor = await queue.inspect.index(pool, "done", limit=3)
    assert ids(finished)[0] == dead_later.id
    assert cursor is not None
    rest, cursor = await queue.inspect.index(pool, "done", cursor, limit=3)
    assert ids(finished + rest)[3:] == [done.id]
    assert {job.id for job in finished} == {failed.id, dead.id, dead_later.id}
    assert cursor is None


async def test_pages_are_bounded_and_without_payloads(queue: Queue, pool: Pool) -> None:
    """Case 22."""
    await submit(queue, pool, n=3, body=b"x" * 1000)
    await queue.settle(pool, await take_one(queue, pool), "succeeded", result=b"y" * 1000)
    (queued, *_), _ = await queue.inspect.line(pool, "default", "ann")
    (done,), _ = await queue.inspect.index(pool, "done")
    assert (queued.body, done.body, done.result) == (None, None, None)
    assert queued.head == b"{}"
    for limit in (0, 1001, -1):
        with pytest.raises(InvalidRequest):
            await queue.inspect.line(pool, "default", "ann", limit=limit)
        with pytest.raises(InvalidRequest):
            await queue.inspect.tenants(pool, "default", limit=limit)
        with pytest.raises(InvalidRequest):
            await queue.inspect.index(pool, "done", limit=limit)


async def test_why_a_job_waits(queue: Queue, pool: Pool) -> None:
    await queue.set_backend(pool, "b2", "add")
    await submit(queue, pool, "ann", "priority", n=4)
    await submit(queue, pool, "bob", n=2)
    mine = await submit(queue, pool, "cho", n=3)
    gates = {"default": TierGate(1, 1, "room")}
    await queue.observe(pool, "b1", gates, counted=BackendCounts(0, 0, 0), seen='{"waiting": 2}')
    await take(queue, pool, 2)
    why = await queue.inspect.explain(mine[2])
    assert (why.state, why.tenant, why.tier, why.ahead_in_line) == ("queued", "cho", "default", 2)
    assert (why.rank, why.tenants, why.held_by, why.held_until_ms, why.paused) == (1, 2, None, None, False)
    assert dict(why.depths) == {"priority": 2, "default": 5}
    assert [(gate.backend, gate.live, gate.limit, gate.reason, gate.seen) for gate in why.gates] == [
        ("b1", 2, 1, "room", '{"waiting": 2}'),
        ("b2", 0, 1, "open", "{}"),
    ]


async def test_jobs_that_came_back_count_as_ahead(queue: Queue, pool: Pool) -> None:
    line = await submit(queue, pool, n=5)
    for lease in await take(queue, pool, 2):
        await queue.release(pool, lease)
    ahead = [(await queue.inspect.explain(id_)).ahead_in_line for id_ in line]
    assert ahead == [0, 1, 2, 3, 4]


async def test_what_holds_a_tenant_is_told(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    ids = {tenant: (await submit(queue, pool, tenant, n=9, input_tokens=500))[-1] for tenant in ("busy", "fast", "big")}
    await queue.set_limits(pool, "busy", Limits(max_inflight=1))
    await queue.set_limits(pool, "fast", Limits(requests_per_minute=6))
    await queue.set_limits(pool, "big", Limits(tokens_per_minute=3000))
    (ids["off"],) = await submit(queue, pool, "off")
    await queue.pause(pool, tenant="off")
    await take(queue, pool, 50)
    held = {tenant: await queue.inspect.explain(id_) for tenant, id_ in ids.items()}
    assert {tenant: why.held_by for tenant, why in held.items()} == {
        "busy": "inflight",
        "fast": "requests",
        "big": "tokens",
        "off": "paused",
    }
    assert all(why.rank is None for why in held.values())
    until = {tenant: why.held_until_ms for tenant, why in held.items()}
    assert (until["busy"], until["off"], until["fast"]) == (None, None, clock.now_ms() + 10_000)
    assert until["big"] is not None
    assert until["big"] > clock.now_ms()


@pytest.mark.parametrize("scope", [{}, {"tier": "default"}], ids=["pool", "tier"])
async def test_a_pause_explains_why_a_job_waits(queue: Queue, pool: Pool, scope: dict[str, str]) -> None:
    (id_,) = await submit(queue, pool)
    (flex,) = await submit(queue, pool, tier="flex")
    await queue.pause(pool, **scope)
    assert (await queue.inspect.explain(id_)).paused
    assert (await queue.inspect.explain(flex)).paused == (not scope)


async def test_a_job_that_does_not_wait_is_explained_by_its_state(queue: Queue, pool: Pool) -> None:
    (delayed,) = await submit(queue, pool, delay_ms=1000)
    (leased,) = await submit(queue, pool)
    lease = await take_one(queue, pool)
    for id_, state in ((delayed, "delayed"), (leased, "leased")):
        why = await queue.inspect.explain(id_)
        assert (why.state, why.ahead_in_line, why.rank) == (state, 0, None)
    await finish(queue, pool, [lease])
    assert (await queue.inspect.explain(leased)).state == "succeeded"


async def test_nothing_is_told_of_what_is_not_there(queue: Queue, pool: Pool) -> None:
    for read in (queue.inspect.job, queue.inspect.explain):
        for id_ in (f"job_{pool.code}9aaaaaaaaaaaa", "job_zzzz9aaaaaaaaaaaa", "", "*"):
            with pytest.raises(NotFound):
                await read(id_)
