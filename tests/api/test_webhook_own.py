"""A job's or batch's own webhook: what may be said of it, and that its secret is never shown."""

from __future__ import annotations

import json

import httpx

from tests.api.door import JOB, refused, submit
from tests.api.webhooks import BAD_HOOKS, SECRET, URL

HOOK = {"url": URL, "secret": SECRET, "headers": {"authorization": "Bearer hidden"}}
LINE = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "llama"}}


async def batch_order(http: httpx.AsyncClient) -> dict[str, str]:
    content = ("in.jsonl", json.dumps(LINE))
    file = (await http.post("/v1/files", data={"purpose": "batch"}, files={"file": content})).json()
    return {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}


async def test_a_job_takes_a_webhook_and_shows_nothing_of_it(http: httpx.AsyncClient) -> None:
    job = await submit(http, webhook=HOOK)
    bare = await submit(http, webhook={"url": URL})
    many = await http.post("/v1/jobs", json={"jobs": [JOB | {"webhook": HOOK}, JOB | {"webhook": None}]})
    assert [one["state"] for one in many.json()["jobs"]] == ["queued", "queued"]
    for answer in (
        await http.get(f"/v1/jobs/{job['id']}"), await http.get(f"/v1/jobs/{bare['id']}"),
        await http.get("/v1/jobs"), many, await http.get(f"/v1/jobs/{job['id']}/explain"),
    ):  # fmt: skip
        assert answer.is_success
        assert SECRET not in answer.text
        assert "hidden" not in answer.text


async def test_the_same_key_with_another_webhook_is_another_job(http: httpx.AsyncClient) -> None:
    first = await http.post("/v1/jobs", json=JOB | {"idempotency_key": "k", "webhook": HOOK})
    again = await http.post("/v1/jobs", json=JOB | {"idempotency_key": "k", "webhook": HOOK})
    assert (first.status_code, again.status_code, again.json()["id"]) == (202, 200, first.json()["id"])
    for other in (None, {"url": URL}, HOOK | {"url": URL + "/2"}):
        response = await http.post("/v1/jobs", json=JOB | {"idempotency_key": "k", "webhook": other})
        refused(response, 409, "idempotency_mismatch")


async def test_a_jobs_webhook_that_cannot_be_is_refused_and_its_part_named(http: httpx.AsyncClient) -> None:
    for name, hook in BAD_HOOKS:
        response = await http.post("/v1/jobs", json=JOB | {"webhook": hook})
        assert refused(response, 400, "invalid_request")["param"] == name, (hook, response.text)
        listed = await http.post("/v1/jobs", json={"jobs": [JOB | {"webhook": hook}]})
        assert listed.json()["jobs"][0]["error"] == response.json()["error"]
    assert (await http.get("/v1/jobs")).json()["data"] == []


async def test_a_batch_takes_a_webhook_and_shows_nothing_of_it(http: httpx.AsyncClient) -> None:
    order = await batch_order(http)
    for hook in (HOOK, None):
        made = await http.post("/v1/batches", json=order | {"webhook": hook})
        assert made.status_code == 200, made.text
        shown = await http.get(f"/v1/batches/{made.json()['id']}")
        assert SECRET not in made.text + shown.text
        assert "webhook" not in shown.json()


async def test_a_batchs_webhook_that_cannot_be_is_refused_and_makes_none(http: httpx.AsyncClient) -> None:
    order = await batch_order(http)
    for name, hook in BAD_HOOKS:
        response = await http.post("/v1/batches", json=order | {"webhook": hook})
        assert refused(response, 400, "invalid_request")["param"] == name, (hook, response.text)
    assert (await http.get("/v1/batches")).json()["data"] == []


async def test_a_refused_webhook_repeats_no_secret(http: httpx.AsyncClient) -> None:
    order = await batch_order(http)
    for wrong in ({"secret": "whsec_very!secret"}, {"headers": {"authorization": "very!secret\r\n"}}):
        hook = {"webhook": {"url": URL} | wrong}
        for path, body in (("/v1/jobs", JOB | hook), ("/v1/batches", order | hook)):
            response = await http.post(path, json=body)
            refused(response, 400, "invalid_request")
            assert "very" not in response.text
