"""Where files may be kept, and what is said if they cannot."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from fairlane.contents import Contents
from fairlane.errors import FilesUnavailable, InvalidRequest
from fairlane.settings import Settings, load
from producer.api.app import create_app


async def written(contents: Contents, name: str, data: bytes) -> bytes:
    async with contents.write(name) as writer:
        await writer.write(data)
    return b"".join([piece async for piece in contents.read(name)])


@pytest.mark.parametrize(
    ("url", "why"), [("s3://bucket/place", "Install s3fs"), ("nowhere://x", "Protocol not known: nowhere")]
)
def test_a_place_that_cannot_be_reached_from_here_is_said_at_the_start(
    url: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(InvalidRequest, match=f"FAIRLANE_FILES_URL.*{why}"):
        create_app(Settings(auth="open", files_url=url))


def test_files_are_in_the_data_folder_unless_it_is_said_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRLANE_FILES_URL", raising=False)
    assert load(data_dir=tmp_path).files_at == str(tmp_path / "files")
    monkeypatch.setenv("FAIRLANE_FILES_URL", "memory://x")
    assert load(data_dir=tmp_path).files_at == "memory://x"


@pytest.mark.parametrize("scheme", ["", "file://"])
async def test_a_folder_is_made_for_us_alone(tmp_path: Path, scheme: str) -> None:
    contents = Contents(f"{scheme}{tmp_path}/deep/er/")
    assert not list(tmp_path.iterdir())  # noqa: ASYNC240
    assert await written(contents, "a", b"x") == b"x"
    assert (tmp_path / "deep" / "er").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("scheme", ["", "file://", "memory://"])
async def test_two_read_one_file_each_from_where_it_is(tmp_path: Path, scheme: str) -> None:
    contents = Contents(f"{scheme}{tmp_path}")
    data = os.urandom(3 << 20)
    await written(contents, "a", data)
    read: list[list[bytes]] = [[], []]
    first, second = contents.read("a"), contents.read("a", 1)
    for _ in range(4):
        for pieces, got in zip((first, second), read, strict=True):
            got.append(await anext(pieces, b""))
    assert [b"".join(got) for got in read] == [data, data[1:]]


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\x00", "a\\b", ".hidden", "x" * 201])
async def test_no_name_leads_out_of_the_place(tmp_path: Path, name: str) -> None:
    contents = Contents(str(tmp_path))
    with pytest.raises(ValueError, match="no content's name"):
        await contents.begin(name)
    with pytest.raises(ValueError, match="no content's name"):
        await contents.delete([name])


async def test_what_breaks_off_is_not_there(tmp_path: Path) -> None:
    contents = Contents(str(tmp_path))

    async def break_off() -> None:
        async with contents.write("a") as writer:
            await writer.write(b"x" * (3 << 20))
            raise KeyError

    with pytest.raises(KeyError):
        await break_off()
    assert not list(tmp_path.iterdir())  # noqa: ASYNC240


async def test_a_place_that_fails_is_said_and_what_it_said_is_kept_from_callers(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    contents = Contents(str(tmp_path / "file"))
    with pytest.raises(FilesUnavailable) as raised:
        await contents.begin("a")
    assert str(tmp_path) not in raised.value.public


async def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = Contents(str(tmp_path))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fairlane.contents.os.fsync", full)
    with pytest.raises(FilesUnavailable):
        await written(contents, "a", b"x")
    assert not list(tmp_path.iterdir())  # noqa: ASYNC240


async def test_who_is_cancelled_waits_for_what_its_thread_does_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, goes_on, fsync = threading.Event(), threading.Event(), os.fsync

    def slow(descriptor: int) -> None:
        began.set()
        assert goes_on.wait(5)
        fsync(descriptor)

    monkeypatch.setattr("fairlane.contents.os.fsync", slow)
    task = asyncio.create_task(written(Contents(str(tmp_path)), "a", b"x"))
    await asyncio.to_thread(began.wait, 5)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not list(tmp_path.iterdir())  # noqa: ASYNC240
