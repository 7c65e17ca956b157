"""`/v1/batches`: as OpenAI's, each tenant's own. (What becomes of a batch is tested where its work is.)"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest
from openai.types import Batch

from fairlane.batches import BatchFault, BatchView
from fairlane.batches.document import batch_view
from fairlane.model import Usage
from producer.api.state import State
from tests.api.door import BOB, JOB, refused

LINE = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "llama", "messages": []}}
VIEW = BatchView(
    "batch_1", "ann", "/v1/chat/completions", "file-1", "24h", "validating", 1_700_000_000_999, 1_700_086_400_999
)


async def upload(http: httpx.AsyncClient, purpose: str = "batch", headers: dict[str, str] | None = None) -> str:
    response = await http.post(
        "/v1/files", data={"purpose": purpose}, files={"file": ("in.jsonl", json.dumps(LINE))}, headers=headers
    )
    return response.json()["id"]


async def asked(http: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    """A request for a batch that would be taken."""
    given = {"input_file_id": await upload(http), "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    return {name: value for name, value in (given | changes).items() if value is not ...}


async def create(http: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    """The batch that was taken in, which OpenAI's own type can read."""
    response = await http.post("/v1/batches", json=await asked(http, **changes))
    assert response.status_code == 200, response.text
    Batch.model_validate(response.json(), strict=True)
    return response.json()


async def test_a_batch_is_taken_in_and_looked_at(http: httpx.AsyncClient) -> None:
    batch = await create(http, metadata={"night": "7"})
    assert batch["id"].startswith("batch_")
    assert (batch["object"], batch["status"], batch["metadata"]) == ("batch", "validating", {"night": "7"})
    assert batch["expires_at"] - batch["created_at"] == 86_400
    assert batch["request_counts"] == {"total": 0, "completed": 0, "failed": 0}
    assert all(batch[name] is None for name in ("output_file_id", "error_file_id", "errors", "completed_at", "usage"))
    assert (await http.get(f"/v1/batches/{batch['id']}")).json() == batch
    assert (await create(http, metadata=None))["metadata"] is None


async def test_a_batch_is_cancelled_and_that_may_be_repeated(http: httpx.AsyncClient) -> None:
    batch = await create(http)
    for _ in range(2):
        cancelled = await http.post(f"/v1/batches/{batch['id']}/cancel")
        Batch.model_validate(cancelled.json(), strict=True)
        assert cancelled.json()["status"] in ("cancelling", "cancelled")
        assert cancelled.json()["cancelling_at"] >= batch["created_at"]


async def test_batches_come_page_by_page_the_newest_first(http: httpx.AsyncClient) -> None:
    made = [(await create(http))["id"] for _ in range(5)]
    everything = (await http.get("/v1/batches")).json()
    assert everything.keys() == {"object", "data", "first_id", "last_id", "has_more"}
    listed = [batch["id"] for batch in everything["data"]]
    assert (sorted(listed), everything["has_more"]) == (sorted(made), False)
    seen: list[str] = []
    while True:
        page = (await http.get("/v1/batches", params={"limit": 2} | ({"after": seen[-1]} if seen else {}))).json()
        ids = [batch["id"] for batch in page["data"]]
        assert (page["first_id"], page["last_id"]) == (ids[0], ids[-1])
        seen += ids
        if not page["has_more"]:
            break
    assert seen == listed
    assert (await http.get("/v1/batches", params={"limit": 5})).json()["has_more"] is False
    nothing = (await http.get("/v1/batches", headers=BOB)).json()
    assert nothing == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


async def test_another_tenants_batch_or_file_is_not_found(http: httpx.AsyncClient) -> None:
    batch = await create(http)
    for method, path in (("GET", ""), ("POST", "/cancel")):
        refused(await http.request(method, f"/v1/batches/{batch['id']}{path}", headers=BOB), 404, "not_found")
    theirs = await asked(http)
    refused(await http.post("/v1/batches", json=theirs, headers=BOB), 404, "not_found")
    assert (await http.get(f"/v1/batches/{batch['id']}")).json()["status"] == "validating"


@pytest.mark.parametrize("id_", ["x", "batch_", "..%2f..", "%00", "%ff", "batch_" + "x" * 5000])
async def test_an_id_that_was_never_given_out_is_not_found(http: httpx.AsyncClient, id_: str) -> None:
    for method, path in (("GET", ""), ("POST", "/cancel")):
        refused(await http.request(method, f"/v1/batches/{id_}{path}"), 404, "not_found")
    refused(await http.post("/v1/batches", json=await asked(http, input_file_id=id_[:100])), 404, "not_found")


BAD: dict[str, dict[str, Any]] = {
    "no file": {"input_file_id": ...},
    "no endpoint": {"endpoint": ...},
    "no window": {"completion_window": ...},
    "null": {"input_file_id": None},
    "empty": {"input_file_id": ""},
    "number": {"input_file_id": 7},
    "long id": {"input_file_id": "x" * 10_000},
    "unknown endpoint": {"endpoint": "/v1/images/edits"},
    "window": {"completion_window": "1h"},
    "long window": {"completion_window": "24h" * 1000},
    "window as a number": {"completion_window": 24},
    "metadata as a list": {"metadata": [1]},
    "metadata with numbers": {"metadata": {"a": 1}},
    "much metadata": {"metadata": {str(n): "" for n in range(17)}},
    "long name": {"metadata": {"a" * 65: ""}},
    "long value": {"metadata": {"a": "b" * 513}},
    "unknown field": {"tier": "priority"},
    "tenant": {"tenant": "bob"},
}


async def test_what_cannot_be_a_batch_is_refused_and_makes_none(http: httpx.AsyncClient) -> None:
    for name, changes in BAD.items():
        response = await http.post("/v1/batches", json=await asked(http, **changes))
        assert response.status_code == 400, (name, response.text)
        refused(response, 400, "invalid_request")
    for text in (b"", b"[]", b"null", b"{", b"\xff", b'{"a": NaN}', b'{"endpoint": "a", "endpoint": "b"}'):
        headers = {"content-type": "application/json"}
        refused(await http.post("/v1/batches", content=text, headers=headers), 400, "invalid_request")
    refused(await http.post("/v1/batches", data={"endpoint": "x"}), 400, "invalid_request")
    refused(
        await http.post("/v1/batches", json=await asked(http, input_file_id=await upload(http, "user_data"))),
        400,
        "invalid_request",
    )
    assert (await http.get("/v1/batches")).json()["data"] == []


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "after=" + "x" * 101])
async def test_a_list_that_cannot_be_given_is_refused(http: httpx.AsyncClient, query: str) -> None:
    refused(await http.get(f"/v1/batches?{query}"), 400, "invalid_request")


async def test_without_redis_it_is_said(http: httpx.AsyncClient, state: State) -> None:
    request = await asked(http)
    batch = await create(http)
    await state.queue.store.close()
    for method, path in (("GET", ""), ("GET", f"/{batch['id']}"), ("POST", f"/{batch['id']}/cancel")):
        refused(await http.request(method, f"/v1/batches{path}"), 503, "store_unavailable")
    refused(await http.post("/v1/batches", json=request), 503, "store_unavailable")


async def test_a_front_door_that_is_about_to_end_takes_no_more_work(http: httpx.AsyncClient, state: State) -> None:
    request = await asked(http)
    state.closing.set()
    refused(await http.post("/v1/batches", json=request), 503, "draining")
    refused(await http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("f", b"")}), 503, "draining")
    refused(await http.post("/v1/jobs", json=JOB), 503, "draining")


def test_every_field_is_openais_own() -> None:
    ended = replace(
        VIEW,
        status="completed",
        model="llama",
        completed_at_ms=1_700_000_009_001,
        output_file_id="file-2",
        total=3,
        completed=2,
        failed=1,
        usage=Usage(5, 7),
    )
    refused_file = replace(
        VIEW, status="failed", failed_at_ms=1, faults=(BatchFault("invalid_json", "It is no JSON.", 3, "body"),)
    )
    for view in (VIEW, ended, refused_file):
        shown = batch_view(view)
        assert shown.keys() == Batch.model_fields.keys()
        Batch.model_validate(shown, strict=True)
    shown = batch_view(ended)
    assert (shown["created_at"], shown["completed_at"], shown["failed_at"]) == (1_700_000_000, 1_700_000_009, None)
    assert shown["usage"]["total_tokens"] == 12
    fault = {"code": "invalid_json", "message": "It is no JSON.", "param": "body", "line": 3}
    assert batch_view(refused_file)["errors"] == {"object": "list", "data": [fault]}
