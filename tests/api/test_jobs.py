"""`/v1/jobs`: what is taken in, how it looks, and whose it is."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from fairlane.model import JobError, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from tests.api.door import BOB, JOB, refused, submit
from tests.contract.acts import take, take_one
from tests.dispatcher.scripted import Script, make_worker, working

FIELDS = {
    "object", "id", "pool", "model", "endpoint", "tenant", "tier", "state", "dead", "created_at", "not_before",
    "deadline_at", "started_at", "finished_at", "attempts", "max_attempts", "result", "error", "usage", "metadata",
    "batch_id",
}  # fmt: skip


async def test_a_job_is_taken_in_with_its_place_and_its_address(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/jobs", json=JOB | {"metadata": {"run": 7}, "deadline_s": 60})
    job = response.json()
    assert response.status_code == 202
    assert response.headers["location"] == f"/v1/jobs/{job['id']}"
    assert response.headers["x-fairlane-queue-position"] == "0"
    assert float(response.headers["x-fairlane-estimated-wait"]) == 0
    assert job.keys() == FIELDS
    assert (job["object"], job["state"], job["tenant"], job["tier"]) == ("job", "queued", "ann", "default")
    assert (job["model"], job["pool"], job["endpoint"]) == ("llama", "llama", "/v1/chat/completions")
    assert (job["dead"], job["attempts"], job["max_attempts"], job["metadata"]) == (False, [], 3, {"run": 7})
    assert job["deadline_at"] == pytest.approx(job["created_at"] + 60, abs=0.01)
    assert [job[name] for name in ("started_at", "finished_at", "result", "error", "usage", "batch_id")] == [None] * 6
    assert (await http.get(response.headers["location"])).json() == job


async def test_the_second_of_two_has_one_before_it(http: httpx.AsyncClient) -> None:
    await submit(http)
    response = await http.post("/v1/jobs", json=JOB)
    assert response.headers["x-fairlane-queue-position"] == "1"
    assert float(response.headers["x-fairlane-estimated-wait"]) > 0


async def test_a_finished_job_shows_its_attempts_result_and_usage(
    http: httpx.AsyncClient, queue: Queue, pool: Pool, signals: Signals, script: Script
) -> None:
    async with working(make_worker(queue, pool, script), signals):
        job = (await http.get(f"/v1/jobs/{(await submit(http))['id']}", params={"wait": 20})).json()
    assert (job["state"], job["dead"], job["error"]) == ("succeeded", False, None)
    assert job["result"] == {"status": 200, "body": {"usage": {"prompt_tokens": 3, "completion_tokens": 4}}}
    assert job["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    (attempt,) = job["attempts"]
    assert attempt.keys() == {"n", "backend", "started_at", "ended_at", "outcome", "status"}
    assert (attempt["n"], attempt["backend"], attempt["outcome"], attempt["status"]) == (1, "b1", "succeeded", 200)
    assert job["created_at"] <= job["started_at"] <= job["finished_at"]
    assert job["started_at"] == attempt["started_at"]


async def test_a_delayed_job_says_when_it_may_start(http: httpx.AsyncClient) -> None:
    job = await submit(http, delay_s=30)
    assert job["state"] == "delayed"
    assert job["not_before"] == pytest.approx(job["created_at"] + 30, abs=0.01)


async def test_the_key_may_stand_in_a_header(http: httpx.AsyncClient) -> None:
    """Found by a user: it was ignored, and a request that was sent again doubled the job."""
    key = {"idempotency-key": "k"}
    first = await http.post("/v1/jobs", json=JOB, headers=key)
    again = await http.post("/v1/jobs", json=JOB, headers=key)
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json()["id"] == first.json()["id"]
    refused(await http.post("/v1/jobs", json=JOB | {"idempotency_key": "other"}, headers=key), 400, "invalid_request")
    refused(await http.post("/v1/jobs", json={"jobs": [JOB]}, headers=key), 400, "invalid_request")


async def test_a_job_that_could_only_expire_is_refused(http: httpx.AsyncClient) -> None:
    refused(await http.post("/v1/jobs", json=JOB | {"delay_s": 50, "deadline_s": 5}), 400, "invalid_request")


async def test_the_same_key_and_body_is_the_first_job_and_another_body_is_refused(http: httpx.AsyncClient) -> None:
    asked = JOB | {"idempotency_key": "k1"}
    first = await http.post("/v1/jobs", json=asked)
    again = await http.post("/v1/jobs", json=asked)
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["location"] == first.headers["location"]
    other = asked | {"body": {"messages": [], "seed": 1}}
    refused(await http.post("/v1/jobs", json=other), 409, "idempotency_mismatch")
    assert (await http.post("/v1/jobs", json=other, headers=BOB)).status_code == 202  # keys are each tenant's own


@pytest.mark.parametrize(
    ("header", "own", "service", "tier"),
    [
        ("batch", "flex", "priority", "batch"),
        (None, "flex", "priority", "flex"),
        (None, None, "priority", "priority"),
        (None, None, "auto", "default"),
        (None, None, None, "default"),
        ("priority", None, "nonsense", "priority"),
    ],
)
async def test_the_tier_is_the_headers_then_the_jobs_then_the_bodys(
    http: httpx.AsyncClient, queue: Queue, header: str | None, own: str | None, service: str | None, tier: str
) -> None:
    body = JOB["body"] | {"priority": -9} | ({"service_tier": service} if service else {})
    headers = {"x-fairlane-tier": header} if header else {}
    response = await http.post("/v1/jobs", json=JOB | {"tier": own, "body": body}, headers=headers)
    assert response.json()["tier"] == tier
    sent = (await queue.inspect.job(response.json()["id"])).body
    assert sent is not None
    assert b"service_tier" not in sent  # it is for us, not for the backend
    assert b"priority" not in sent  # nor may a caller jump the queue of the backend's engine


@pytest.mark.parametrize("policy", [Policy(tiers=("fast", "slow"))], indirect=True)
async def test_where_no_tier_is_called_default_each_job_names_its_own(http: httpx.AsyncClient) -> None:
    """Nobody is promoted because an operator took `default` away."""
    refused(await http.post("/v1/jobs", json=JOB), 400, "unknown_tier")
    body = JOB["body"] | {"service_tier": "auto"}
    refused(await http.post("/v1/jobs", json=JOB | {"body": body}), 400, "unknown_tier")
    assert (await submit(http, tier="slow"))["tier"] == "slow"


@pytest.mark.parametrize("policy", [Policy(tiers=("only",))], indirect=True)
async def test_where_there_is_one_tier_it_need_not_be_named(http: httpx.AsyncClient) -> None:
    assert (await submit(http))["tier"] == "only"


@pytest.mark.parametrize("tier", ["gold", "", "auto", "Default"])
async def test_an_unknown_tier_is_refused_wherever_it_is_named(http: httpx.AsyncClient, tier: str) -> None:
    refused(await http.post("/v1/jobs", json=JOB, headers={"x-fairlane-tier": tier}), 400, "unknown_tier")
    refused(await http.post("/v1/jobs", json=JOB | {"tier": tier}), 400, "unknown_tier")
    if tier != "auto":
        body = {"messages": [], "service_tier": tier}
        refused(await http.post("/v1/jobs", json=JOB | {"body": body}), 400, "unknown_tier")


async def test_nobody_acts_for_another_tenant(http: httpx.AsyncClient) -> None:
    refused(await http.post("/v1/jobs", json=JOB | {"tenant": "bob"}), 403, "tenant_forbidden")
    refused(await http.post("/v1/jobs", json=JOB, headers={"x-fairlane-tenant": "bob"}), 403, "tenant_forbidden")
    refused(await http.get("/v1/jobs", headers={"x-fairlane-tenant": "bob"}), 403, "tenant_forbidden")
    assert (await submit(http, tenant="ann"))["tenant"] == "ann"
    assert (await http.post("/v1/jobs", json=JOB, headers={"x-fairlane-tenant": "ann"})).status_code == 202


async def test_without_a_token_the_tenant_is_anonymous(http: httpx.AsyncClient) -> None:
    http.headers.pop("authorization")
    assert (await submit(http))["tenant"] == "anonymous"


@pytest.mark.parametrize("authorization", ["Bearer", "Bearer a b", "Bearer ann/x", f"Bearer {'a' * 129}", "Basic YTpi"])
async def test_a_token_that_is_no_name_is_refused(http: httpx.AsyncClient, authorization: str) -> None:
    refused(await http.get("/v1/jobs", headers={"authorization": authorization}), 400, "invalid_request")


async def test_anothers_job_is_not_there(http: httpx.AsyncClient, queue: Queue, pool: Pool) -> None:
    job = await submit(http)
    at = f"/v1/jobs/{job['id']}"
    answers = [
        await http.get(at, headers=BOB),
        await http.get(at, headers=BOB, params={"wait": 5}),
        await http.delete(at, headers=BOB),
        await http.post(f"{at}/requeue", headers=BOB),
        await http.get(f"{at}/explain", headers=BOB),
    ]
    never = refused(await http.get("/v1/jobs/job_nothing"), 404, "not_found")
    for answer in answers:
        assert refused(answer, 404, "not_found") == never  # not even that it exists
    assert (await http.get("/v1/jobs", headers=BOB)).json() == {"data": [], "next_cursor": None}
    assert (await http.get(at)).json()["state"] == "queued"


@pytest.mark.parametrize("id_", ["job_", "x", "job_aaaaaaaaaaaaaaaaaaaaa", "%00", "é", "a" * 5000, "job_*", "..%2f"])
async def test_what_was_never_a_job_is_not_found(http: httpx.AsyncClient, id_: str) -> None:
    refused(await http.get(f"/v1/jobs/{id_}"), 404, "not_found")
    refused(await http.delete(f"/v1/jobs/{id_}"), 404, "not_found")


async def test_a_cancel_may_be_repeated_and_leaves_a_finished_job_as_it_is(
    http: httpx.AsyncClient, queue: Queue, pool: Pool
) -> None:
    waiting = await submit(http)
    first = await http.delete(f"/v1/jobs/{waiting['id']}")
    again = await http.delete(f"/v1/jobs/{waiting['id']}")
    assert (first.status_code, first.json()["state"]) == (200, "cancelled")
    assert again.json() == first.json()
    finished = await submit(http)
    await queue.settle(pool, await take_one(queue, pool), "succeeded", status=200, result=b'{"a":1}')
    response = await http.delete(f"/v1/jobs/{finished['id']}")
    assert (response.status_code, response.json()["state"]) == (200, "succeeded")
    assert response.json()["result"]["body"] == {"a": 1}


async def test_only_a_dead_job_is_requeued(http: httpx.AsyncClient, queue: Queue, pool: Pool) -> None:
    job = await submit(http, max_attempts=1)
    at = f"/v1/jobs/{job['id']}"
    refused(await http.post(f"{at}/requeue"), 409, "illegal_transition")
    fault = JobError("backend_error", "The backend answered 500.", 500)
    await queue.retry(pool, await take_one(queue, pool), fault, delay_ms=0, result=b"oh no")
    dead = (await http.get(at)).json()
    assert (dead["state"], dead["dead"], dead["result"]) == ("failed", True, {"status": 500, "body": "oh no"})
    assert dead["error"] == {"code": "backend_error", "message": "The backend answered 500.", "status": 500}
    response = await http.post(f"{at}/requeue")
    assert (response.status_code, response.json()["state"], response.json()["dead"]) == (200, "queued", False)
    refused(await http.post(f"{at}/requeue"), 409, "illegal_transition")


async def test_a_list_is_answered_in_order_each_on_its_own(http: httpx.AsyncClient) -> None:
    given: list[Any] = [
        JOB,
        JOB | {"tier": "gold"},
        JOB | {"tenant": "bob"},
        JOB | {"model": "nobody's"},
        "no job",
        JOB | {"max_attempts": 0},
        JOB | {"surprise": 1},
        JOB | {"metadata": {"n": 7}},
        {},
        None,
    ]
    response = await http.post("/v1/jobs", json={"jobs": given})
    answers = response.json()["jobs"]
    assert response.status_code == 202
    codes = [answer["error"]["code"] if answer.get("error") else answer["id"] for answer in answers]
    assert codes[1:7] == [
        "unknown_tier",
        "tenant_forbidden",
        "model_not_found",
        "invalid_request",
        "invalid_request",
        "invalid_request",
    ]
    assert codes[8:] == ["invalid_request"] * 2
    assert [(answers[n]["state"], answers[n]["metadata"]) for n in (0, 7)] == [("queued", {}), ("queued", {"n": 7})]
    assert answers[0].keys() == FIELDS
    assert response.headers["x-fairlane-queue-position"] == "1"
    assert answers[6]["error"]["param"] == "surprise"


@pytest.mark.parametrize("envelope", [{"jobs": []}, {"jobs": {}}, {"jobs": None}, {"jobs": [JOB], "model": "llama"}])
async def test_a_bad_envelope_is_refused_whole(http: httpx.AsyncClient, envelope: Any) -> None:
    refused(await http.post("/v1/jobs", json=envelope), 400, "invalid_request")
    assert (await http.get("/v1/jobs")).json()["data"] == []


async def test_a_list_holds_a_thousand_jobs_and_no_more(http: httpx.AsyncClient) -> None:
    refused(await http.post("/v1/jobs", json={"jobs": [JOB] * 1001}), 400, "invalid_request")
    answers = (await http.post("/v1/jobs", json={"jobs": [JOB] * 1000})).json()["jobs"]
    assert len({answer["id"] for answer in answers}) == 1000
    assert [answer["created_at"] for answer in answers] == sorted(answer["created_at"] for answer in answers)


async def test_the_same_key_twice_in_a_list_is_one_job(http: httpx.AsyncClient) -> None:
    keyed = JOB | {"idempotency_key": "k"}
    first, again, other = (
        await http.post("/v1/jobs", json={"jobs": [keyed, keyed, keyed | {"body": {"seed": 1}}]})
    ).json()["jobs"]
    assert first["id"] == again["id"]
    assert other["error"]["code"] == "idempotency_mismatch"


@pytest.mark.parametrize("policy", [Policy(max_waiting_tenant=2)], indirect=True)
async def test_a_full_queue_says_so_and_when_to_come_back(http: httpx.AsyncClient) -> None:
    for _ in range(2):
        await submit(http)
    response = await http.post("/v1/jobs", json=JOB)
    refused(response, 429, "queue_full")
    assert int(response.headers["x-fairlane-queue-position"]) == 2
    assert float(response.headers["x-fairlane-estimated-wait"]) > 0
    (answer,) = (await http.post("/v1/jobs", json={"jobs": [JOB]})).json()["jobs"]
    assert answer["error"]["code"] == "queue_full"
    assert answer["error"]["retry_after"] >= 1
    refused(await http.post("/v1/chat/completions", json={"model": "llama"}), 429, "queue_full")
    assert (await http.post("/v1/jobs", json=JOB, headers=BOB)).status_code == 202


@pytest.mark.parametrize("policy", [Policy(max_waiting_tenant=1)], indirect=True)
async def test_those_who_are_refused_together_do_not_come_back_together(http: httpx.AsyncClient) -> None:
    await submit(http)
    answers = await asyncio.gather(*(http.post("/v1/jobs", json=JOB) for _ in range(60)))
    assert len({answer.headers["retry-after"] for answer in answers}) > 1


async def test_explain_says_what_is_ahead_and_what_the_gate_says(
    http: httpx.AsyncClient, queue: Queue, pool: Pool
) -> None:
    await submit(http)
    job = await submit(http)
    why = (await http.get(f"/v1/jobs/{job['id']}/explain")).json()
    assert why.keys() == {"state", "position", "ahead", "gate", "estimated_start_s"}
    assert why["position"] == 1
    assert why["ahead"] == [{"what": "own_line", "jobs": 1}]
    assert why["gate"] == {"backend": "b1", "reason": "open", "numbers": {"live": 0, "limit": 1000}}
    assert why["estimated_start_s"] > 0
    await queue.pause(pool, tenant="ann")
    why = (await http.get(f"/v1/jobs/{job['id']}/explain")).json()
    assert {"what": "tenant_held", "by": "paused", "until": None} in why["ahead"]
    await queue.resume(pool, tenant="ann")
    leases = await take(queue, pool, 2)
    for lease in leases:
        why = (await http.get(f"/v1/jobs/{lease.id}/explain")).json()
        assert (why["state"], why["position"], why["estimated_start_s"]) == ("leased", None, None)
        await queue.settle(pool, lease, "succeeded", status=200, result=b"{}")
        why = (await http.get(f"/v1/jobs/{lease.id}/explain")).json()
        assert (why["state"], why["position"], why["ahead"]) == ("succeeded", None, [])
