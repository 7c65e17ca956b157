"""Batches through the real front door and the real work on them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dispatcher.backends.answer import Answer
from fairlane import AsyncClient, BatchFailed, Progress
from fairlane.errors import IdempotencyMismatch, NotFound
from fairlane.queue.engine import Queue
from fairlane.settings import Settings
from producer.api.app import create_app
from tests.client.doors import serving
from tests.client.working_batches import batches_worked_off
from tests.dispatcher.scripted import OK, Script, answer, hang

ASK: dict[str, Any] = {"model": "llama", "prompt": "x"}
SOON_S = 20.0

pytestmark = pytest.mark.usefixtures("pool")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producer.client.batch.LONGEST_S", 0.1)


@pytest.fixture
async def client(queue: Queue, namespace: str) -> AsyncIterator[AsyncClient]:
    files_url = f"memory://{namespace}"
    app = create_app(Settings(auth="open", files_url=files_url), queue=queue)
    async with serving(app) as url, batches_worked_off(queue, files_url), AsyncClient(url, "ann") as made:
        yield made


@pytest.mark.usefixtures("worker")
async def test_every_line_has_its_outcome_in_order_and_as_finished(client: AsyncClient, script: Script) -> None:
    wrong = answer(Answer(422, b'{"error": {"message": "Too odd.", "code": "odd"}}'))
    script.then(answer(OK), wrong, answer(OK))
    told: list[Progress] = []
    handle = await client.batches.submit((ASK for _ in range(30)), metadata={"night": "1"})
    batch = await handle.wait(SOON_S, progress=told.append)
    assert (batch.status, batch.counts.total, batch.counts.completed, batch.counts.failed) == ("completed", 30, 29, 1)
    assert batch.metadata == {"night": "1"}
    assert told[-1].done == 30
    items = [item async for item in handle.results()]
    assert [item.custom_id for item in items] == [f"request-{n}" for n in range(1, 31)]
    assert [item.status for item in items].count(422) == 1
    as_finished = [item.custom_id async for item in client.batches.get(handle.id).results(ordered=False)]
    assert sorted(as_finished) == sorted(item.custom_id for item in items)
    (error,) = [error async for error in handle.errors()]
    assert (error.code, error.status, error.message) == ("odd", 422, "Too odd.")


async def test_a_cancelled_batch_has_an_error_for_each_line_that_was_left(client: AsyncClient) -> None:
    handle = await client.batches.submit([ASK] * 5)
    async with asyncio.timeout(SOON_S):
        async for progress in handle.watch():
            if progress.place is not None:
                break
    await handle.cancel()
    assert (await handle.wait(SOON_S)).status == "cancelled"
    errors = [item.error async for item in handle.results()]
    assert [error.code if error else None for error in errors] == ["batch_cancelled"] * 5


async def test_a_file_with_wrong_lines_is_refused_with_their_numbers(client: AsyncClient) -> None:
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": ASK}
    file = await client.files.upload((json.dumps(line) + "\n" for _ in range(3)), filename="twice.jsonl")
    handle = await client.batches.submit(file, endpoint="/v1/completions")
    assert (await handle.wait(SOON_S)).status == "failed"
    with pytest.raises(BatchFailed, match="line 2"):
        [item async for item in handle.results()]
    assert [(error.line, error.code) async for error in handle.errors()] == [
        (2, "duplicate_custom_id"), (3, "duplicate_custom_id"),
    ]  # fmt: skip


@pytest.mark.usefixtures("worker")
async def test_results_come_while_others_still_run(client: AsyncClient, script: Script) -> None:
    script.then(answer(OK), answer(OK), hang)
    handle = await client.batches.submit([ASK] * 3)
    items = handle.results(ordered=False, timeout=SOON_S)
    first = [await anext(items), await anext(items)]
    assert [item.ok for item in first] == [True, True]
    assert await handle.status() == "in_progress"
    await handle.cancel()
    (last,) = [item async for item in items]
    assert last.error is not None
    assert {item.custom_id for item in (*first, last)} == {"request-1", "request-2", "request-3"}
    with pytest.raises(NotFound):
        await client.batches.get("batch_0").wait(SOON_S)


async def test_a_batch_that_is_submitted_again_with_its_key_is_the_same_batch(client: AsyncClient) -> None:
    first = await client.batches.submit([ASK], idempotency_key="night 1", metadata={"a": "b"})
    again = await client.batches.submit([ASK], idempotency_key="night 1", metadata={"a": "b"})
    assert again.id == first.id
    assert len([file async for file in client.files.list()]) == 1
    for requests, metadata in (([ASK, ASK], {"a": "b"}), ([ASK], {"a": "c"})):
        with pytest.raises(IdempotencyMismatch):
            await client.batches.submit(requests, idempotency_key="night 1", metadata=metadata)
    assert (await client.batches.submit([ASK])).id != first.id
    assert len([batch async for batch in client.batches.list()]) == 2


async def test_files_are_kept_listed_and_deleted(client: AsyncClient) -> None:
    data = b"x" * 3_000_000
    file = await client.files.upload(data, filename="näme x.jsonl")
    assert (file.bytes, file.filename) == (len(data), "näme x.jsonl")
    assert b"".join([piece async for piece in client.files.content(file.id)]) == data
    assert [one.id async for one in client.files.list(purpose="batch")] == [file.id]
    await client.files.delete(file.id)
    with pytest.raises(NotFound):
        await client.files.get(file.id)
