"""What the observer finds about a whole pool stands in Redis: for the boost, the front doors and the next observer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlane.errors import InvalidRequest
from fairlane.model import Limits, Usage
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.standing import LineView
from tests.contract.acts import another_process, finish, submit, take

pytestmark = pytest.mark.usefixtures("invariants")


async def test_what_was_steered_is_seen_by_every_process(queue: Queue, pool: Pool, client: Any) -> None:
    assert (await queue.inspect.load(pool)).steer == (await queue.inspect.overview(pool)).steer == "{}"
    await queue.steer(pool, 0.25, '{"jain": 0.5}')
    stranger = another_process(queue)
    assert json.loads((await stranger.inspect.load(pool)).steer) == {"jain": 0.5}
    assert json.loads((await stranger.inspect.overview(pool)).steer) == {"jain": 0.5}
    assert float(await client.hget(pool.key("pool"), "gamma_now")) == 0.25


async def test_a_pinned_gamma_takes_the_thermostat_s_away(queue: Queue, pool: Pool, client: Any) -> None:
    await queue.steer(pool, 0.25, "{}")
    await queue.steer(pool, None, "{}")
    assert await client.hget(pool.key("pool"), "gamma_now") == b""


@pytest.mark.parametrize(
    ("gamma", "seen"),
    [
        (-1.0, "{}"),
        (float("nan"), "{}"),
        (1e9, "{}"),
        (0.1, "no JSON"),
        (0.1, "[]"),
        (0.1, json.dumps({"x": "x" * 8192})),
    ],
)
async def test_what_makes_no_sense_is_refused(queue: Queue, pool: Pool, gamma: float, seen: str) -> None:
    with pytest.raises(InvalidRequest):
        await queue.steer(pool, gamma, seen)
    assert (await queue.inspect.load(pool)).steer == "{}"


async def test_finished_jobs_are_read_once_each_in_order(queue: Queue, pool: Pool) -> None:
    first, *rest = await submit(queue, pool, n=4)
    await finish(queue, pool, await take(queue, pool))
    found, cursor = await queue.inspect.finishes(pool, "", 10)
    assert [finish.job for finish in found] == [first]
    assert await queue.inspect.finishes(pool, cursor, 10) == ([], cursor)
    await finish(queue, pool, await take(queue, pool, 3))
    seen: list[str] = []
    while True:
        found, cursor = await queue.inspect.finishes(pool, cursor, 2)
        if not found:
            break
        seen += [finish.job for finish in found]
    assert seen == rest


async def test_lines_are_counted_for_their_tier_with_their_tenant_s_limits(
    queue: Queue, pool: Pool, clock: Any
) -> None:
    await queue.set_limits(pool, "bob", Limits(weight=2.0))
    await submit(queue, pool, "ann", n=3)
    clock.advance(10)
    await submit(queue, pool, "bob", n=2)
    await submit(queue, pool, "bob", "batch", n=5)
    (lease,) = await take(queue, pool)
    await queue.release(pool, lease)  # back at its old place
    await queue.pause(pool, tenant="bob")
    now = clock.now_ms()
    assert await queue.inspect.lines(pool, "default") == [
        LineView("ann", 3, now - 10, False, Limits()),
        LineView("bob", 2, now, True, Limits(weight=2.0)),
    ]
    assert [line.tenant for line in await queue.inspect.lines(pool, "default", 1)] == ["ann"]
    assert await queue.inspect.lines(pool, "flex") == []


async def test_a_finish_tells_when_the_job_could_run_when_it_did_and_what_it_used(
    queue: Queue, pool: Pool, clock: Any
) -> None:
    now = clock.now_ms()
    await submit(queue, pool, delay_ms=5_000)
    clock.advance(6_000)
    await queue.sweep(pool)
    (lease,) = await take(queue, pool, 1)
    clock.advance(300)
    await queue.settle(pool, lease, "succeeded", status=200, usage=Usage(7, 9))
    await submit(queue, pool, deadline_ms=0)
    await queue.sweep(pool)
    ran, late = (await queue.inspect.finishes(pool, "", 10))[0]
    assert (ran.ready_at_ms, ran.started_at_ms, ran.ended_at_ms) == (now + 5_000, now + 6_000, now + 6_300)
    assert (ran.usage, ran.state) == (Usage(7, 9), "succeeded")
    assert (late.ready_at_ms, late.started_at_ms, late.state) == (now + 6_300, None, "expired")
