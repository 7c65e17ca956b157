"""Batches on the page: found, looked at, cancelled."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from admin_ui.bridge import Stores
from fairlane.accounts import Caller
from fairlane.batches import BatchView
from fairlane.batches.work import BatchWork
from fairlane.files import Files
from tests.admin.page import Page
from tests.contract.acts import take
from tests.contract.shop import CHAT, good, request_line


async def create(stores: Stores, tenant: str, lines: list[bytes]) -> BatchView:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"\n".join(lines)

    files = Files(stores.queue, stores.settings.files_at)
    file = await files.put(tenant, "in.jsonl", "batch", pieces(), 1 << 20)
    return await stores.batches.create(Caller(tenant), file.id, CHAT, metadata={"for": "<i>tests</i>"})


async def work(stores: Stores, batch: BatchView, steps: int = 3) -> BatchView:
    """The next steps of one batch."""
    files = Files(stores.queue, stores.settings.files_at)
    for _ in range(steps):
        await BatchWork(stores.queue, files).advance(batch.id)
    return await stores.batches.get(batch.tenant, batch.id)


def a_batch(page: Page, tenant: str = "ann", n: int = 4) -> BatchView:
    lines = [request_line(f"c{n}") for n in range(n)]
    return page.ask(lambda stores: create(stores, tenant, lines))


def test_all_batches_are_listed_and_filtered(page: Page) -> None:
    ann, bob = a_batch(page), a_batch(page, "bob")
    shown = page.get("/batches").text
    assert ann.id in shown
    assert bob.id in shown
    assert ann.id not in page.get("/batches?tenant=bob").text
    assert "No batch is like that" in page.get("/batches?state=completed").text
    assert page.get("/batches?state=lost").status_code == 400
    assert page.get("/batches?after=x").status_code == 400


def test_the_list_comes_page_by_page(page: Page) -> None:
    ids = [a_batch(page).id for _ in range(51)][::-1]
    first = page.get("/batches").text
    assert all(id_ in first for id_ in ids[:50])
    assert ids[50] not in first
    second = page.get(f"/batches?after={ids[49]}").text
    assert f'id="{ids[50]}"' in second
    assert f'id="{ids[49]}"' not in second


def test_a_batch_is_shown_with_its_progress(page: Page) -> None:
    batch = a_batch(page)

    async def run(stores: Stores) -> None:
        await work(stores, batch)
        pool = await stores.queue.pools.by_name("llama")
        for tier in ("priority", "default"):
            await stores.queue.pause(pool, tier=tier)
        (lease,) = await take(stores.queue, pool, 1)
        await stores.queue.settle_many(pool, [good(lease)])
        await BatchWork(stores.queue, Files(stores.queue, stores.settings.files_at)).collect(pool.code)

    page.ask(run)
    shown = page.get(f"/batches/{batch.id}").text
    assert "in progress" in shown
    assert 'aria-label="1 of 4 requests are done"' in shown
    assert "/pools/llama" in shown
    assert batch.input_file_id in shown
    assert "&lt;i&gt;tests&lt;/i&gt;" in shown


def test_a_file_that_was_refused_says_why(page: Page) -> None:
    batch = page.ask(lambda stores: create(stores, "ann", [request_line("a"), b"{<b>no json"]))
    page.ask(lambda stores: work(stores, batch))
    shown = page.get(f"/batches/{batch.id}").text
    assert "What is wrong with its file" in shown
    assert "<b>no json" not in shown


def test_a_batch_is_cancelled_and_what_was_done_is_in_the_audit(page: Page) -> None:
    batch = a_batch(page)
    refused = page.as_("olga").act("batch.cancel", batch=batch.id)
    assert refused.status_code == 400, "the tenant's name is to be typed"
    answer = page.as_("olga").act("batch.cancel", {"typed": "ann"}, batch=batch.id)
    assert answer.status_code == 303
    assert page.ask(lambda stores: stores.batches.get("ann", batch.id)).status == "cancelling"
    again = page.act("batch.cancel", batch=batch.id)
    assert again.status_code == 409


@pytest.mark.parametrize("path", ["/batches/{id}", "/act/batch.cancel?batch={id}", "/batches?tenant=bob"])
def test_who_sees_only_ann_sees_nothing_of_bobs(page: Page, path: str) -> None:
    batch = a_batch(page, "bob")
    otto = page.as_("otto")
    assert otto.get(path.format(id=batch.id)).status_code == 404
    assert batch.id not in otto.get("/batches").text


def test_secrets_of_a_webhook_are_never_shown(page: Page) -> None:
    hook = {"url": "https://hooks.example.com/x", "secret": "whsec_hush", "headers": {"authorization": "hush hush"}}

    async def with_hook(stores: Stores) -> str:
        batch = await create(stores, "ann", [request_line("a")])
        made = await stores.batches.create(Caller("ann"), batch.input_file_id, CHAT, webhook=hook)
        return made.id

    shown = page.get(f"/batches/{page.ask(with_hook)}").text
    assert "https://hooks.example.com/x" in shown
    assert "hush" not in shown
    assert json.dumps(hook) not in shown
