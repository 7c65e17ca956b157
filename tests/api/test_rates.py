"""Limits of tenants at the front door: a pool has them when they are needed, and headers say what is left."""

from __future__ import annotations

import httpx
import pytest

from fairlane.accounts import Accounts
from fairlane.model import Limits, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.standing import Allowance
from producer.api.rates import headers_of
from tests.api.door import BOB, JOB, refused, submit
from tests.contract.acts import take


@pytest.fixture
async def accounts(queue: Queue) -> Accounts:
    return Accounts(queue)


async def test_a_new_pool_has_a_tenants_limits_at_its_first_submit(
    http: httpx.AsyncClient, queue: Queue, accounts: Accounts
) -> None:
    await accounts.create_tenant("ann", {"max_waiting": 1})
    await queue.pools.open("late", Policy())
    await submit(http, model="late")
    full = refused(await http.post("/v1/jobs", json=JOB | {"model": "late"}), 429, "queue_full")
    assert full["param"] == "max_waiting_tenant"
    await submit(http, model="llama")


async def test_so_it_has_for_each_job_of_a_list(http: httpx.AsyncClient, queue: Queue, accounts: Accounts) -> None:
    await accounts.create_tenant("ann", {"max_waiting": 2})
    await queue.pools.open("late", Policy())
    jobs = (await http.post("/v1/jobs", json={"jobs": [JOB | {"model": "late"}] * 4})).json()["jobs"]
    assert [(job["error"] or {}).get("param") for job in jobs] == [
        None,
        None,
        "max_waiting_tenant",
        "max_waiting_tenant",
    ]


@pytest.mark.parametrize("policy", [Policy(stale_ms=3_600_000, max_waiting_pool=1)], indirect=True)
async def test_a_full_pool_says_that_it_is_the_pool(http: httpx.AsyncClient) -> None:
    await submit(http)
    assert refused(await http.post("/v1/jobs", json=JOB), 429, "queue_full")["param"] == "max_waiting_pool"


async def test_whoever_has_rates_is_told_what_is_left_of_them(
    http: httpx.AsyncClient, queue: Queue, pool: Pool, accounts: Accounts
) -> None:
    limits = {"requests_per_minute": 60, "tokens_per_minute": 6000, "max_waiting": 3}
    await accounts.create_tenant("ann", limits)
    first = await http.post("/v1/jobs", json=JOB)
    assert first.status_code == 202
    assert first.headers["x-ratelimit-limit-requests"] == "60"
    assert first.headers["x-ratelimit-limit-tokens"] == "6000"
    assert first.headers["x-ratelimit-remaining-requests"] == "59"
    assert first.headers["x-ratelimit-remaining-tokens"] == "6000"
    await take(queue, pool, 1)
    for _ in range(3):
        await submit(http)
    full = await http.post("/v1/jobs", json=JOB)
    refused(full, 429, "queue_full")
    assert 56 <= int(full.headers["x-ratelimit-remaining-requests"]) <= 57
    assert 3.0 <= float(full.headers["x-ratelimit-reset-requests"].removesuffix("s")) <= 4.0
    assert int(full.headers["x-ratelimit-remaining-tokens"]) < 6000
    assert "x-fairlane-queue-position" in full.headers
    other = await http.post("/v1/jobs", json=JOB, headers=BOB)
    assert not [name for name in other.headers if name.startswith("x-ratelimit")]


async def test_limits_of_one_pool_alone_are_told_when_it_is_full(
    http: httpx.AsyncClient, queue: Queue, pool: Pool
) -> None:
    await queue.set_limits(pool, "ann", Limits(requests_per_minute=6, max_waiting=0))
    full = await http.post("/v1/jobs", json=JOB)
    refused(full, 429, "queue_full")
    assert full.headers["x-ratelimit-limit-requests"] == "6"


def test_what_is_left_is_of_a_minute_and_never_below_nothing() -> None:
    limits = Limits(requests_per_minute=60, tokens_per_minute=100)
    headers = headers_of(Allowance(limits, waiting=10, requests_us=5_000_000, tokens_us=90_000_000))
    assert headers == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "45",
        "x-ratelimit-reset-requests": "15.000s",
        "x-ratelimit-limit-tokens": "100",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "90.000s",
    }
    assert headers_of(Allowance(Limits(), 3, 0, 0)) == {}
