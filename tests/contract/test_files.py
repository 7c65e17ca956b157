"""Files: a tenant's own, whole or not at all, and nothing of them is left behind by whoever dies on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.contents import PIECE, Contents, Writer
from fairlane.errors import FilesUnavailable, NotFound, PayloadTooLarge, StoreUnavailable
from fairlane.files import AGAIN_MS, HOLD_MS, Draft, Files, FileView
from fairlane.queue.engine import Queue

MOST = 5 * PIECE
NOTES = ("uploads", "discarded", "file_ends")


class Killed(BaseException):
    """What a process that dies does not get to handle."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "files"


@pytest.fixture
def files(queue: Queue, folder: Path) -> Files:
    return Files(queue, str(folder))


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def put(files: Files, tenant: str = "ann", *parts: bytes, **changes: Any) -> FileView:
    fields: dict[str, Any] = {"filename": "in.jsonl", "purpose": "batch", "most": MOST} | changes
    return await files.put(tenant, pieces=pieces(*parts), **fields)


async def whole(files: Files, file: FileView) -> bytes:
    return b"".join([piece async for piece in files.read(file)])


def kept(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def mode(folder: Path) -> int:
    return folder.stat().st_mode & 0o777


async def noted(client: Any, queue: Queue) -> list[bytes]:
    """What is remembered of contents that are no files (yet, or any more), and of ends."""
    return [name for key in NOTES for name in await client.zrange(f"{queue.store.namespace}:{{acct}}:{key}", 0, -1)]


def ids(found: Iterable[FileView]) -> list[str]:
    return [file.id for file in found]


async def test_what_is_put_is_read_again(files: Files, folder: Path, clock: ManualClock) -> None:
    content = [b"a" * 10, b"", b"b" * (2 * PIECE + 1), b"c"]
    file = await put(files, "ann", *content, filename="früh.jsonl")
    assert (file.filename, file.purpose, file.bytes) == ("früh.jsonl", "batch", 2 * PIECE + 12)
    assert (file.created_at_ms, file.expires_at_ms) == (clock.now_ms(), None)
    assert await files.get("ann", file.id) == file
    assert await whole(files, file) == b"".join(content)
    assert mode(folder) == 0o700
    for start in (1, 2 * PIECE, file.bytes, file.bytes + 1):
        rest = b"".join([piece async for piece in files.read(file, start)])
        assert rest == b"".join(content)[start:]
    empty = await put(files)
    assert (empty.bytes, await whole(files, empty)) == (0, b"")


async def test_a_file_is_its_tenants_alone(files: Files) -> None:
    file = await put(files, "ann", b"x")
    for act in (files.get, files.delete):
        for tenant, id_ in (("bob", file.id), ("ann", file.id[:-1]), ("ann", file.id + "x"), ("ann", "\xff"), ("", "")):
            with pytest.raises(NotFound):
                await act(tenant, id_)
    assert (await files.list("bob")).files == []
    assert await whole(files, await files.get("ann", file.id)) == b"x"


async def test_a_deleted_file_leaves_nothing(files: Files, folder: Path, client: Any, queue: Queue) -> None:
    file = await put(files, "ann", b"x", expires_after_s=3600)
    await files.delete("ann", file.id)
    with pytest.raises(NotFound):
        await files.get("ann", file.id)
    with pytest.raises(NotFound):
        await files.delete("ann", file.id)
    with pytest.raises(NotFound):
        await whole(files, file)
    assert kept(folder) == set()
    assert await client.keys(f"{queue.store.namespace}:*file*") == []
    assert await noted(client, queue) == []


async def test_one_that_is_too_large_leaves_nothing(files: Files, folder: Path, client: Any, queue: Queue) -> None:
    assert (await put(files, "ann", *[b"x" * PIECE] * 5)).bytes == MOST
    before = kept(folder)
    with pytest.raises(PayloadTooLarge):
        await put(files, "ann", *[b"x" * PIECE] * 5, b"x")
    assert kept(folder) == before
    assert len((await files.list("ann")).files) == 1
    assert await noted(client, queue) == []


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
async def test_an_upload_that_breaks_off_leaves_nothing(
    files: Files, folder: Path, client: Any, queue: Queue, error: type[BaseException]
) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * 2 * PIECE
        assert len(kept(folder)) == 1
        raise error

    with pytest.raises(error):
        await files.put("ann", "f", "batch", broken(), MOST)
    assert (kept(folder), (await files.list("ann")).files, await noted(client, queue)) == (set(), [], [])


async def test_pages_come_in_order_and_go_on_behind_an_id_even_if_that_is_gone(
    files: Files, clock: ManualClock
) -> None:
    made: list[FileView] = []
    for n in range(7):
        made.append(await put(files, "ann", purpose="batch" if n % 2 else "user_data"))
        clock.advance(n % 3)  # some of the same millisecond
    by_age = ids(sorted(made, key=lambda file: file.id))
    assert [file.created_at_ms for file in made] == sorted(file.created_at_ms for file in made)
    assert ids((await files.list("ann", order="asc")).files) == by_age
    assert ids((await files.list("ann")).files) == by_age[::-1]
    for order, expected in (("asc", by_age), ("desc", by_age[::-1])):
        seen: list[str] = []
        while True:
            page = await files.list("ann", after=seen[-1] if seen else None, limit=2, order=order)
            seen += ids(page.files)
            if not page.has_more:
                break
        assert seen == expected
    only = await files.list("ann", purpose="batch", limit=2, order="asc")
    batches = [file.id for file in sorted(made, key=lambda file: file.id) if file.purpose == "batch"]
    assert (ids(only.files), only.has_more) == (batches[:2], True)
    await files.delete("ann", by_age[3])
    rest = await files.list("ann", after=by_age[3], order="asc")
    assert (ids(rest.files), rest.has_more) == (by_age[4:], False)


async def test_a_list_longer_than_one_read_is_whole(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.files.PAGE", 2)
    made = sorted(ids([await put(files) for _ in range(6)]))
    for limit in (1, 2, 3, 5, 6, 7):
        page = await files.list("ann", limit=limit, order="asc")
        assert (ids(page.files), page.has_more) == (made[:limit], limit < 6)
    assert ids((await files.list("ann", purpose="batch")).files) == made[::-1]
    assert (await files.list("ann", purpose="other")).files == []


async def test_a_file_past_its_end_is_gone_at_once_and_its_content_at_the_next_sweep(
    files: Files, folder: Path, clock: ManualClock, client: Any, queue: Queue
) -> None:
    file = await put(files, "ann", b"x", expires_after_s=3600)
    assert file.expires_at_ms == clock.now_ms() + 3_600_000
    stays = await put(files, "ann", b"y")
    clock.advance(3_599_999)
    assert await files.get("ann", file.id) == file
    clock.advance(1)
    with pytest.raises(NotFound):
        await files.get("ann", file.id)
    assert ids((await files.list("ann")).files) == [stays.id]
    assert await files.sweep() == 1
    assert kept(folder) == {stays.content}
    assert await noted(client, queue) == []


async def test_what_a_killed_upload_left_is_swept_when_nobody_holds_it_on(
    files: Files, folder: Path, clock: ManualClock, client: Any, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(*_: object) -> None:
        raise Killed

    for place, name in ((Writer, "finish"), (Files, "add")):
        with monkeypatch.context() as killed:
            killed.setattr(place, name, dies)
            killed.setattr(Draft, "drop", dies)
            with pytest.raises(Killed):
                await put(files, "ann", b"x" * PIECE)
    assert len(kept(folder)) == 2
    clock.advance(HOLD_MS - 1)
    assert await files.sweep() == 0
    clock.advance(1)
    file = await put(files, "ann", b"y")  # each upload sweeps
    assert kept(folder) == {file.content}
    assert await noted(client, queue) == []
    assert await whole(files, file) == b"y"


async def test_a_slow_upload_is_held_on(files: Files, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.files.HOLD_ON_S", -1.0)

    async def slow() -> AsyncIterator[bytes]:
        for _ in range(3):
            clock.advance(HOLD_MS - 1)
            assert await files.sweep() == 0
            yield b"x"

    assert (await files.put("ann", "f", "batch", slow(), MOST)).bytes == 3


@pytest.mark.parametrize("hold_on_s", [-1.0, 60.0])
async def test_an_upload_that_was_given_up_makes_no_file(
    files: Files, folder: Path, clock: ManualClock, client: Any, queue: Queue, monkeypatch: pytest.MonkeyPatch,
    hold_on_s: float,
) -> None:  # fmt: skip
    """Whether its process notices on the way, or at the end."""
    monkeypatch.setattr("fairlane.files.HOLD_ON_S", hold_on_s)

    async def frozen() -> AsyncIterator[bytes]:
        yield b"x" * PIECE
        clock.advance(HOLD_MS)
        assert await files.sweep() == 1
        yield b"x"

    with pytest.raises(FilesUnavailable, match="Send it again"):
        await files.put("ann", "f", "batch", frozen(), MOST)
    assert (kept(folder), (await files.list("ann")).files, await noted(client, queue)) == (set(), [], [])


async def test_content_that_cannot_be_deleted_is_tried_again(
    files: Files, folder: Path, clock: ManualClock, client: Any, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await put(files, "ann", b"x")

    async def away(*_: object) -> None:
        raise FilesUnavailable

    with monkeypatch.context() as broken:
        broken.setattr(Contents, "delete", away)
        await files.delete("ann", file.id)
    with pytest.raises(NotFound):
        await files.get("ann", file.id)
    assert kept(folder) == {file.content}
    clock.advance(AGAIN_MS)
    await files.sweep()
    assert (kept(folder), await noted(client, queue)) == (set(), [])


async def test_a_put_with_an_id_makes_one_file_however_often_it_is_repeated(
    files: Files, folder: Path, clock: ManualClock
) -> None:
    id_ = await files.new_id()
    made = await asyncio.gather(*(put(files, "ann", b"x%d" % n, file_id=id_) for n in range(4)))
    again = await put(files, "ann", b"other", file_id=id_)
    assert {file.id for file in (*made, again)} == {id_}
    assert len(set(made)) == 1
    assert ids((await files.list("ann")).files) == [id_]
    clock.advance(HOLD_MS)
    await files.sweep()
    assert kept(folder) == {again.content}
    assert (await whole(files, again)).startswith(b"x")


async def test_a_lost_answer_leaves_no_half_file(
    files: Files, folder: Path, queue: Queue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis may have made the file or not: what there is afterwards is whole, and what is not is swept."""
    run = queue.store.run
    for done in (True, False):

        async def lossy(name: str, *args: Any, done: bool = done, **more: Any) -> Any:
            if name == "add_file":
                if done:
                    await run(name, *args, **more)
                raise StoreUnavailable
            return await run(name, *args, **more)

        with monkeypatch.context() as patched:
            patched.setattr(queue.store, "run", lossy)
            with pytest.raises(StoreUnavailable):
                await put(files, "ann", b"whole")
    clock.advance(HOLD_MS)
    await files.sweep()
    (file,) = (await files.list("ann")).files
    assert await whole(files, file) == b"whole"
    assert kept(folder) == {file.content}


@pytest.mark.parametrize("store", ["fakeredis"], indirect=True)
async def test_files_may_be_in_any_store_that_fsspec_knows(queue: Queue, store: str) -> None:
    files = Files(queue, f"memory://{queue.store.namespace}/deep")
    file = await put(files, "ann", b"x" * 3 * PIECE)
    assert len(await whole(files, file)) == 3 * PIECE
    await files.delete("ann", file.id)
    with pytest.raises(NotFound):
        await whole(files, file)
