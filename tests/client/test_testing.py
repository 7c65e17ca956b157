"""The fake client of `fairlane.testing`: all that the real one does, as a test says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane import AsyncClient, Client, JobFailed, JobRequest, WaitTimeout, verify_webhook
from fairlane.errors import BatchFailed, IdempotencyMismatch, JobCancelled, LineFailed, NotFound, QueueFull
from fairlane.testing import AsyncFakeClient, Fails, FakeClient, Waits, signed_webhook

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def text_of(body: Any) -> str:
    return body["choices"][0]["message"]["content"]


def greet(client: Client) -> str:
    """A program to be tested."""
    return text_of(client.submit(**ASK).result(10))


def test_it_answers_as_the_test_says_and_keeps_what_was_asked() -> None:
    with FakeClient("Good day.", answers=["Hello.", {"choices": [{"message": {"content": "As it is."}}]}]) as client:
        assert [greet(client) for _ in range(4)] == ["Hello.", "As it is.", "Good day.", "Good day."]
        assert [request.body["messages"][0]["content"] for request in client.requests] == ["Hi"] * 4
        assert client.requests[0].endpoint == "/v1/chat/completions"


def test_what_was_asked_is_a_snapshot() -> None:
    messages = [{"role": "user", "content": "then"}]
    with FakeClient() as client:
        client.submit(model="m", messages=messages)
        messages[0]["content"] = "now"
        assert client.requests[0].body["messages"][0]["content"] == "then"


def test_an_answer_may_be_made_of_the_request() -> None:
    def upper(request: JobRequest) -> str:
        return request.body["prompt"].upper()

    with FakeClient(upper) as client:
        prompts = ({"model": "m", "prompt": text} for text in ("a", "b"))
        assert [body["choices"][0]["text"] for body in client.map(prompts)] == ["A", "B"]


def test_it_fails_and_refuses() -> None:
    with FakeClient(answers=[Fails("timeout", "Too slow.", None), QueueFull(), "Later."]) as client:
        with pytest.raises(JobFailed, match="Too slow") as failed:
            greet(client)
        assert (failed.value.code, failed.value.status) == ("timeout", 504)
        with pytest.raises(QueueFull):
            greet(client)
        assert len(client.requests) == 1


def test_with_patience_a_refusal_is_ridden_out_as_by_the_real_one() -> None:
    with FakeClient(answers=[QueueFull(), "Later."], retry_for_s=10) as client:
        assert greet(client) == "Later."


def test_a_job_waits_until_it_is_settled_or_cancelled() -> None:
    with FakeClient(Waits()) as client:
        first, second = client.submit(**ASK), client.submit(**ASK)
        with pytest.raises(WaitTimeout):
            first.wait(0.01)
        client.settle(first.id, "At last.")
        assert text_of(first.result(10)) == "At last."
        assert second.cancel().state == "cancelled"
        with pytest.raises(JobCancelled):
            second.result()
        assert {handle.id for handle in client.as_completed([first, second], timeout=10)} == {first.id, second.id}


def test_a_key_makes_one_job() -> None:
    with FakeClient() as client:
        assert client.submit(**ASK, idempotency_key="k").id == client.submit(**ASK, idempotency_key="k").id
        with pytest.raises(IdempotencyMismatch):
            client.submit(**ASK, tier="flex", idempotency_key="k")
        assert len(client.requests) == 1


async def test_it_streams_word_by_word_or_the_chunks_given() -> None:
    chunks = [{"choices": [{"delta": {"content": "x"}}]}, {"choices": []}]
    async with AsyncFakeClient("Hello, my dear.", answers=["One two.", chunks]) as client:
        async with client.stream(**ASK) as stream:
            words = [chunk["choices"][0]["delta"]["content"] async for chunk in stream]
        assert words == ["One ", "two."]
        assert [chunk async for chunk in client.stream(**ASK)] == chunks
        handle = await client.submit(**ASK, stream=True)
        assert len([chunk async for chunk in handle.stream()]) == 3
        assert len([chunk async for chunk in handle.stream(after="1-2")]) == 1


async def test_a_stream_that_fails_raises() -> None:
    async with AsyncFakeClient(Fails("timeout", "Too slow.", None)) as client:
        with pytest.raises(JobFailed, match="Too slow"):
            [chunk async for chunk in client.stream(**ASK)]


async def test_a_batch_is_done_at_once() -> None:
    async with AsyncFakeClient(
        answers=["One.", Fails(status=400, body={"error": {"code": "bad", "message": "No."}})]
    ) as client:
        batch = await client.batches.submit([ASK, {**ASK, "custom_id": "mine"}, ASK])
        items = [item async for item in batch.results()]
        assert [item.custom_id for item in items] == ["request-1", "mine", "request-3"]
        assert text_of(items[0].result()) == "One."
        with pytest.raises(LineFailed) as failed:
            items[1].result()
        assert (failed.value.code, failed.value.status) == ("bad", 400)
        assert (await batch.batch()).counts.failed == 1
        assert [error.custom_id async for error in batch.errors()] == ["mine"]
        assert len(client.requests) == 3


async def test_a_batch_that_waits_can_be_cancelled() -> None:
    async with AsyncFakeClient(Waits(), answers=["One."]) as client:
        batch = await client.batches.submit([ASK, ASK])
        assert await batch.status() == "in_progress"
        assert (await batch.cancel()).status == "cancelled"
        assert [item.ok async for item in batch.results()] == [True, False]


async def test_a_wrong_file_fails_its_batch() -> None:
    async with AsyncFakeClient() as client:
        file = await client.files.upload(b'{"custom_id": "a"}\nno JSON\n')
        batch = await client.batches.submit(file)
        with pytest.raises(BatchFailed, match="line 1"):
            [item async for item in batch.results()]
        assert [error.line async for error in batch.errors()] == [1, 2]


def test_it_is_a_client() -> None:
    assert issubclass(FakeClient, Client)
    assert issubclass(AsyncFakeClient, AsyncClient)


async def test_many_wait_at_once() -> None:
    async with AsyncFakeClient(Waits()) as client:
        handles = await client.submit_many([ASK] * 5)
        waiting = asyncio.gather(*(handle.result(10) for handle in handles))
        await asyncio.sleep(0)
        for handle in handles:
            client.settle(handle.id, "Now.")
        assert len(await waiting) == 5


def test_webhooks_are_kept_and_not_sent() -> None:
    with FakeClient(tenant="ann") as client:
        made = client.webhooks.create("http://example.com", events=["job.*"])
        assert client.webhooks.secret(made.id) == made.secret != client.webhooks.secret()
        assert client.webhooks.rotate(made.id) == client.webhooks.secret(made.id) != made.secret
        assert (made.tenant, client.webhooks.update(made.id, url="http://x").url) == ("ann", "http://x")
        assert client.webhooks.disable(made.id).disabled_reason == "asked"
        assert client.webhooks.enable(made.id).enabled
        sent = client.webhooks.test(made.id)
        assert [one.id for one in client.webhooks.deliveries(endpoint=made.id, state="delivered")] == [sent.id]
        assert client.webhooks.resend(sent.id) == client.webhooks.delivery(sent.id) == sent
        client.webhooks.delete(made.id)
        with pytest.raises(NotFound):
            client.webhooks.get(made.id)
        assert list(client.webhooks.list()) == []


def test_the_webhook_of_a_job_is_kept_with_what_was_asked() -> None:
    with FakeClient() as client:
        client.submit(**ASK, webhook="https://example.com")
        client.submit(**ASK, webhook={"url": "https://example.com", "headers": {"x": "y"}})
        assert [one.webhook for one in client.requests] == [
            {"url": "https://example.com"}, {"url": "https://example.com", "headers": {"x": "y"}},
        ]  # fmt: skip


def test_a_signed_webhook_is_genuine() -> None:
    event = {"type": "job.failed", "data": {"id": "job_1"}}
    with FakeClient() as client:
        secret = client.webhooks.secret()
    assert verify_webhook(*signed_webhook(event, secret), secret) == event
