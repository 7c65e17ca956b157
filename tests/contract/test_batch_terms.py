"""What was agreed when a batch was made, and what its tenant may at all, holds to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.accounts import Accounts
from fairlane.batches import BatchView
from fairlane.clock import ManualClock
from fairlane.errors import IdempotencyMismatch, InvalidRequest
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.shop import Shop, request_line, unanswered

pytestmark = [pytest.mark.usefixtures("invariants"), pytest.mark.parametrize("store", ["valkey"], indirect=True)]
DAY_MS = 86_400_000


@pytest.fixture
def shop(queue: Queue, pool: Pool, clock: ManualClock, tmp_path: Path) -> Shop:
    return Shop(queue, pool, clock, tmp_path)


@pytest.fixture
async def accounts(queue: Queue) -> Accounts:
    made = Accounts(queue)
    await made.create_tenant("ann")
    return made


async def test_of_a_disabled_tenant_nothing_is_submitted_until_it_is_enabled(shop: Shop, accounts: Accounts) -> None:
    """What was submitted before goes on."""
    batch = await shop.create(150)
    await shop.steps(1)
    await accounts.disable("ann")
    assert await shop.answer() == 100
    await shop.steps(60)
    assert (await shop.view(batch)).completed == 100
    assert await shop.answer() == 0
    await accounts.enable("ann")
    await shop.steps()
    assert await shop.answer() == 50
    await shop.steps()
    assert (await shop.results(batch))[0].completed == 150


async def test_a_batch_whose_tenant_stays_disabled_expires(shop: Shop, accounts: Accounts) -> None:
    batch = await shop.create(3)
    await accounts.disable("ann")
    await shop.steps()
    assert (await shop.view(batch)).status == "in_progress"
    shop.clock.advance(DAY_MS)
    await shop.steps()
    ended, lines = await shop.results(batch)
    assert ended.status == "expired"
    assert {line["error"]["code"] for line in lines.values()} == {"batch_expired"}
    assert shop.ran == []
    await shop.check_nothing_is_left()


async def lasts_s(shop: Shop, batch: BatchView) -> list[float]:
    """How long the output and the error file are kept."""
    batch = await shop.view(batch)
    ids = [id_ for id_ in (batch.output_file_id, batch.error_file_id) if id_]
    files = [await shop.files.get("ann", id_) for id_ in ids]
    return [((file.expires_at_ms or 0) - file.created_at_ms) / 1000 for file in files]


async def test_the_files_of_a_batch_are_kept_as_long_as_was_asked(shop: Shop) -> None:
    short, usual = await shop.create(2, output_lasts_s=3600), await shop.create(2)
    wrong = await shop.create([b"no"], output_lasts_s=7200)
    await shop.steps()
    for how in ({}, {"how": unanswered}) * 2:
        assert await shop.answer(1, **how) == 1
    await shop.steps()
    kept = await lasts_s(shop, short) + await lasts_s(shop, usual)
    assert sorted(kept) == [3600.0] * 2 + [30 * 86_400.0] * 2
    assert await lasts_s(shop, wrong) == [7200.0]


async def test_how_long_files_are_kept_is_part_of_the_order(shop: Shop) -> None:
    for seconds in (3599, 2_592_001, -1):
        with pytest.raises(InvalidRequest) as refusal:
            await shop.create(1, output_lasts_s=seconds)
        assert refusal.value.param == "output_expires_after.seconds"
    lines = [request_line("a")]
    first = await shop.create(lines, output_lasts_s=3600, idempotency_key="k")
    assert (await shop.create(lines, output_lasts_s=3600, idempotency_key="k")).id == first.id
    with pytest.raises(IdempotencyMismatch):
        await shop.create(lines, output_lasts_s=3601, idempotency_key="k")
