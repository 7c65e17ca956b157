"""What a webhook's receiver gets: whoever verifies Standard Webhooks takes it, and it is small and always the same."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from openai import OpenAI
from openai.types.webhooks import (
    BatchCancelledWebhookEvent,
    BatchCompletedWebhookEvent,
    BatchExpiredWebhookEvent,
    BatchFailedWebhookEvent,
)
from standardwebhooks import Webhook

from fairlane import verify_webhook
from fairlane.batches import BatchFault, BatchView
from fairlane.head import Head
from fairlane.model import FINISHED, Job, JobError, Usage
from fairlane.webhooks import payload, values
from fairlane.webhooks.payload import RESULT_MOST
from fairlane.webhooks.values import Endpoint

AT_MS = 1_700_000_000_045
SECRET = values.new_secret()
OPENAI = {
    "batch.completed": BatchCompletedWebhookEvent,
    "batch.failed": BatchFailedWebhookEvent,
    "batch.expired": BatchExpiredWebhookEvent,
    "batch.cancelled": BatchCancelledWebhookEvent,
}
JOB = Job(
    id="job_abcd1xyz", pool="llama", tenant="ann", tier="default", state="succeeded", dead=False,
    created_at_ms=AT_MS - 500, not_before_ms=None, deadline_at_ms=None, started_at_ms=AT_MS - 100,
    finished_at_ms=AT_MS, attempts=(), max_attempts=3, batch_id=None,
    head=Head("/v1/chat/completions", "llama", metadata={"who": "me"},
              webhook={"url": "https://a.example", "secret": "hush", "headers": {"x": "hush"}}).encode(),
    body=b'{"prompt":"hush"}', status=200, result='{"answer":"é"}'.encode(), error=None, usage=Usage(3, 4),
)  # fmt: skip
BATCH = BatchView(
    "batch_1", "ann", "/v1/chat/completions", "file_1", "24h", "completed", AT_MS - 9000, AT_MS + 9000,
    completed_at_ms=AT_MS, total=2, completed=2, metadata={"a": "b"},
)  # fmt: skip
ENDPOINT = Endpoint(
    "whe_1", "ann", "https://a.example", ("*",), "", {"authorization": "hush"}, False, "gone", AT_MS, *[None] * 4
)


def read(body: bytes) -> dict[str, Any]:
    return json.loads(body)


def headers(body: bytes) -> dict[str, str]:
    """As the courier sends them."""
    now = datetime.now(UTC)
    signature = Webhook(SECRET).sign("msg_1", now, body.decode())
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signature,
    }


def every_event() -> list[bytes]:
    jobs = [payload.job_event(replace(JOB, state=state), "1-0") for state in sorted(FINISHED)]
    batches = [
        payload.batch_event(replace(BATCH, status=status), AT_MS)
        for status in ("completed", "failed", "expired", "cancelled")
    ]
    return [*jobs, *batches, payload.test_event(ENDPOINT, "1", AT_MS), payload.disabled_event(ENDPOINT, AT_MS)]


def test_each_event_has_the_form_that_is_promised_and_verifies() -> None:
    seen: set[str] = set()
    for body in every_event():
        event = read(body)
        assert list(event) == ["id", "object", "created_at", "type", "timestamp", "data"]
        assert (event["object"], event["created_at"]) == ("event", 1_700_000_000)
        assert event["timestamp"] == "2023-11-14T22:13:20.045Z"
        assert event["id"].startswith("evt_")
        assert Webhook(SECRET).verify(body, headers(body)) == event
        assert verify_webhook(body, headers(body), SECRET) == event
        assert b"hush" not in body
        assert body == json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()
        seen.add(event["type"])
    assert seen == set(values.EVENTS)


def test_openais_client_takes_batch_events() -> None:
    client = OpenAI(api_key="none", base_url="http://localhost:1")
    for type_, known in OPENAI.items():
        status: Any = type_.partition(".")[2]
        body = payload.batch_event(replace(BATCH, status=status), AT_MS)
        for text in (body, body.decode()):
            event = client.webhooks.unwrap(text, headers(body), secret=SECRET)
            assert isinstance(event, known)
            assert type(event).model_validate_json(body) == event, "not only by construct"
            told = event.to_dict()
            assert (told["type"], told["object"], told["created_at"]) == (type_, "event", 1_700_000_000)
            assert getattr(event.data, "id", None) == BATCH.id


def test_an_event_is_the_same_again_and_another_one_differs() -> None:
    assert every_event() == every_event()
    jobs = [
        payload.job_event(JOB, "1-0"), payload.job_event(JOB, "1-1"), payload.batch_event(BATCH, AT_MS),
        payload.job_event(replace(JOB, state="failed"), "1-0"), payload.job_event(replace(JOB, id="job_2"), "1-0"),
        payload.batch_event(BATCH, AT_MS + 1), payload.test_event(ENDPOINT, "1", AT_MS),
        payload.test_event(ENDPOINT, "2", AT_MS),
    ]  # fmt: skip
    assert len({read(body)["id"] for body in jobs}) == len(jobs)


def test_a_delivery_is_named_by_what_is_delivered_and_where_to() -> None:
    parts = ["job_1", "1-0", "job.failed", "whe_1"]
    id_ = payload.delivery_id(*parts)
    assert id_ == payload.delivery_id(*parts)
    assert len(id_) == len("msg_") + 32
    others = [payload.delivery_id(*(part + "x" * (n == m) for m, part in enumerate(parts))) for n in range(4)]
    assert len({id_, *others}) == 5


def test_a_job_is_told_as_the_api_tells_it() -> None:
    job = read(payload.job_event(JOB, "1-0", "https://queue.example/"))["data"]
    assert (job["object"], job["id"], job["state"], job["metadata"]) == ("job", JOB.id, "succeeded", {"who": "me"})
    assert job["result"] == {"status": 200, "body": {"answer": "é"}}
    assert job["usage"]["total_tokens"] == 7
    assert "result_url" not in job
    failed = replace(JOB, state="failed", result=None, error=JobError("timeout", "It took too long.", 504))
    assert read(payload.job_event(failed, "1-0"))["data"]["error"]["code"] == "timeout"


@pytest.mark.parametrize("public_url", ["", "https://queue.example", "https://queue.example/"])
def test_a_large_result_is_left_where_it_is(public_url: str) -> None:
    def told(size: int) -> dict[str, Any]:
        result = json.dumps("x" * (size - 2)).encode()
        return read(payload.job_event(replace(JOB, result=result), "1-0", public_url))["data"]

    assert len(told(RESULT_MOST)["result"]["body"]) == RESULT_MOST - 2
    job = told(RESULT_MOST + 1)
    assert job["result"] is None
    assert job["result_url"] == f"{public_url.rstrip('/')}/v1/jobs/{JOB.id}"
    assert job["state"] == "succeeded"


@pytest.mark.parametrize("result", [b"\0" * 60_000, b"\xff" * 60_000, b'["\\ud800", "' + b"x" * 9 + b'"]'])
def test_no_result_swells_a_payload_or_breaks_it(result: bytes) -> None:
    body = payload.job_event(replace(JOB, result=result), "1-0")
    assert len(body) < RESULT_MOST + 2_000
    assert read(body)["data"]["id"] == JOB.id
    assert Webhook(SECRET).verify(body, headers(body))


def test_of_a_refused_file_the_first_faults_are_told() -> None:
    faults = tuple(BatchFault("invalid_json", "x" * 500, line=n) for n in range(1, 1001))
    body = payload.batch_event(replace(BATCH, status="failed", faults=faults), AT_MS)
    assert [fault["line"] for fault in read(body)["data"]["errors"]["data"]] == list(range(1, 21))
    assert len(body) < 20_000


def test_what_has_no_outcome_makes_no_event() -> None:
    for job in (replace(JOB, state="queued", finished_at_ms=None), replace(JOB, state="leased")):
        with pytest.raises(ValueError, match=JOB.id):
            payload.job_event(job, "1-0")
    with pytest.raises(ValueError, match="batch_1"):
        payload.batch_event(replace(BATCH, status="in_progress"), AT_MS)


@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        (("*",), set(values.EVENTS)),
        (("job.*",), set(values.JOB_EVENTS)),
        (("batch.*", "job.failed"), {*values.BATCH_EVENTS, "job.failed"}),
        (("webhook_endpoint.disabled",), {"webhook_endpoint.disabled"}),
    ],
)
def test_a_filter_lets_pass_what_it_names(events: tuple[str, ...], wanted: set[str]) -> None:
    assert {event for event in values.EVENTS if replace(ENDPOINT, events=events).wants(event)} == wanted
