"""What passes is tried again, no sooner than it was asked for and not for ever; what does not pass is said at once."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from fairlane import AsyncClient, FairlaneError
from fairlane.errors import ConnectionFailed, Draining, InvalidRequest, QueueFull, Refused, StoreUnavailable
from producer.client.patience import MOST_S, pause_s
from tests.client.doors import CUT, Said, Stub, free_socket, refusal, serving

JOB: dict[str, Any] = {"model": "llama", "prompt": "x"}


@pytest.mark.parametrize(
    "passing",
    [
        CUT,
        refusal(429, "queue_full"),
        refusal(429, "rate_limited"),  # a code that this version does not know
        refusal(503, "store_unavailable"),
        refusal(503, "draining"),
        Said(502, "<html>Bad Gateway</html>"),
        Said(500, "Internal Server Error"),  # of a process that ended meanwhile: ours have a code
        Said(503, "{}"),
        Said(504, ""),
    ],
    ids=str,
)
async def test_what_passes_is_tried_again_with_the_same_key(passing: Said) -> None:
    stub = Stub()
    stub.answers = [passing, passing]
    async with serving(stub.app()) as url, AsyncClient(url) as client:
        assert (await client.submit(**JOB)).id == "job_1"
        assert (await client.submit(**JOB)).id == "job_2"
    assert len(stub.asked) == 4
    assert stub.asked[0] == stub.asked[1] == stub.asked[2] != stub.asked[3]


async def test_a_job_whose_answer_was_lost_is_not_doubled() -> None:
    stub = Stub()

    def taken_but_lost(asked: Any) -> Said:
        stub.took(asked)
        return CUT

    stub.answers = [taken_but_lost]
    async with serving(stub.app()) as url, AsyncClient(url) as client:
        assert (await client.submit(**JOB)).id == "job_1"
    assert len(stub.keys) == 1


@pytest.mark.parametrize(
    "final",
    [
        refusal(400, "invalid_request"),
        refusal(401, "invalid_key"),
        refusal(409, "idempotency_mismatch"),
        refusal(500, "internal"),
        refusal(503, "store_unsuitable"),
        Said(404, "<html>"),
        Said(200, "no JSON"),
        Said(301, "", {"location": "http://elsewhere"}),
    ],
    ids=str,
)
async def test_what_does_not_pass_is_said_at_once(final: Said) -> None:
    stub = Stub()
    stub.answers = [final]
    async with serving(stub.app()) as url, AsyncClient(url) as client:
        with pytest.raises(FairlaneError):
            await client.submit(**JOB)
    assert len(stub.asked) == 1


async def test_a_retry_is_never_sooner_than_it_was_asked_for() -> None:
    stub = Stub()
    stub.answers = [refusal(429, "queue_full", **{"retry-after": "1"})]
    async with serving(stub.app()) as url, AsyncClient(url) as client:
        await client.submit(**JOB)
    assert stub.at[1] - stub.at[0] >= 1.0


async def test_a_retry_that_would_come_too_late_is_not_waited_for() -> None:
    stub = Stub()
    stub.answers = [refusal(429, "queue_full", **{"retry-after": "30"})]
    began = time.monotonic()
    async with serving(stub.app()) as url, AsyncClient(url, retry_for_s=5) as client:
        with pytest.raises(QueueFull) as raised:
            await client.submit(**JOB)
    assert raised.value.retry_after == 30
    assert time.monotonic() - began < 2


async def test_retries_end_after_the_total_time() -> None:
    stub = Stub()
    stub.answers = [refusal(503, "draining")] * 1000
    began = time.monotonic()
    async with serving(stub.app()) as url, AsyncClient(url, retry_for_s=0.5) as client:
        with pytest.raises(Draining):
            await client.submit(**JOB)
    assert time.monotonic() - began < 1.5
    assert len(stub.asked) > 2


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "redis://127.0.0.1:1"])
async def test_nobody_at_the_url_is_said_after_the_total_time(url: str) -> None:
    async with AsyncClient(url, retry_for_s=0.2) as client:
        with pytest.raises((ConnectionFailed, StoreUnavailable)) as raised:
            await client.submit(**JOB)
    assert raised.value.status == 503


async def test_a_front_door_that_comes_later_is_waited_for() -> None:
    stub = Stub()
    with free_socket() as listening:
        async with AsyncClient(f"http://127.0.0.1:{listening.getsockname()[1]}") as client:
            submitting = asyncio.create_task(client.submit(**JOB))
            await asyncio.sleep(0.1)
            assert not submitting.done()
            async with serving(stub.app(), listening):
                assert (await submitting).id == "job_1"


async def test_an_unknown_refusal_keeps_its_code_and_status() -> None:
    stub = Stub()
    stub.answers = [refusal(451, "censored")]
    async with serving(stub.app()) as url, AsyncClient(url) as client:
        with pytest.raises(Refused) as raised:
            await client.submit(**JOB)
    assert (raised.value.code, raised.value.status, str(raised.value)) == ("censored", 451, "It is censored.")


async def test_an_answer_of_something_else_says_so() -> None:
    stub = Stub()
    stub.answers = [Said(404, "<html>Welcome to nginx</html>")]
    async with serving(stub.app()) as url, AsyncClient(url) as client:
        with pytest.raises(FairlaneError, match="Welcome to nginx") as raised:
            await client.submit(**JOB)
    assert (raised.value.code, raised.value.status) == ("unexpected_answer", 404)


async def test_the_key_and_the_tenant_go_along() -> None:
    stub = Stub()
    async with serving(stub.app()) as url, AsyncClient(f"{url}/v1/", "secret", tenant="bo") as client:
        await client.submit(**JOB)
        await client.submit(**JOB, tenant="ann")
        await client.submit_many([JOB, {**JOB, "tenant": "ann"}])
    assert [asked["tenant"] for asked in (*stub.asked[:2], *stub.asked[2]["jobs"])] == ["bo", "ann", "bo", "ann"]
    assert {path for path, _ in stub.paths} == {"/v1/jobs"}
    assert {key for _, key in stub.paths} == {"Bearer secret"}


async def test_a_key_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        AsyncClient("http://127.0.0.1", "schlüssel")


def test_pauses_are_random_grow_to_a_bound_and_come_after_retry_after() -> None:
    pauses = [pause_s(50, None) for _ in range(1000)]
    assert 0 <= min(pauses) < 0.1 * MOST_S
    assert 0.9 * MOST_S < max(pauses) <= MOST_S
    assert max(pause_s(1, None) for _ in range(100)) <= 0.1
    assert min(pause_s(3, 7.0) for _ in range(100)) >= 7.0
