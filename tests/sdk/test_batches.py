"""Batches: made of an uploaded file, polled, and read; or cancelled, or refused with the numbers of the lines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import openai
import pytest
from openai.types import Batch

from tests.sdk.both import Client, done, each, opened
from tests.sdk.stage import Stage

ENDPOINT = "/v1/chat/completions"
ENDED = ("completed", "failed", "expired", "cancelled")


def line(name: str, **body: Any) -> dict[str, Any]:
    asked = {"model": "sim", "messages": [{"role": "user", "content": name}], "max_tokens": 3} | body
    return {"custom_id": name, "method": "POST", "url": ENDPOINT, "body": asked}


async def started(client: Client, lines: Sequence[Any], **more: Any) -> Batch:
    text = "".join(json.dumps(one) + "\n" for one in lines).encode()
    file = await done(client.files.create(file=("requests.jsonl", text), purpose="batch"))
    create = client.batches.create
    return await done(create(input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h", **more))


async def ended(client: Client, batch: Batch) -> Batch:
    async with asyncio.timeout(30):
        while batch.status not in ENDED:
            await asyncio.sleep(0.05)
            batch = await done(client.batches.retrieve(batch.id))
    return batch


async def read(client: Client, file_id: str | None) -> dict[str, Any]:
    """The lines of an output or error file, by their custom_id."""
    if file_id is None:
        return {}
    text = (await done(client.files.content(file_id))).text
    lines = [json.loads(one) for one in text.splitlines()]
    assert len({one["custom_id"] for one in lines}) == len(lines)
    return {one["custom_id"]: one for one in lines}


async def test_a_batch_ends_with_an_answer_or_an_error_for_each_line(client: Client) -> None:
    good, bad = [line(f"good-{n}") for n in range(6)], [line(f"bad-{n}", max_tokens=9999) for n in range(2)]
    batch = await started(client, [*good, *bad], metadata={"run": "7"})
    assert (batch.object, batch.endpoint, batch.completion_window) == ("batch", ENDPOINT, "24h")
    batch = await ended(client, batch)
    assert (batch.status, batch.metadata) == ("completed", {"run": "7"})
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 8, "completed": 6, "failed": 2}
    assert batch.completed_at is not None
    answers, errors = await read(client, batch.output_file_id), await read(client, batch.error_file_id)
    assert answers.keys() == {one["custom_id"] for one in good}
    assert errors.keys() == {one["custom_id"] for one in bad}
    for one in answers.values():
        assert (one["response"]["status_code"], one["error"]) == (200, None)
        assert one["response"]["body"]["usage"]["completion_tokens"] > 0
    assert {one["response"]["status_code"] for one in errors.values()} == {400}
    output = await done(client.files.retrieve(batch.output_file_id or ""))
    assert (output.purpose, output.object) == ("batch_output", "file")


async def test_the_files_of_a_batch_end_when_the_order_says(client: Client) -> None:
    end = {"anchor": "created_at", "seconds": 3600}
    batch = await ended(client, await started(client, [line("a")], output_expires_after=end))
    output = await done(client.files.retrieve(batch.output_file_id or ""))
    assert output.expires_at == output.created_at + 3600
    for wrong in ({"anchor": "last_active_at", "seconds": 3600}, {"anchor": "created_at", "seconds": 3599}):
        with pytest.raises(openai.BadRequestError) as refusal:
            await started(client, [line("a")], output_expires_after=wrong)
        assert (refusal.value.param or "").startswith("output_expires_after.")


async def test_a_cancelled_batch_still_adds_up(client: Client) -> None:
    batch = await started(client, [line(f"late-{n}", model="org/no-backend") for n in range(3)])
    async with asyncio.timeout(30):
        while batch.status == "validating":
            await asyncio.sleep(0.05)
            batch = await done(client.batches.retrieve(batch.id))
    batch = await done(client.batches.cancel(batch.id))
    assert batch.status in ("cancelling", "cancelled")
    batch = await ended(client, batch)
    assert batch.status == "cancelled"
    answers, errors = await read(client, batch.output_file_id), await read(client, batch.error_file_id)
    assert batch.request_counts is not None
    assert len(answers) + len(errors) == batch.request_counts.total == 3
    assert {one["error"]["code"] for one in errors.values()} == {"batch_cancelled"}


async def test_a_file_that_cannot_be_worked_on_fails_with_the_numbers_of_its_lines(client: Client) -> None:
    batch = await ended(client, await started(client, [line("a"), line("a"), line("b") | {"method": "GET"}]))
    assert batch.status == "failed"
    assert batch.errors is not None
    assert [fault.line for fault in batch.errors.data or []] == [2, 3]
    assert all(fault.code and fault.message for fault in batch.errors.data or [])


async def test_all_pages_are_listed_and_none_of_anothers(played: Stage, face: type[Client]) -> None:
    async with opened(face(base_url=played.url, api_key=f"batcher-{face.__name__}", max_retries=0)) as client:
        made = [(await started(client, [line(f"{n}")])).id for n in range(5)]
        assert [batch.id async for batch in each(client.batches.list(limit=2))] == made[::-1]
        page = await done(client.batches.list(limit=2, after=made[3]))
        assert [batch.id for batch in page.data] == [made[2], made[1]]
        others = client.with_options(api_key="somebody-else")
        assert [batch.id async for batch in each(others.batches.list())] == []
        for call in (others.batches.retrieve, others.batches.cancel):
            with pytest.raises(openai.NotFoundError):
                await done(call(made[0]))


async def test_what_cannot_be_a_batch_is_refused_at_once(client: Client) -> None:
    with pytest.raises(openai.NotFoundError):
        await done(client.batches.create(input_file_id="file-nothing", endpoint=ENDPOINT, completion_window="24h"))
    file = await done(client.files.create(file=("x.jsonl", b"{}"), purpose="batch"))
    wrong: Any = {"input_file_id": file.id, "endpoint": "/v1/images/edits", "completion_window": "24h"}
    with pytest.raises(openai.BadRequestError):
        await done(client.batches.create(**wrong))
