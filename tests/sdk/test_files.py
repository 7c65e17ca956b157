"""Files: uploaded, listed page by page, looked at, read, deleted."""

from __future__ import annotations

from pathlib import Path

import openai
import pytest

from tests.sdk.both import Client, done, each, opened
from tests.sdk.stage import Stage

LINES = b'{"custom_id": "a", "method": "POST"}\n' * 100


async def test_a_file_comes_back_to_the_byte(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "requests ä.jsonl"
    path.write_bytes(LINES)
    made = await done(client.files.create(file=path, purpose="batch"))
    assert (made.object, made.filename, made.bytes, made.purpose) == ("file", path.name, len(LINES), "batch")
    assert made.id.startswith("file-")
    assert await done(client.files.retrieve(made.id)) == made
    assert (await done(client.files.content(made.id))).content == LINES
    assert (await done(client.files.wait_for_processing(made.id))).status == "processed"


async def test_a_large_file_is_read_piece_by_piece(client: Client) -> None:
    large = bytes(range(256)) * 20_000  # 5 MB: far beyond what a request's body may have
    made = await done(client.files.create(file=("large.bin", large), purpose="user_data"))
    content = client.files.with_streaming_response.content(made.id)
    if isinstance(client, openai.OpenAI):
        with content as response:  # pyright: ignore[reportGeneralTypeIssues]
            read = b"".join(response.iter_bytes())
    else:
        async with content as response:  # pyright: ignore[reportGeneralTypeIssues]
            read = b"".join([piece async for piece in response.iter_bytes()])
    assert read == large


async def test_all_pages_are_listed(played: Stage, face: type[Client]) -> None:
    async with opened(face(base_url=played.url, api_key=f"filer-{face.__name__}", max_retries=0)) as client:
        made = [(await done(client.files.create(file=(f"{n}.jsonl", LINES), purpose="batch"))).id for n in range(5)]
        assert [file.id async for file in each(client.files.list(limit=2, order="asc"))] == made
        assert [file.id async for file in each(client.files.list(limit=3))] == made[::-1]
        page = await done(client.files.list(limit=2, order="asc", after=made[0]))
        assert [file.id for file in page.data] == made[1:3]
        assert page.has_next_page()
        assert [file.id async for file in each(client.files.list(purpose="fine-tune"))] == []


async def test_a_file_may_have_an_end(client: Client) -> None:
    end = {"anchor": "created_at", "seconds": 3600}
    made = await done(client.files.create(file=("x.jsonl", LINES), purpose="batch", expires_after=end))  # pyright: ignore[reportArgumentType]
    assert made.expires_at == made.created_at + 3600


async def test_a_deleted_file_is_gone_and_anothers_was_never_there(client: Client) -> None:
    made = await done(client.files.create(file=("x.jsonl", LINES), purpose="batch"))
    others = client.with_options(api_key="bob")
    for call in (others.files.retrieve, others.files.content, others.files.delete):
        with pytest.raises(openai.NotFoundError):
            await done(call(made.id))
    deleted = await done(client.files.delete(made.id))
    assert (deleted.id, deleted.deleted) == (made.id, True)
    with pytest.raises(openai.NotFoundError):
        await done(client.files.retrieve(made.id))
