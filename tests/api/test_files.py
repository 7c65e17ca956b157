"""`/v1/files`: as OpenAI's, each tenant's own; whatever a form is like, the answer is clear and nothing of it stays."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import fsspec
import httpx
import pytest
from openai.types import FileDeleted, FileObject

from fairlane.files import Files
from producer.api import body, files
from producer.api.state import State
from tests.api.door import BOB, Served, read_answer, refused, request_bytes
from tests.dispatcher.scripted import until

LINES = b'{"custom_id": "a"}\n{"custom_id": "b"}\n'
FORM = "multipart/form-data; boundary=XX"
PURPOSE = b'Content-Disposition: form-data; name="purpose"\r\n\r\nbatch'
FILE = b'Content-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n{}'
MIB = 1 << 20


def form(*parts: bytes, end: bytes = b"--XX--\r\n") -> bytes:
    return b"".join(b"--XX\r\n" + part + b"\r\n" for part in parts) + end


async def upload(http: httpx.AsyncClient, content: bytes = LINES, **fields: str) -> dict[str, Any]:
    """The file that was taken in, which OpenAI's own type can read."""
    data = {"purpose": "batch"} | fields
    response = await http.post("/v1/files", data=data, files={"file": ("in.jsonl", content)})
    assert response.status_code == 200, response.text
    FileObject.model_validate(response.json(), strict=True)
    return response.json()


async def nothing_left(state: State) -> None:
    """No file, no content, and no note of either."""
    assert (await state.files.list("ann")).files == []
    assert contents(state) == []
    for key in ("uploads", "discarded", "file_ends"):
        name = f"{state.settings.namespace}:{{acct}}:{key}"
        assert await state.queue.store.client.zrange(name, 0, -1) == []


def contents(state: State) -> list[str]:
    system, root = fsspec.url_to_fs(state.settings.files_at)
    return system.find(root)


@pytest.fixture(autouse=True)
def emptied(namespace: str) -> Iterator[None]:
    """fsspec's memory is one for the whole process."""
    yield
    system, root = fsspec.url_to_fs(f"memory://{namespace}")
    if system.exists(root):
        system.rm(root, recursive=True)


# --- what OpenAI's clients do ----------------------------------------------------------------------------------------


async def test_a_file_goes_in_and_comes_out(http: httpx.AsyncClient) -> None:
    file = await upload(http)
    assert file["id"].startswith("file-")
    assert (file["bytes"], file["filename"], file["purpose"]) == (len(LINES), "in.jsonl", "batch")
    assert file["expires_at"] - file["created_at"] == 30 * 86_400
    assert (await http.get(f"/v1/files/{file['id']}")).json() == file
    content = await http.get(f"/v1/files/{file['id']}/content")
    assert (content.status_code, content.content) == (200, LINES)
    assert content.headers["content-type"] == "application/jsonl"
    deleted = await http.delete(f"/v1/files/{file['id']}")
    assert deleted.json() == {"id": file["id"], "object": "file", "deleted": True}
    FileDeleted.model_validate(deleted.json(), strict=True)
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        refused(await http.request(method, f"/v1/files/{file['id']}{path}"), 404, "not_found")


async def test_the_parts_may_come_in_any_order_and_the_file_may_be_empty(http: httpx.AsyncClient) -> None:
    for parts in ((FILE, PURPOSE), (PURPOSE, FILE), (PURPOSE, FILE[:-2])):
        response = await http.post("/v1/files", content=form(*parts), headers={"content-type": FORM})
        assert response.status_code == 200, response.text
        assert response.json()["bytes"] == len(parts[1] if parts[0] == PURPOSE else FILE) - len(FILE[:-2])


async def test_any_bytes_and_names_pass_unchanged(http: httpx.AsyncClient) -> None:
    content = bytes(range(256)) * 5000 + b"\r\n--XX"
    parts = {"file": ('../wörk/ein "Satz"; x=y.bin', content)}
    file = (await http.post("/v1/files", data={"purpose": "user_data"}, files=parts)).json()
    assert (file["filename"], file["expires_at"]) == ("ein %22Satz%22; x=y.bin", None)
    read = await http.get(f"/v1/files/{file['id']}/content")
    assert read.content == content
    assert read.headers["content-type"] == "application/octet-stream"
    assert read.headers["content-disposition"].isascii()


async def test_a_file_expires_when_it_was_said(http: httpx.AsyncClient) -> None:
    ends: dict[str, Any] = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    file = await upload(http, **ends)
    assert file["expires_at"] - file["created_at"] == 3600


async def test_files_come_page_by_page(http: httpx.AsyncClient) -> None:
    made = [(await upload(http, purpose=p))["id"] for p in ("batch", "user_data", "batch", "batch")]
    by_age = sorted(made)
    page = (await http.get("/v1/files", params={"limit": 3})).json()
    assert page.keys() == {"object", "data", "first_id", "last_id", "has_more"}
    assert [file["id"] for file in page["data"]] == by_age[:0:-1]
    assert (page["first_id"], page["last_id"], page["has_more"]) == (by_age[3], by_age[1], True)
    rest = (await http.get("/v1/files", params={"after": page["last_id"]})).json()
    assert ([file["id"] for file in rest["data"]], rest["has_more"]) == (by_age[:1], False)
    first = (await http.get("/v1/files", params={"order": "asc", "limit": 1})).json()
    assert first["first_id"] == first["last_id"] == by_age[0]
    only = (await http.get("/v1/files", params={"purpose": "user_data"})).json()
    assert [file["id"] for file in only["data"]] == [made[1]]
    empty = (await http.get("/v1/files", headers=BOB)).json()
    assert empty == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


@pytest.mark.parametrize("query", ["limit=0", "limit=10001", "limit=x", "order=up", "purpose=" + "x" * 99])
async def test_a_list_that_cannot_be_given_is_refused(http: httpx.AsyncClient, query: str) -> None:
    refused(await http.get(f"/v1/files?{query}"), 400, "invalid_request")


async def test_another_tenants_file_is_not_found(http: httpx.AsyncClient) -> None:
    file = await upload(http)
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        refused(await http.request(method, f"/v1/files/{file['id']}{path}", headers=BOB), 404, "not_found")
    assert (await http.get("/v1/files", params={"after": file["id"]}, headers=BOB)).json()["data"] == []
    assert (await http.get(f"/v1/files/{file['id']}")).status_code == 200


@pytest.mark.parametrize(
    "id_", ["x", "file-", "..", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%00", "%ff", "[-", "+"]
)
async def test_an_id_is_no_path(http: httpx.AsyncClient, id_: str) -> None:
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        response = await http.request(method, f"/v1/files/{id_}{path}")
        assert response.status_code in (404, 405)
        assert response.json().keys() == {"error"}


# --- forms that are none ----------------------------------------------------------------------------------------------

MANY = [b'Content-Disposition: form-data; name="f%d"\r\n\r\nx' % n for n in range(20)]
BAD: dict[str, tuple[str, bytes]] = {
    "no type": ("", form(PURPOSE, FILE)),
    "json": ("application/json", b"{}"),
    "urlencoded": ("application/x-www-form-urlencoded", b"purpose=batch"),
    "mixed": ("multipart/mixed; boundary=XX", form(PURPOSE, FILE)),
    "no boundary": ("multipart/form-data", form(PURPOSE, FILE)),
    "empty boundary": ("multipart/form-data; boundary=", form(PURPOSE, FILE)),
    "long boundary": ("multipart/form-data; boundary=" + "X" * 300, form(PURPOSE, FILE)),
    "another boundary": ("multipart/form-data; boundary=YY", form(PURPOSE, FILE)),
    "no body": (FORM, b""),
    "no parts": (FORM, form()),
    "only text": (FORM, b"hello"),
    "no file": (FORM, form(PURPOSE)),
    "no purpose": (FORM, form(FILE)),
    "empty purpose": (FORM, form(PURPOSE[:-5], FILE)),
    "unknown purpose": (FORM, form(PURPOSE + b"es", FILE)),
    "purpose after the file is wrong": (FORM, form(FILE, PURPOSE + b"es")),
    "OpenAI's purpose that is not served": (FORM, form(PURPOSE[:-5] + b"fine-tune", FILE)),
    "our own purpose": (FORM, form(PURPOSE + b"_output", FILE)),
    "purpose not UTF-8": (FORM, form(PURPOSE[:-5] + b"\xff", FILE)),
    "purpose as a file": (FORM, form(PURPOSE.replace(b'"purpose"', b'"purpose"; filename="p"'), FILE)),
    "two purposes": (FORM, form(PURPOSE, PURPOSE, FILE)),
    "two files": (FORM, form(PURPOSE, FILE, FILE)),
    "unknown part": (FORM, form(PURPOSE, MANY[0], FILE)),
    "many parts": (FORM, form(*MANY)),
    "file[]": (FORM, form(PURPOSE, FILE.replace(b'"file"', b'"file[]"'))),
    "no filename": (FORM, form(PURPOSE, FILE.replace(b'; filename="a.jsonl"', b""))),
    "empty filename": (FORM, form(PURPOSE, FILE.replace(b"a.jsonl", b""))),
    "folder as filename": (FORM, form(PURPOSE, FILE.replace(b"a.jsonl", b"../.."))),
    "filename with a NUL": (FORM, form(PURPOSE, FILE.replace(b"a.jsonl", b"a\x00b"))),
    "filename not UTF-8": (FORM, form(PURPOSE, FILE.replace(b"a.jsonl", b"\xff\xfe"))),
    "long filename": (FORM, form(PURPOSE, FILE.replace(b"a.jsonl", b"x" * 256))),
    "no name": (FORM, form(FILE.replace(b' name="file";', b""))),
    "no disposition": (FORM, form(PURPOSE, b"X: y\r\n\r\n{}")),
    "no headers": (FORM, form(PURPOSE, b"\r\n{}")),
    "attachment": (FORM, form(PURPOSE, FILE.replace(b"form-data", b"attachment"))),
    "two dispositions": (FORM, form(PURPOSE, b"Content-Disposition: form-data; name=x\r\n" + FILE)),
    "bad header": (FORM, form(PURPOSE, b"\x01\x02: y\r\n" + FILE)),
    "long header": (FORM, form(PURPOSE, b"X: " + b"y" * 9000 + b"\r\n" + FILE)),
    "many headers": (FORM, form(PURPOSE, b"X: y\r\n" * 50 + FILE)),
    "base64": (FORM, form(PURPOSE, b"Content-Transfer-Encoding: base64\r\n" + FILE)),
    "nested": (FORM, form(PURPOSE, b"Content-Type: multipart/mixed; boundary=YY\r\n" + FILE)),
    "huge field": (FORM, form(PURPOSE + b"x" * MIB, FILE)),
    "cut off in a header": (FORM, form(PURPOSE, end=b"--XX\r\nContent-Dis")),
    "cut off in the file": (FORM, form(PURPOSE, end=b"--XX\r\n" + FILE)),
    "cut off before the end": (FORM, form(PURPOSE, FILE, end=b"")),
    "no second newline": (FORM, b"--XX\r\n" + PURPOSE.replace(b"\r\n\r\n", b"\r\n") + b"\r\n--XX--"),
    "gzip": (FORM, b"\x1f\x8b\x08\x00\x00\x00\x00\x00"),
    "anchor alone": (FORM, form(PURPOSE, PURPOSE.replace(b"purpose", b"expires_after[anchor]"), FILE)),
    "seconds alone": (FORM, form(PURPOSE, PURPOSE.replace(b"purpose", b"expires_after[seconds]"), FILE)),
}  # fmt: skip


async def in_steps(text: bytes, step: int) -> AsyncIterator[bytes]:
    for start in range(0, len(text), step):
        yield text[start : start + step]


async def test_a_form_that_cannot_be_taken_is_refused_and_leaves_nothing(http: httpx.AsyncClient, state: State) -> None:
    for name, (kind, text) in BAD.items():
        headers = {"content-type": kind} if kind else {}
        for step in (len(text) or 1, 7):  # in one piece, and in many
            if len(text) // step < 2000:
                response = await http.post("/v1/files", content=in_steps(text, step), headers=headers)
                assert response.status_code == 400, (name, step, response.text)
                refused(response, 400, "invalid_request")
                await nothing_left(state)


@pytest.mark.parametrize(
    ("anchor", "seconds"),
    [("created_at", "3599"), ("created_at", "2592001"), ("created_at", "1e4"), ("created_at", "٣٦٠٠"), ("now", "3600")],
)
async def test_an_end_that_makes_no_sense_is_refused(
    http: httpx.AsyncClient, state: State, anchor: str, seconds: str
) -> None:
    data = {"purpose": "batch", "expires_after[anchor]": anchor, "expires_after[seconds]": seconds}
    response = await http.post("/v1/files", data=data, files={"file": ("f", b"")})
    assert refused(response, 400, "invalid_request")["param"].startswith("expires_after")
    await nothing_left(state)


async def test_no_page_of_another_site_can_send_a_file(http: httpx.AsyncClient, state: State) -> None:
    for site, status in (("cross-site", 400), ("same-site", 400), ("same-origin", 200), ("none", 200)):
        headers = {"content-type": FORM, "sec-fetch-site": site}
        assert (await http.post("/v1/files", content=form(PURPOSE, FILE), headers=headers)).status_code == status


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """A limit that is soon reached."""
    monkeypatch.setattr(files, "MOST", 300_000)
    monkeypatch.setattr(body, "DISCARD_S", 0.2)
    return files.MOST


async def test_the_largest_file_is_taken_and_one_byte_more_is_not(
    http: httpx.AsyncClient, state: State, small: int
) -> None:
    file = await upload(http, b"x" * small)
    assert file["bytes"] == small
    await http.delete(f"/v1/files/{file['id']}")
    parts = {"file": ("f", b"x" * (small + 1))}
    assert refused(await http.post("/v1/files", data={"purpose": "batch"}, files=parts), 413, "payload_too_large")
    await nothing_left(state)


@pytest.mark.parametrize("before", [b"", form(PURPOSE, FILE)])
async def test_a_form_without_a_length_is_bounded_too_also_behind_its_end(
    http: httpx.AsyncClient, state: State, small: int, before: bytes
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield before or form(PURPOSE, end=b"--XX\r\n" + FILE)
        while True:
            yield b"x" * 65_536

    response = await http.post("/v1/files", content=endless(), headers={"content-type": FORM})
    refused(response, 413, "payload_too_large")
    await nothing_left(state)


async def test_what_says_that_it_is_too_large_is_not_even_read(door: Served) -> None:
    reader, writer = await door.connect()
    lines = (f"content-type: {FORM}", f"content-length: {300 << 20}", "expect: 100-continue")
    writer.write(request_bytes("/v1/files", b"", *lines))
    answer = await asyncio.wait_for(read_answer(reader), 5)
    writer.close()
    assert (answer.status, answer.json()["error"]["code"]) == (413, "payload_too_large")
    assert answer.headers["connection"] == "close"


async def test_an_upload_whose_sender_hangs_up_leaves_nothing(door: Served) -> None:
    state: State = door.server.config.app.state.fairlane  # type: ignore[union-attr]
    for sent in (b"--X", form(PURPOSE, end=b"--XX\r\n" + FILE) + b"x" * 3 * MIB):
        _, writer = await door.connect()
        head = request_bytes("/v1/files", b"", f"content-type: {FORM}", f"content-length: {100 * MIB}")
        writer.write(head + sent)
        await writer.drain()
        if len(sent) > MIB:

            async def written() -> bool:
                return len(contents(state)) == 1

            await until(written)
        writer.transport.abort()

        async def idle() -> bool:
            return not door.server.server_state.tasks

        await until(idle)
        await nothing_left(state)


async def test_a_large_file_is_never_held_whole(door: Served, tmp_path: Path) -> None:
    """60 MB, in and out. What this process holds of it, sender and receiver included, are pieces."""
    state: State = door.server.config.app.state.fairlane  # type: ignore[union-attr]
    state.files = Files(state.queue, str(tmp_path / "files"))
    piece = b"x" * 100_000

    async def pieces() -> AsyncIterator[bytes]:
        yield form(PURPOSE, end=b"--XX\r\n" + FILE)
        for _ in range(600):
            yield piece
        yield b"\r\n--XX--\r\n"

    tracemalloc.start()
    try:
        async with door.client() as http:
            response = await http.post("/v1/files", content=pieces(), headers={"content-type": FORM})
            file = response.json()
            assert file["bytes"] == 600 * len(piece) + 2, response.text
            length = 0
            async with http.stream("GET", f"/v1/files/{file['id']}/content") as content:
                async for part in content.aiter_raw():
                    length += len(part)
        assert length == file["bytes"]
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


async def test_without_redis_it_is_said(http: httpx.AsyncClient, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    file = await upload(http)
    await state.queue.store.close()
    parts = {"file": ("f", LINES)}
    refused(await http.post("/v1/files", data={"purpose": "batch"}, files=parts), 503, "store_unavailable")
    for method, path in (("GET", ""), ("GET", f"/{file['id']}"), ("GET", f"/{file['id']}/content")):
        refused(await http.request(method, f"/v1/files{path}"), 503, "store_unavailable")
    refused(await http.delete(f"/v1/files/{file['id']}"), 503, "store_unavailable")
    assert len(contents(state)) == 1
