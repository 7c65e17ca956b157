"""Batches: their states, what ends where, and that nothing of them is lost, doubled or left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fairlane.accounts import Caller
from fairlane.batches.collecting import Collector, outcome_of
from fairlane.batches.ledger import Ledger
from fairlane.batches.work import BatchWork
from fairlane.clock import ManualClock
from fairlane.errors import IllegalTransition, InvalidRequest, NotFound, TierForbidden
from fairlane.model import Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import submit, take
from tests.contract.shop import ANN, ANSWER, CHAT, Shop, good, refused, request_line, unanswered

pytestmark = pytest.mark.usefixtures("invariants")
DAY_MS = 86_400_000
on_one_store = pytest.mark.parametrize("store", ["valkey"], indirect=True)


@pytest.fixture
def shop(queue: Queue, pool: Pool, clock: ManualClock, tmp_path: Path) -> Shop:
    return Shop(queue, pool, clock, tmp_path)


async def test_a_batch_goes_through_its_states_to_its_two_files(shop: Shop) -> None:
    batch = await shop.create(5)
    assert (batch.status, batch.total, batch.expires_at_ms - batch.created_at_ms) == ("validating", 0, DAY_MS)
    await shop.steps()
    running = await shop.view(batch)
    assert (running.status, running.model, running.total, running.completed) == ("in_progress", "llama", 5, 0)
    await shop.answer(3, good)
    await shop.answer(1, refused)
    await shop.answer(1, unanswered)
    await shop.steps()
    batch, lines = await shop.results(batch)
    assert (batch.status, batch.completed, batch.failed) == ("completed", 3, 2)
    assert batch.usage is not None
    assert (batch.usage.input_tokens, batch.usage.output_tokens) == (9, 12)
    assert None not in (batch.in_progress_at_ms, batch.finalizing_at_ms, batch.completed_at_ms)
    assert lines["c1"]["response"]["body"] == {"choices": [{"message": {"content": "Hi"}}]}
    assert lines["c1"]["error"] is None
    assert lines["c4"]["response"]["status_code"] == 400
    assert lines["c5"]["response"] is None
    assert lines["c5"]["error"] == {"code": "timeout", "message": "It took too long."}
    await shop.check_nothing_is_left()


@on_one_store
async def test_a_refused_file_names_every_fault(shop: Shop) -> None:
    batch = await shop.create([b"no", *[b"{}"] * 1500, request_line("a")])
    await shop.steps()
    batch = await shop.view(batch)
    assert (batch.status, batch.total, batch.failed, len(batch.faults)) == ("failed", 1501, 1501, 1000)
    assert batch.faults[0].line == 1
    lines = await shop.read(batch, batch.error_file_id)
    assert [line["error"]["line"] for line in lines] == list(range(1, 1502))
    assert batch.output_file_id is None
    await shop.check_nothing_is_left()


@on_one_store
@pytest.mark.parametrize(
    ("lines", "code"),
    [([], "empty_file"), ([b"", b" "], "empty_file"), ([request_line("a", model="gpt")], "model_not_found")],
)
async def test_a_file_can_be_wrong_as_a_whole(shop: Shop, lines: list[bytes], code: str) -> None:
    batch = await shop.create(lines)
    await shop.steps()
    batch = await shop.view(batch)
    assert (batch.status, [fault.code for fault in batch.faults]) == ("failed", [code])


@on_one_store
async def test_what_cannot_be_a_batch_is_refused_at_once(shop: Shop) -> None:
    file = (await shop.upload([request_line("a")])).id
    other = (await shop.upload([request_line("a")], "assistants")).id
    calls: list[tuple[Any, str]] = [
        ((file, "/v1/other"), "endpoint"),
        ((file, CHAT, "1h"), "completion_window"),
        ((file, CHAT, "24h", {f"n{n}": "x" for n in range(17)}), "metadata"),
        ((file, CHAT, "24h", {"x" * 65: "x"}), "metadata"),
        ((file, CHAT, "24h", {"x": "x" * 513}), "metadata"),
        ((file, CHAT, "24h", {"x": 1}), "metadata"),
        ((other, CHAT), "input_file_id"),
    ]
    for wrong, param in calls:
        with pytest.raises(InvalidRequest) as refusal:
            await shop.batches.create(ANN, *wrong)
        assert refusal.value.param == param
    for caller, unknown in ((ANN, "file-none"), (Caller("bob"), file)):
        with pytest.raises(NotFound):
            await shop.batches.create(caller, unknown, CHAT)
    with pytest.raises(TierForbidden):
        await shop.batches.create(Caller("ann", tiers=frozenset({"default"})), file, CHAT)
    assert await shop.batches.list("ann") == []


@on_one_store
async def test_a_key_for_other_pools_does_not_know_this_model(shop: Shop) -> None:
    batch = await shop.create(1, Caller("ann", pools=frozenset({"other"})))
    await shop.steps()
    assert [fault.code for fault in (await shop.view(batch)).faults] == ["model_not_found"]


async def test_batches_are_listed_the_newest_first_and_are_the_tenants_own(shop: Shop) -> None:
    made = []
    for _ in range(5):
        made.append((await shop.create(1)).id)
        shop.clock.advance(1)
    assert [batch.id for batch in await shop.batches.list("ann", limit=2)] == made[:2:-1]
    assert [batch.id for batch in await shop.batches.list("ann", after=made[3])] == made[2::-1]
    assert await shop.batches.list("bob") == []
    for act in (shop.batches.get, shop.batches.cancel):
        with pytest.raises(NotFound):
            await act("bob", made[0])


@pytest.mark.parametrize("answered", [0, 2, 5])
async def test_a_cancelled_batch_keeps_what_was_answered(shop: Shop, answered: int) -> None:
    """Case 11: the lines add up, and what ran is stopped."""
    batch = await shop.create(5)
    await shop.steps()
    await shop.answer(answered)
    running = await take(shop.queue, shop.pool, 1)
    assert (await shop.batches.cancel("ann", batch.id)).status == "cancelling"
    await shop.batches.cancel("ann", batch.id)
    await shop.steps()
    batch, lines = await shop.results(batch)
    assert (batch.status, batch.completed, batch.failed) == ("cancelled", answered, 5 - answered)
    codes = {line["error"]["code"] for line in lines.values() if line["error"]}
    assert codes == ({"batch_cancelled"} if answered < 5 else set())
    assert await shop.queue.renew(shop.pool, running) == ["cancelled"] * len(running)
    for lease in running:
        await shop.queue.release(shop.pool, lease)
    assert await shop.answer() == 0
    await shop.batches.cancel("ann", batch.id)
    await shop.check_nothing_is_left()


@on_one_store
async def test_a_batch_can_be_cancelled_before_its_file_was_read(shop: Shop) -> None:
    batch = await shop.create(5)
    await shop.batches.cancel("ann", batch.id)
    await shop.steps()
    batch, lines = await shop.results(batch)
    assert (batch.status, batch.total, lines) == ("cancelled", 0, {})


@on_one_store
async def test_a_batch_that_has_ended_or_is_about_to_cannot_be_cancelled(shop: Shop) -> None:
    batch = await shop.create(1)
    await shop.steps()
    await shop.answer()
    while (await shop.view(batch)).status == "in_progress":
        await shop.step()
        shop.clock.advance(100)
    for status in ("finalizing", "completed"):
        assert (await shop.view(batch)).status == status
        with pytest.raises(IllegalTransition):
            await shop.batches.cancel("ann", batch.id)
        await shop.steps()


@pytest.mark.parametrize("answered", [0, 2, 5])
async def test_an_expired_batch_says_so_line_by_line(shop: Shop, answered: int) -> None:
    """Case 4."""
    batch = await shop.create(5)
    await shop.steps()
    await shop.answer(answered)
    shop.clock.advance(DAY_MS)
    await shop.queue.sweep(shop.pool)
    await shop.steps()
    batch, lines = await shop.results(batch)
    assert batch.completed == answered
    codes = [line["error"]["code"] for line in lines.values() if line["error"]]
    assert codes == ["batch_expired"] * (5 - answered)
    assert batch.status == ("completed" if answered == 5 else "expired")
    await shop.check_nothing_is_left()


@on_one_store
async def test_a_batch_that_nobody_looked_at_for_a_day_expires_whole(shop: Shop) -> None:
    batch = await shop.create(3)
    shop.clock.advance(DAY_MS)
    await shop.steps()
    batch, lines = await shop.results(batch)
    assert batch.status == "expired"
    assert {line["error"]["code"] for line in lines.values()} == {"batch_expired"}
    assert set(lines) == {"c1", "c2", "c3"}


@on_one_store
async def test_never_more_than_the_window_is_in_the_queue(shop: Shop, client: Any) -> None:
    total, most, seen = 4500, 0, 0
    batch = await shop.create(total)
    while seen < total:
        await shop.step()
        shop.clock.advance(250)
        most = max(most, len(await client.keys(shop.pool.key("job", "*"))))
        seen += await shop.answer(100)
        seen += await shop.answer(100)
    await shop.steps()
    batch, lines = await shop.results(batch)
    assert len(lines) == batch.completed == total
    assert 1500 <= most <= 2000
    assert len(set(shop.ran)) == len(shop.ran) == total


@on_one_store
@pytest.mark.parametrize("policy", [Policy(max_waiting_tenant=3, tiers=("gold", "tin"))], indirect=True)
async def test_a_full_queue_is_waited_out(shop: Shop) -> None:
    batch = await shop.create(10)
    for _ in range(12):
        await shop.steps(2)
        await shop.answer(2)
    batch, _ = await shop.results(batch)
    assert batch.completed == 10
    assert sorted(line for _, line in shop.ran) == list(range(1, 11))


async def test_events_that_come_again_change_nothing(shop: Shop) -> None:
    """As after a crash between the mark and the acknowledgement."""
    batch = await shop.create(3)
    await shop.steps()
    await shop.answer()
    ledger = Ledger(shop.queue.store)
    collector = Collector(ledger, shop.files)
    looked, events = await ledger.events(shop.pool)
    assert looked == 3
    rows = await ledger.outcomes(shop.pool, [event.job for event in events])
    assert len(rows) == 3
    outcomes = [outcome_of(batch.id, event.job, row) for event, row in zip(events, rows, strict=True) if row]
    await collector.keep(batch.id, outcomes)
    assert (await shop.view(batch)).completed == 3
    for _ in range(3):
        await collector.collect(shop.pool)
    await shop.steps()
    batch, lines = await shop.results(batch)
    assert (batch.completed, len(lines)) == (3, 3)
    await shop.check_nothing_is_left()


@on_one_store
async def test_two_workers_at_once_do_no_harm(shop: Shop) -> None:
    batch = await shop.create(40)
    other = BatchWork(shop.queue, shop.files)
    for _ in range(12):
        both = [work.advance(batch.id) for work in (shop.work, other)]
        both += [work.collect(shop.pool.code) for work in (shop.work, other)]
        await asyncio.gather(*both)
        await shop.answer(7)
    await shop.steps()
    batch, lines = await shop.results(batch)
    assert (batch.completed, len(lines)) == (40, 40)
    assert len(set(shop.ran)) == len(shop.ran) == 40
    await shop.check_nothing_is_left()


async def test_outcomes_whose_events_are_lost_are_found(shop: Shop, client: Any) -> None:
    batch = await shop.create(3)
    await shop.steps()
    await shop.answer(2)
    await client.xtrim(shop.pool.key("events"), maxlen=0)
    (gone,) = await take(shop.queue, shop.pool, 1)
    await shop.queue.settle(shop.pool, gone, "succeeded", status=200, result=ANSWER)
    await client.xtrim(shop.pool.key("events"), maxlen=0)
    await client.delete(shop.pool.key("job", gone.id))
    await client.zrem(shop.pool.key("done"), gone.id)
    await shop.steps(60)
    batch, lines = await shop.results(batch)
    assert (batch.completed, batch.failed) == (2, 1)
    assert [line["error"]["code"] for line in lines.values() if line["error"]] == ["result_lost"]


@on_one_store
async def test_a_job_that_ends_while_it_is_looked_at_is_not_forgotten(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the benchmark: 200 of 4,000 answers were lost."""
    batch = await shop.create(3)
    await shop.steps(1)
    leases = await take(shop.queue, shop.pool, 3)
    store, run = shop.queue.store, shop.queue.store.run

    async def late(name: str, *args: Any, **options: Any) -> Any:
        if name == "forget_jobs" and leases:
            await shop.queue.settle_many(shop.pool, [good(leases.pop()) for _ in range(len(leases))])
        return await run(name, *args, **options)

    monkeypatch.setattr(store, "run", late)
    await Collector(Ledger(store), shop.files).recheck(shop.pool, batch.id)
    assert not leases
    await shop.steps()
    batch, _ = await shop.results(batch)
    assert (batch.completed, batch.failed) == (3, 0)


async def test_a_job_that_is_cancelled_by_itself_does_not_hold_up_its_batch(shop: Shop) -> None:
    batch = await shop.create(2)
    await shop.steps()
    jobs = await Ledger(shop.queue.store).open_jobs(batch.id)
    await shop.queue.cancel(next(job for job, line in jobs.items() if line == 2))
    await shop.answer()
    await shop.steps()
    batch, lines = await shop.results(batch)
    assert batch.status == "completed"
    assert lines["c2"]["error"]["code"] == "job_cancelled"


@on_one_store
async def test_a_file_that_is_deleted_too_early_fails_the_batch_and_the_lines_add_up(shop: Shop) -> None:
    early, late = await shop.create(3), await shop.create(1800)
    await shop.files.delete("ann", early.input_file_id)
    await shop.step()
    await shop.files.delete("ann", late.input_file_id)
    await shop.steps()
    early, late = await shop.view(early), await shop.view(late)
    assert ([fault.code for fault in early.faults], early.total) == (["file_not_found"], 1)
    assert (late.status, late.total) == ("failed", 1800)
    assert len(await shop.read(late, late.error_file_id)) == 1800
    await shop.check_nothing_is_left()


@on_one_store
@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"<html>\n", "<html>\n"),
        (b"\xff", "\ufffd"),
        (b'{"a":\r\n1}', {"a": 1}),
        (b'{"a": 1.50}', {"a": 1.5}),
    ],
)
async def test_any_answer_of_a_backend_is_one_line(shop: Shop, body: bytes, shown: object) -> None:
    batch = await shop.create(1)
    await shop.steps()
    (lease,) = await take(shop.queue, shop.pool)
    await shop.queue.settle(shop.pool, lease, "succeeded", status=200, result=body)
    await shop.steps()
    _, lines = await shop.results(batch)
    assert lines["c1"]["response"]["body"] == shown


async def test_other_jobs_events_are_not_kept_for_batches(shop: Shop, client: Any) -> None:
    """Case 27: neither while a batch runs nor after it."""
    batch = await shop.create(1)
    await shop.steps()
    for _ in range(3):
        await submit(shop.queue, shop.pool, "bob", n=100)
        await shop.queue.settle_many(shop.pool, [good(lease) for lease in await take(shop.queue, shop.pool, 100)])
        await shop.steps(2)
    await shop.queue.sweep(shop.pool)
    assert await client.xlen(shop.pool.key("events")) <= 101
    await shop.answer()
    await shop.steps(20)
    assert (await shop.view(batch)).ended
    assert await client.xinfo_groups(shop.pool.key("events")) == []
