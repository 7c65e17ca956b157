"""A batch that is stopped leaves no job that runs; and what was answered, and lost, is told apart."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fairlane.batches import feeding
from fairlane.batches.ledger import Ledger, idem_digest, idempotency_key
from fairlane.clock import ManualClock
from fairlane.errors import InvalidRequest
from fairlane.queue import keys
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import submit, take
from tests.contract.shop import ANSWER, Shop, good, request_line, unanswered

pytestmark = [pytest.mark.usefixtures("invariants"), pytest.mark.parametrize("store", ["valkey"], indirect=True)]
WEEK_MS = 7 * 86_400_000


@pytest.fixture
def shop(queue: Queue, pool: Pool, clock: ManualClock, tmp_path: Path) -> Shop:
    return Shop(queue, pool, clock, tmp_path)


class Killed(BaseException):
    """The worker is gone."""


async def feed_until(shop: Shop, monkeypatch: pytest.MonkeyPatch, word: str, then: Any) -> None:
    """Works until it comes to a word to Redis, before which something else happens, once."""
    store, run = shop.queue.store, shop.queue.store.run
    waits = True

    async def before(name: str, *args: Any, **options: Any) -> Any:
        nonlocal waits
        if name == word and waits:
            waits = False
            await then()
        return await run(name, *args, **options)

    monkeypatch.setattr(store, "run", before)
    for _ in range(10):
        if waits:
            await shop.step()
            shop.clock.advance(500)
    assert not waits
    monkeypatch.setattr(store, "run", run)


@pytest.mark.parametrize("word", ["submit", "feed_batch"])
async def test_a_batch_that_is_cancelled_while_it_is_fed_leaves_no_job(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    batch = await shop.create(150)

    async def cancel() -> None:
        await shop.batches.cancel("ann", batch.id)

    await feed_until(shop, monkeypatch, word, cancel)
    await shop.steps()
    assert (await shop.results(batch))[0].status == "cancelled"
    assert await shop.answer() == 0
    await shop.check_nothing_is_left()


@pytest.mark.parametrize("slow_ms", [0, 60_000])
async def test_a_feeder_that_is_slow_submits_nothing_for_a_batch_that_has_ended_meanwhile(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_ms: int
) -> None:
    batch = await shop.create(5)

    async def end() -> None:
        await shop.batches.cancel("ann", batch.id)
        shop.clock.advance(11_000)  # by now another worker may do it
        other = Shop(shop.queue, shop.pool, shop.clock, tmp_path)
        monkeypatch.undo()
        await other.steps()
        assert (await shop.view(batch)).status == "cancelled"
        shop.clock.advance(slow_ms)

    store, run = shop.queue.store, shop.queue.store.run

    async def before(name: str, *args: Any, **options: Any) -> Any:
        if name == "submit":
            await end()
        return await run(name, *args, **options)

    monkeypatch.setattr(store, "run", before)
    await shop.steps()
    assert (await shop.results(batch))[0].status == "cancelled"
    assert await shop.answer() == 0
    await shop.check_nothing_is_left()


async def test_jobs_of_a_feeder_that_died_are_cancelled_too(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = await shop.create(5)

    async def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        await feed_until(shop, monkeypatch, "feed_batch", die)
    monkeypatch.undo()
    (answered,) = await take(shop.queue, shop.pool, 1)
    await shop.queue.settle(shop.pool, answered, "succeeded", status=200, result=ANSWER)
    await shop.batches.cancel("ann", batch.id)
    shop.clock.advance(11_000)
    await shop.steps()
    ended, lines = await shop.results(batch)
    assert (ended.status, ended.completed, ended.failed) == ("cancelled", 1, 4)
    assert {line["error"]["code"] for line in lines.values() if line["error"]} == {"batch_cancelled"}
    assert await shop.answer() == 0
    await shop.check_nothing_is_left()


@pytest.mark.parametrize("end", ["release", "settle", "vanish"])
async def test_what_ran_when_its_batch_was_cancelled_is_gone_soon_after_it_stopped(
    shop: Shop, client: Any, end: str
) -> None:
    """Not in a day, as other jobs: nobody asks for them any more."""
    batch = await shop.create(2)
    await shop.steps(1)
    leases = await take(shop.queue, shop.pool, 2)
    await shop.batches.cancel("ann", batch.id)
    await shop.steps()
    assert (await shop.results(batch))[0].status == "cancelled"
    assert [await client.pttl(shop.pool.key("job", lease.id)) for lease in leases] == [-1, -1]
    for lease in leases:
        if end == "release":
            await shop.queue.release(shop.pool, lease)
        elif end == "settle":
            await shop.queue.settle(shop.pool, lease, "succeeded", status=200, result=ANSWER)
    shop.clock.advance(60_000)
    await shop.queue.sweep(shop.pool)
    for lease in leases:
        assert 0 < await client.pttl(shop.pool.key("job", lease.id)) <= 60_000
    assert (await shop.queue.inspect.index(shop.pool, "done"))[0] == []


async def test_lines_of_which_nothing_is_known_do_not_hold_up_their_batch(shop: Shop, client: Any) -> None:
    """As a failover may leave it: no job is open, all was fed, and lines are not marked."""
    batch = await shop.create(5)
    await shop.steps(1)
    await shop.answer(2)
    await shop.steps(1)
    jobs = await Ledger(shop.queue.store).open_jobs(batch.id)
    lost, answered, _ = sorted(jobs, key=lambda job: jobs[job])
    await client.delete(keys.account(shop.queue.store.namespace, "batch_open", batch.id))
    leases = {lease.id: lease for lease in await take(shop.queue, shop.pool, 3)}
    await shop.queue.settle_many(shop.pool, [good(leases[lost]), good(leases[answered])])
    await client.xtrim(shop.pool.key("events"), maxlen=0)
    digest = idem_digest(idempotency_key(batch.id, jobs[lost]))
    await client.delete(shop.pool.key("job", lost), shop.pool.key("idem", "ann", digest))
    await client.zrem(shop.pool.key("done"), lost)
    await shop.steps(60)
    assert (await shop.view(batch)).status == "in_progress"
    await shop.queue.settle_many(
        shop.pool, [good(lease) for lease in leases.values() if lease.id not in (lost, answered)]
    )
    await shop.steps()
    ended, lines = await shop.results(batch)
    assert (ended.status, ended.completed, ended.failed) == ("completed", 4, 1)
    assert lines[f"c{jobs[lost]}"]["error"]["code"] == "result_lost"
    await shop.check_nothing_is_left()


async def test_answers_wait_for_days_for_a_worker_that_is_away(shop: Shop, client: Any) -> None:
    """However short the retention of other jobs is: they were paid for."""
    batch = await shop.create(3)
    await shop.steps(1)
    await shop.answer(1)
    await shop.answer(1, unanswered)
    (cancelled,) = await take(shop.queue, shop.pool, 1)
    await shop.queue.settle(shop.pool, cancelled, "succeeded", status=200, result=ANSWER)
    jobs = await Ledger(shop.queue.store).open_jobs(batch.id)
    assert len(jobs) == 3
    for job in jobs:
        assert await client.pttl(shop.pool.key("job", job)) > WEEK_MS - 60_000
    await shop.steps()
    assert (await shop.view(batch)).completed == 2


async def test_a_part_that_is_gone_ends_no_batch_without_its_lines(shop: Shop) -> None:
    batch = await shop.create(5)
    await shop.steps(1)
    await shop.answer(2)
    await shop.steps(1)
    (part,) = await Ledger(shop.queue.store).parts(batch.id, 0, 10)
    await shop.answer(2)
    await shop.steps(1)
    assert len((await shop.batches.results("ann", batch.id, 0))[0]) == 4
    await shop.files.contents.delete([part])
    found, following = await shop.batches.results("ann", batch.id, 0)
    assert (len(found), following) == (2, 2)
    await shop.answer(1)
    await shop.steps()
    ended, lines = await shop.results(batch)
    assert (ended.status, ended.completed, ended.failed) == ("completed", 3, 2)
    assert [line["error"]["code"] for line in lines.values() if line["error"]] == ["result_lost"] * 2
    await shop.check_nothing_is_left()


@pytest.mark.parametrize(
    ("content", "code", "count"),
    [
        (b"x\n" * 60_000, "too_many_requests", 50_001),
        (b"\n" * 3_000_000, "too_many_lines", 1),
        (b" \r\n" * 200_000 + b"x", "too_many_lines", 1),
    ],
)
async def test_a_hostile_file_is_given_up_soon(shop: Shop, content: bytes, code: str, count: int) -> None:
    """A small file must not hold up the worker for minutes, nor make an error file without bounds."""
    batch = await shop.create([content])
    for _ in range(30):
        started = time.monotonic()
        await shop.step()
        assert time.monotonic() - started < 5
        shop.clock.advance(500)
    batch = await shop.view(batch)
    assert (batch.status, batch.failed) == ("failed", count)
    lines = await shop.read(batch, batch.error_file_id)
    assert (len(lines), lines[-1]["error"]["code"]) == (count, code)


async def test_a_check_goes_on_where_the_last_step_has_ended(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "STEP_S", 0.0)
    batch = await shop.create([b"", request_line("a"), b"", request_line("b"), b"", b"no"])
    await shop.steps()
    batch = await shop.view(batch)
    assert (batch.status, [fault.line for fault in batch.faults]) == ("failed", [6])


async def test_nobody_else_can_take_the_key_of_a_line(shop: Shop) -> None:
    """Neither as it was nor as it is: the batch would wait for that job."""
    batch = await shop.create(1)
    for prefix in ("", "\x1f"):
        with suppress(InvalidRequest):
            await submit(shop.queue, shop.pool, "ann", idempotency_key=f"{prefix}{batch.id}:1")
            assert prefix == ""
    await shop.steps()
    for lease in await take(shop.queue, shop.pool, 10):
        await shop.queue.settle(shop.pool, lease, "succeeded", status=200, result=ANSWER)
    await shop.steps()
    assert (await shop.results(batch))[0].completed == 1
