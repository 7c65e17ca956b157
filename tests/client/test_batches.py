"""Batches: whole whatever is lost on the way, made once, in order or as finished, and found again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlane import AsyncClient, Batch, BatchFailed, Client, JobRequest, Progress, WaitTimeout
from fairlane.errors import IllegalTransition, InvalidRequest, NotFound, NotSupported
from fairlane.testing import Fails, Waits
from producer.client.meter import Meter
from tests.client.archive_door import ArchiveDoor, line
from tests.client.doors import serving

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
WHOLE = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"model": "m", "prompt": "x"}}


@pytest.fixture
def door() -> ArchiveDoor:
    return ArchiveDoor()


@pytest.fixture
async def client(door: ArchiveDoor) -> AsyncIterator[AsyncClient]:
    async with serving(door.app()) as url, AsyncClient(url, retry_for_s=10) as made:
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("patience", "files", "stream"):
        monkeypatch.setattr(f"producer.client.{module}.pause_s", lambda *_: 0.001)
    monkeypatch.setattr("producer.client.batch.LONGEST_S", 0.01)
    monkeypatch.setattr("producer.client.batch.FIRST_LOOK_S", 0.005)


async def lines_of(client: AsyncClient, batch: Batch) -> list[Any]:
    return [one async for one in client.files.lines(batch.input_file_id)]


async def test_requests_become_lines(client: AsyncClient) -> None:
    requests = [ASK, {**ASK, "custom_id": "mine", "temperature": 0}, JobRequest("m", "/v1/chat/completions", ASK)]
    handle = await client.batches.submit(iter(requests), metadata={"for": "me"})
    batch = await handle.wait(10)
    assert (batch.status, batch.endpoint, batch.metadata) == ("completed", "/v1/chat/completions", {"for": "me"})
    lines = await lines_of(client, batch)
    assert [one["custom_id"] for one in lines] == ["request-1", "mine", "request-3"]
    assert [one["url"] for one in lines] == ["/v1/chat/completions"] * 3
    assert lines[1]["body"] == {**ASK, "temperature": 0}


async def test_whole_lines_a_path_and_a_file_are_taken_too(client: AsyncClient, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps(WHOLE) + "\n")
    file = await client.files.upload(path)
    for requests in ([WHOLE], path, str(path)):
        batch = await (await client.batches.submit(requests)).wait(10)
        assert batch.endpoint == "/v1/completions"
        assert await lines_of(client, batch) == [WHOLE]
    batch = await (await client.batches.submit(file, endpoint="/v1/completions")).wait(10)
    assert batch.input_file_id == file.id


async def test_the_model_may_be_said_once(client: AsyncClient) -> None:
    handle = await client.batches.submit(({"prompt": str(n)} for n in range(2)), model="m")
    assert [one["body"]["model"] for one in await lines_of(client, await handle.batch())] == ["m", "m"]


@pytest.mark.parametrize(
    ("requests", "why"),
    [
        ([ASK, {"model": "m"}], "Request 2"),
        ([{**ASK, "tier": "flex"}], "tier"),
        ([{**ASK, "delay_s": 3}], "Request 1"),
        ([JobRequest("m", "/v1/completions", {"prompt": "x"}, metadata={"a": 1})], "Request 1"),
        ([{**ASK, "seed": {1, 2}}], "JSON"),
        ([], "one request"),
        ("/nowhere/in.jsonl", "cannot be read"),
    ],
)
async def test_what_is_no_line_is_refused_before_anything_is_sent(
    client: AsyncClient, door: ArchiveDoor, requests: Any, why: str
) -> None:
    with pytest.raises(InvalidRequest, match=why):
        await client.batches.submit(requests)
    assert [file async for file in client.files.list()] == []


async def test_a_batch_whose_answer_was_lost_is_not_doubled(client: AsyncClient, door: ArchiveDoor) -> None:
    door.lose = 4  # of the upload, and of the order
    await client.batches.submit([ASK])
    assert len([batch async for batch in client.batches.list()]) == 1
    assert len(set(door.keys)) == 1 < len(door.keys) or door.lose == 0
    await client.batches.submit([ASK])
    assert len(set(door.keys)) == 2


async def test_results_are_in_the_order_of_the_requests_or_as_finished(client: AsyncClient, door: ArchiveDoor) -> None:
    door.script.replies.extend(["One.", Fails("timeout", "Slow.", None), "Three."])
    handle = await client.batches.submit([ASK] * 3)
    ordered = [item async for item in handle.results()]
    assert [(item.custom_id, item.ok) for item in ordered] == [
        ("request-1", True), ("request-2", False), ("request-3", True),
    ]  # fmt: skip
    assert {item.custom_id async for item in handle.results(ordered=False)} == {one.custom_id for one in ordered}
    (error,) = [error async for error in handle.errors()]
    assert (error.custom_id, error.code, error.message) == ("request-2", "timeout", "Slow.")


async def test_what_is_finished_comes_while_the_rest_waits(client: AsyncClient, door: ArchiveDoor) -> None:
    door.script.otherwise = Waits()
    handle = await client.batches.submit([ASK] * 3)
    door.parts = [[line("request-3")], [line("request-1")]]
    items = handle.results(ordered=False)
    assert [(await anext(items)).custom_id for _ in range(2)] == ["request-3", "request-1"]
    await handle.cancel()
    assert [(item.custom_id, item.ok) async for item in items] == [("request-2", False)]


async def test_a_download_that_breaks_is_taken_up_where_it_broke(client: AsyncClient, door: ArchiveDoor) -> None:
    data = "\n".join(f'{{"n": {n}, "text": "wörld\u2028"}}' for n in range(50)).encode()
    file = await client.files.upload(data, filename='a "name".jsonl')
    door.cut = [0, 10, 11, 500]
    assert b"".join([piece async for piece in client.files.content(file.id)]) == data
    assert door.ranges[-1] == "bytes=500-"
    assert [one["n"] async for one in client.files.lines(file.id)] == list(range(50))


async def test_files_are_kept_listed_and_deleted(client: AsyncClient, tmp_path: Path) -> None:
    made = [await client.files.upload(iter([b"ab", "cd"]), filename=f"{n}.bin", purpose="user_data") for n in range(5)]
    assert (made[0].bytes, made[0].filename, made[0].purpose) == (4, "0.bin", "user_data")
    assert [file.id async for file in client.files.list()] == [file.id for file in reversed(made)]
    assert [file async for file in client.files.list(purpose="batch")] == []
    await client.files.delete(made[0].id)
    with pytest.raises(NotFound):
        await client.files.get(made[0].id)
    with pytest.raises(NotFound):
        [piece async for piece in client.files.content(made[0].id)]


async def test_a_batch_is_found_again_by_its_id(client: AsyncClient) -> None:
    ids = [(await client.batches.submit([ASK])).id for _ in range(5)]
    assert [batch.id async for batch in client.batches.list()] == ids[::-1]
    assert [item.custom_id async for item in client.batches.get(ids[0]).results()] == ["request-1"]
    with pytest.raises(NotFound):
        await client.batches.get("batch_0").wait(1)


async def test_waiting_ends_in_time_and_tells_how_far_it_is(client: AsyncClient, door: ArchiveDoor) -> None:
    door.script.otherwise = Waits()
    handle = await client.batches.submit([ASK] * 10)
    counts = [{"request_counts": {"total": 10, "completed": n, "failed": 0}} for n in (0, 2, 4)]
    door.statuses = list(counts)
    told: list[Progress] = []
    with pytest.raises(WaitTimeout):
        await handle.wait(0.1, progress=told.append)
    assert [(one.done, one.total) for one in told[:3]] == [(0, 10), (2, 10), (4, 10)]
    assert told[0].rate is None
    assert (told[2].rate or 0) > 0
    assert told[2].seconds_left is not None


async def test_a_refused_file_says_which_lines_are_wrong(client: AsyncClient) -> None:
    handle = await client.batches.submit(await client.files.upload(b'{"custom_id": "a"}\n'))
    assert (await handle.wait(10)).status == "failed"
    for ordered in (True, False):
        with pytest.raises(BatchFailed, match="line 1"):
            [item async for item in handle.results(ordered=ordered)]
    assert [error.line async for error in handle.errors()] == [1]


async def test_the_sync_client_has_the_same(door: ArchiveDoor, tmp_path: Path) -> None:
    async with serving(door.app()) as url:

        def use() -> None:
            told: list[Progress] = []
            with Client(url) as client:
                handle = client.batches.submit(ASK for _ in range(3))
                assert handle.wait(10, progress=told.append).finished
                assert handle.wait(10).status == handle.status() == told[-1].batch.status == "completed"
                assert [item.custom_id for item in client.batches.get(handle.id).results()][2] == "request-3"
                assert len(list(handle.results(ordered=False))) == 3
                assert handle.progress().done == handle.batch().counts.total == 3
                with pytest.raises(IllegalTransition):
                    handle.cancel()
                assert list(handle.errors()) == []
                assert [batch.id for batch in client.batches.list()] == [handle.id]
                file = client.files.upload(b"{}\n")
                assert b"".join(client.files.content(file.id)) == b"{}\n"
                assert list(client.files.lines(file.id)) == [{}]
                assert client.files.get(file.id) in list(client.files.list())
                assert client.batches.submit(file).wait(10).status == "failed"
                client.files.delete(file.id)
                assert len(list(handle.watch(10))) == 1

        await asyncio.to_thread(use)


async def test_over_redis_there_are_none() -> None:
    async with AsyncClient("redis://127.0.0.1:1", retry_for_s=0) as client:
        for act in (client.batches.submit([ASK]), client.files.get("file-1"), client.batches.get("batch_1").wait(1)):
            with pytest.raises(NotSupported, match="front door"):
                await act


def test_the_rate_is_that_of_the_last_minute() -> None:
    now = 0.0
    meter = Meter(lambda: now)

    def look(done: int) -> Progress:
        raw = {
            "id": "b", "status": "in_progress", "endpoint": "e", "input_file_id": "f", "completion_window": "24h",
            "created_at": 0, "request_counts": {"total": 1000, "completed": done, "failed": 0},
        }  # fmt: skip
        return meter.saw(Batch.parse(raw))

    assert look(0).rate is None
    now = 10.0
    assert (look(100).rate, look(100).seconds_left) == (10.0, 90.0)
    for now in range(20, 200, 10):
        seen = look(100 + (now - 10))
    assert seen.rate == pytest.approx(1.0, rel=0.1)  # pyright: ignore[reportPossiblyUnboundVariable]
