"""What is asked reaches the queue as it was meant, over both transports alike."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from fairlane import AsyncClient, Client, FairlaneError
from fairlane.errors import (
    IdempotencyMismatch,
    InvalidRequest,
    ModelNotFound,
    NotSupported,
    PayloadTooLarge,
    QueueFull,
    UnknownTier,
)
from fairlane.head import Head
from fairlane.model import Policy
from fairlane.queue.engine import Queue
from tests.client.conftest import Reach

CHAT = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    ("asked", "endpoint", "body"),
    [
        ({"messages": CHAT}, "/v1/chat/completions", {"messages": CHAT}),
        ({"prompt": ""}, "/v1/completions", {"prompt": ""}),
        ({"input": ["a", "ü"]}, "/v1/embeddings", {"input": ["a", "ü"]}),
        ({"body": {"prompt": "a", "n": 2}}, "/v1/completions", {"prompt": "a", "n": 2}),
        ({"body": {"text": "a"}, "endpoint": "/v1/embeddings"}, "/v1/embeddings", {"text": "a"}),
    ],
)
async def test_the_endpoint_follows_from_what_is_asked(
    client: AsyncClient, queue: Queue, asked: dict[str, Any], endpoint: str, body: dict[str, Any]
) -> None:
    handle = await client.submit(model="llama", temperature=0.5, **asked)
    kept = await queue.inspect.job(handle.id)
    assert kept.body is not None
    assert json.loads(kept.body) == {"model": "llama", "temperature": 0.5, **body}
    assert Head.decode(kept.head).endpoint == endpoint


def test_a_prompt_without_its_name_is_refused_in_words() -> None:
    with (
        Client("http://127.0.0.1:1") as client,
        pytest.raises(TypeError, match="submit takes named arguments: say prompt=…"),
    ):
        cast(Any, client).submit("Hello")


async def test_messages_may_come_from_a_generator(client: AsyncClient, queue: Queue) -> None:
    handle = await client.submit(model="llama", messages=(message for message in CHAT))
    kept = await queue.inspect.job(handle.id)
    assert kept.body is not None
    assert json.loads(kept.body)["messages"] == CHAT


async def test_what_is_said_of_the_job_is_kept_with_it(client: AsyncClient, queue: Queue) -> None:
    handle = await client.submit(
        body={"model": "llama", "prompt": "x"}, tier="batch", delay_s=60, deadline_s=120, timeout_s=9, max_attempts=7,
        metadata={"of": "me"},
    )  # fmt: skip
    job = await handle.job()
    assert (job.state, job.tier, job.tenant, job.max_attempts) == ("delayed", "batch", "ann", 7)
    assert job.not_before == pytest.approx(job.created_at + 60)
    assert job.deadline_at == pytest.approx(job.created_at + 120)
    assert job.metadata == {"of": "me"}
    assert (job.model, job.pool, job.endpoint, job.raw["id"]) == ("llama", "llama", "/v1/completions", handle.id)
    head = Head.decode((await queue.inspect.job(handle.id)).head)
    assert head.timeout_s == 9


@pytest.mark.parametrize("webhook", [{"url": "https://127.0.0.1/"}, "https://u:p@example.com/", {"url": ""}, {}])
async def test_a_webhook_that_would_not_be_sent_is_refused(client: AsyncClient, webhook: Any) -> None:
    with pytest.raises(InvalidRequest) as raised:
        await client.submit(model="llama", prompt="x", webhook=webhook)
    assert "webhook" in f"{raised.value.param} {raised.value.message}"


REFUSALS: list[tuple[dict[str, Any], type[FairlaneError]]] = [
    ({"model": "none"}, ModelNotFound),
    ({"model": None}, InvalidRequest),
    ({"tier": "none"}, UnknownTier),
    ({"tier": 1}, InvalidRequest),
    ({"tenant": "no such name!"}, InvalidRequest),
    ({"tenant": 5}, InvalidRequest),
    ({"idempotency_key": ""}, InvalidRequest),
    ({"prompt": None}, InvalidRequest),
    ({"messages": CHAT}, InvalidRequest),
    ({"prompt": float("nan")}, InvalidRequest),
    ({"prompt": {1, 2}}, InvalidRequest),
    ({"prompt": "\ud800"}, InvalidRequest),
    ({"delay_s": -1}, InvalidRequest),
    ({"deadline_s": 0}, InvalidRequest),
    ({"timeout_s": "soon"}, InvalidRequest),
    ({"max_attempts": 0}, InvalidRequest),
    ({"endpoint": "/v1/images"}, InvalidRequest),
    ({"prompt": "x" * (9 << 20)}, PayloadTooLarge),
]


async def test_a_refusal_is_the_same_over_every_transport(client: AsyncClient) -> None:
    seen: list[object] = []
    for changes, _ in REFUSALS:
        with pytest.raises(FairlaneError) as raised:
            await client.submit(**{"model": "llama", "prompt": "x", **changes})
        seen.append((type(raised.value), raised.value.code, raised.value.status))
    assert seen == [(error, error.code, error.status) for _, error in REFUSALS]


async def test_each_submit_is_a_job_of_its_own(client: AsyncClient) -> None:
    first, second = [await client.submit(model="llama", prompt="x") for _ in range(2)]
    assert first.id != second.id


async def test_the_same_key_is_the_same_job(client: AsyncClient) -> None:
    first, second = [await client.submit(model="llama", prompt="x", idempotency_key="k") for _ in range(2)]
    assert first.id == second.id
    with pytest.raises(IdempotencyMismatch):
        await client.submit(model="llama", prompt="y", idempotency_key="k")


@pytest.mark.parametrize("policy", [Policy(max_waiting_tenant=1)], indirect=True)
async def test_a_full_queue_says_when_to_try_again(reach: Reach) -> None:
    async with reach.client(retry_for_s=0) as client:
        await client.submit(model="llama", prompt="x")
        with pytest.raises(QueueFull) as raised:
            await client.submit(model="llama", prompt="x")
    assert raised.value.retry_after is not None
    assert raised.value.retry_after >= 1


async def test_without_a_name_the_tenant_is_anonymous(reach: Reach) -> None:
    async with AsyncClient(reach.url, namespace=reach.namespace) as client:
        assert (await (await client.submit(model="llama", prompt="x")).job()).tenant == "anonymous"


async def test_explain_says_why_a_job_waits(client: AsyncClient) -> None:
    await client.submit(model="llama", prompt="first")
    handle = await client.submit(model="llama", prompt="x")
    why = await client.explain(handle.id)
    assert why["position"] == 1
    assert why["gate"]["backend"] == "b1"
    assert why["estimated_start_s"] is not None


async def test_the_jobs_of_a_tenant_are_listed_by_the_front_door(reach: Reach) -> None:
    async with reach.client("bob") as client:
        ids = {handle.id for handle in await client.submit_many([{"model": "llama", "prompt": "x"}] * 250)}
        if reach.via == "redis":
            with pytest.raises(NotSupported, match="http"):
                await anext(client.jobs())
        else:
            assert {job.id async for job in client.jobs(state="queued", tier="default")} == ids


@pytest.mark.parametrize("url", ["ftp://there", "there:8080", "", "http://[", "redis://x:port"])
async def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="URL"):
        await AsyncClient(url).submit(model="llama", prompt="x")
