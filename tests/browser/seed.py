"""Data worth looking at: three pools in trouble of different kinds, a tenant that floods, light ones, and their past.

It is written with a clock that starts half an hour ago and ends now, so that ages are real; what is to run is left to
the dispatchers that are started afterwards.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from fairlane.accounts import Accounts
from fairlane.clock import ManualClock
from fairlane.head import Head
from fairlane.model import BackendCounts, BackendSpec, JobError, JobSpec, Lease, Limits, Policy, TierGate, Usage
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.browser.seed_around import add_batches, add_deliveries, add_users
from tests.browser.seed_past import Trouble, add_past

LLAMA: Final = "llama-3.3-70b"
QWEN: Final = "qwen/qwen3-8b"
MISTRAL: Final = "mistral-small"
TROUBLES: Final[dict[str, Trouble]] = {LLAMA: "flood", QWEN: "none", MISTRAL: "down"}
FLOOD: Final = "acme-research"
FLOOD_JOBS: Final = 6_500
LIGHT: Final = {  # tenant: tier
    "checkout": "priority", "support-bot": "priority", "voice-agent": "priority",
    "docs-search": "default", "mobile-app": "default", "copilot": "default", "translate": "default",
    "intake": "default",
    "newsletter": "flex", "tagging": "flex", "crawler": "flex",
    "nightly-eval": "batch", "archive": "batch",
}  # fmt: skip
PROMPTS: Final = (
    "Summarise this support ticket in two sentences.",
    "Translate the product description into German.",
    "Which of these invoices are duplicates?",
    "Write a friendly reply to the customer.",
    "Extract names, dates and amounts as JSON.",
)
OUT_OF_MEMORY: Final = b'{"error": {"message": "CUDA out of memory: tried to allocate 2 GiB", "type": "server_error"}}'
AGO_S: Final = 30 * 60
_calls = count(1)


@dataclass(frozen=True)
class Seeded:
    """What tests ask for by its id."""

    dead: str
    succeeded: str
    failed_delivery: str
    batch: str


async def seed(
    redis_url: str,
    backends: Mapping[str, Mapping[str, str]],
    hook_url: str,
    files_url: str,
    now_ms: int,
    flood: int = FLOOD_JOBS,
) -> Seeded:
    """Fills an empty Redis. `backends`: pool → name → url; `hook_url`: a receiver that answers."""
    clock = ManualClock(now_ms - AGO_S * 1000)
    queue = Queue(connect(redis_url), clock=clock)
    await queue.check()
    try:
        await _accounts(queue)
        pools = {name: await _pool(queue, name, urls) for name, urls in backends.items()}
        failed_delivery = await add_deliveries(queue, clock, "checkout", hook_url)
        batch = await add_batches(queue, pools[QWEN], pools[LLAMA], clock, files_url)
        dead, succeeded = await _finished(queue, clock, pools)
        await _waiting(queue, clock, pools, now_ms, flood)
        await _settings(queue, pools)
        for pool in pools.values():
            await add_past(queue, clock, pool, now_ms, TROUBLES[pool.name])
        clock.advance(now_ms - clock.now_ms())
        await add_users(queue)
    finally:
        await queue.close()
    return Seeded(dead, succeeded, failed_delivery, batch)


def job(tenant: str, tier: str, model: str, n: int = 0, **changes: object) -> JobSpec:
    """A chat request that takes a simulated backend a second or two."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": PROMPTS[n % len(PROMPTS)]}],
        "max_tokens": 48 + 16 * (n % 4),
        "ignore_eos": True,
    }
    head = Head("/v1/chat/completions", model, metadata={"trace": f"{tenant}-{n:05}"})
    spec = {"input_tokens": 120, "output_tokens": 64, "expected_ms": 1500} | changes
    return JobSpec(tenant, tier, json.dumps(body).encode(), head.encode(), **spec)  # pyright: ignore[reportArgumentType]


async def _accounts(queue: Queue) -> None:
    accounts = Accounts(queue)
    await accounts.create_tenant(FLOOD, {"weight": "1", "max_waiting": "20000"})
    await accounts.create_tenant("checkout", {"weight": "4", "tiers": "priority,default"})
    await accounts.create_tenant("mobile-app", {"requests_per_minute": "30"})
    await accounts.create_tenant("support-bot", {"max_inflight": "2", "weight": "2"})
    for tenant in ("checkout", "mobile-app", FLOOD):
        await accounts.create_key(tenant)


async def _pool(queue: Queue, name: str, urls: Mapping[str, str]) -> Pool:
    pool = await queue.pools.open(name, Policy(max_waiting_tenant=20_000))
    open_ = {tier: TierGate(16, 16) for tier in pool.policy.tiers}
    for backend, url in urls.items():
        await queue.set_backend(pool, backend, "add", spec=BackendSpec(url))
        await queue.observe(pool, backend, open_, counted=BackendCounts(0, 0, 0))
    return pool


async def _finished(queue: Queue, clock: ManualClock, pools: Mapping[str, Pool]) -> tuple[str, str]:
    """What ran in the last half hour. Returns a job that is dead and one that succeeded, of the first pool."""
    dice = random.Random(7)
    dead: list[str] = []
    succeeded: list[str] = []
    for minute in range(20):
        for pool in pools.values():
            specs = [job(tenant, tier, pool.name, minute) for tenant, tier in dice.sample(sorted(LIGHT.items()), 5)]
            await queue.submit_many(pool, specs)
            if minute % 4 == 3 and pool.name != QWEN:
                await queue.submit(pool, job(FLOOD, "default", pool.name, minute, max_attempts=2))
        clock.advance(dice.randrange(1_000, 6_000))
        for pool in pools.values():
            mine = pool.name == LLAMA
            for n, lease in enumerate(await queue.acquire(pool, "seed", next(_calls), 20)):
                clock.advance(dice.randrange(10, 90))
                if lease.tenant == FLOOD:
                    await _dies(queue, pool, clock, lease)
                    dead += [lease.id] if mine else []
                else:
                    await _succeeds(queue, pool, lease, n)
                    succeeded += [lease.id] if mine else []
        clock.advance(30_000)
    return dead[-1], succeeded[-1]


async def _succeeds(queue: Queue, pool: Pool, lease: Lease, n: int) -> None:
    text = "The customer was charged twice for order 4711 and asks for a refund of one payment."
    answer = {"object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": text}}]}
    await queue.settle(
        pool, lease, "succeeded", status=200, result=json.dumps(answer).encode(), usage=Usage(118 + n, 61 + n)
    )


async def _dies(queue: Queue, pool: Pool, clock: ManualClock, lease: Lease) -> None:
    """Both attempts of a job end with the backend's error."""
    error = JobError("backend_error", "The backend answered 500.", 500)
    clock.advance(900)
    while await queue.retry(pool, lease, error, delay_ms=0, result=OUT_OF_MEMORY) != "failed":
        clock.advance(400)
        (lease,) = await queue.acquire(pool, "seed", next(_calls), 1)
        clock.advance(700)


async def _waiting(queue: Queue, clock: ManualClock, pools: Mapping[str, Pool], now_ms: int, flood: int) -> None:
    """The flood, and light tenants behind it; everything of one pool, whose backend is down."""
    await _submit_at(queue, clock, now_ms - 8 * 60_000, pools[MISTRAL], [
        job(tenant, tier, MISTRAL, n) for n in range(6) for tenant, tier in LIGHT.items() if n < len(tenant) - 4
    ])  # fmt: skip
    for part in range(10):
        flood_jobs = [job(FLOOD, "default", LLAMA, n) for n in range(flood // 10)]
        await _submit_at(queue, clock, now_ms - 420_000 + 30_000 * part, pools[LLAMA], flood_jobs)
    for n, (tenant, tier) in enumerate(LIGHT.items()):
        size = {"priority": 3, "default": 12, "flex": 60, "batch": 240}[tier]
        jobs = [job(tenant, tier, LLAMA, n) for n in range(size)]
        await _submit_at(queue, clock, now_ms - 100_000 + 7_000 * n, pools[LLAMA], jobs)
    some = [job(tenant, tier, QWEN, n) for n in range(25) for tenant, tier in LIGHT.items() if tier != "flex"]
    await _submit_at(queue, clock, now_ms - 2_000, pools[QWEN], some)
    later = [job("newsletter", "flex", QWEN, n, delay_ms=3_600_000) for n in range(5)]
    await _submit_at(queue, clock, now_ms - 1_000, pools[QWEN], later)


async def _submit_at(queue: Queue, clock: ManualClock, at_ms: int, pool: Pool, jobs: Sequence[JobSpec]) -> None:
    clock.advance(at_ms - clock.now_ms())
    for answer in await queue.submit_many(pool, jobs):
        if isinstance(answer, Exception):
            raise answer


async def _settings(queue: Queue, pools: Mapping[str, Pool]) -> None:
    llama = pools[LLAMA]
    await queue.set_policy(llama, {"reserve": "0.25"}, by="olga")
    await queue.set_policy(llama, {"kv_most": "0.9"}, by="ann")
    await queue.set_limits(llama, "mobile-app", Limits(requests_per_minute=30))
    await queue.set_limits(llama, "support-bot", Limits(weight=2, max_inflight=2))
    await queue.set_limits(llama, "checkout", Limits(weight=4))
    await queue.pause(llama, tenant="crawler")
    await queue.pause(pools[MISTRAL], tier="batch")
    await queue.set_backend(llama, "h100-3", "drain")
