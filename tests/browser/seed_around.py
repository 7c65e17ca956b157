"""What stands around the jobs: batches, webhooks and people."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlsplit

from fairlane.accounts import Caller
from fairlane.accounts.users import UserRole, Users
from fairlane.audit import Audit
from fairlane.batches import Batches
from fairlane.batches.work import BatchWork, due
from fairlane.clock import ManualClock
from fairlane.files import Files
from fairlane.model import Settlement, Usage
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.safe_url import Guard
from fairlane.webhooks.delivery import NewDelivery, Outcome, Try
from fairlane.webhooks.endpoints import Webhooks
from fairlane.webhooks.outbox import Outbox

CHAT: Final = "/v1/chat/completions"
PASSWORD: Final = "correct horse battery staple"
USERS: Final[dict[str, tuple[UserRole, tuple[str, ...] | None]]] = {
    "ann": ("admin", None),
    "olga": ("operator", None),
    "vera": ("viewer", None),
    "sam": ("operator", ("checkout", "support-bot")),
}


async def add_users(queue: Queue) -> None:
    """One of each role, and one who sees two tenants only; all with PASSWORD. And what they did before."""
    users, audit = Users(queue), Audit(queue)
    for name, (role, tenants) in USERS.items():
        await users.create(name, role, tenants, PASSWORD)
    for who, act, target, tenant in (
        ("olga", "tenant.pause", "llama-3.3-70b / crawler", "crawler"),
        ("olga", "tier.pause", "mistral-small / batch", None),
        ("ann", "backend.drain", "llama-3.3-70b / h100-3", None),
    ):
        facts = {"before": {"paused": False}, "after": {"paused": True}}
        entry = await audit.begin(
            who=who, role=USERS[who][0], address="10.1.4.20", act=act, target=target, tenant=tenant, **facts
        )
        await audit.end(entry, outcome="done", words="Done.")


async def add_deliveries(queue: Queue, clock: ManualClock, tenant: str, hook_url: str) -> str:
    """An endpoint with deliveries that arrived and one that failed for good, and one that does not answer.

    Returns the failed one.
    """
    webhooks, outbox = Webhooks(queue, Guard.of(urlsplit(hook_url).netloc, "443")), Outbox(queue.store)
    good, _ = await webhooks.create(tenant, hook_url, description="Order service")
    bad, _ = await webhooks.create("intake", "https://hooks.intake.example/fairlane", description="Document intake")
    failed = "msg_seedfailed1"
    for n, (endpoint, id_) in enumerate(
        [(good, f"msg_seedgood{n}") for n in range(6)] + [(good, failed), (bad, "msg_seedbad1")]
    ):
        payload = {"type": "job.succeeded", "data": {"id": f"job_seed{n}", "state": "succeeded"}}
        await outbox.add([
            NewDelivery(id_, endpoint.tenant, endpoint.id, endpoint.id, None, "job.succeeded", f"job_seed{n}",
                        json.dumps(payload).encode())
        ])  # fmt: skip
        for taken, token in await outbox.take(10, 30_000):
            await outbox.begin(taken, token, 30_000)
            await outbox.settle(taken, token, _outcome(id_, clock.now_ms(), bad=endpoint is bad, failed=id_ == failed))
        clock.advance(2_000)
    return failed


def _outcome(id_: str, now_ms: int, *, bad: bool, failed: bool) -> Outcome:
    if bad:
        return Outcome(Try(now_ms, 3012, None, "name not found"), "again", delay_ms=3_600_000)
    if failed:
        said = "<html><h1>503 Service Unavailable</h1></html>"
        return Outcome(Try(now_ms, 214, 503, "answered 503", said), "failed", reason="exhausted")
    return Outcome(Try(now_ms, 38, 200, None, "ok"), "delivered")


async def add_batches(queue: Queue, idle: Pool, busy: Pool, clock: ManualClock, files_url: str) -> str:
    """One batch that is done, in the idle pool, and one that goes on, in the busy one, whose id is returned."""
    files = Files(queue, files_url)
    batches, work = Batches(queue, files), BatchWork(queue, files, max_body_bytes=1 << 20)
    await _create(batches, files, "archive", idle.name, 40)
    await _step(queue, work, clock)
    for call in range(1, 9):
        leases = await queue.acquire(idle, "seed-batch", call, 100)
        answer = b'{"choices": [{"message": {"role": "assistant", "content": "spam"}}]}'
        await queue.settle_many(
            idle, [Settlement(lease, "succeeded", 200, answer, usage=Usage(80, 2)) for lease in leases]
        )
        await _step(queue, work, clock, 1)
    await _step(queue, work, clock)
    batch = await _create(batches, files, "nightly-eval", busy.name, 400)
    await _step(queue, work, clock)
    return batch


async def _create(batches: Batches, files: Files, tenant: str, model: str, lines: int) -> str:
    async def content() -> AsyncIterator[bytes]:
        for n in range(lines):
            body = {"model": model, "messages": [{"role": "user", "content": f"Is this spam? #{n}"}], "max_tokens": 8}
            yield json.dumps({"custom_id": f"doc-{n}", "method": "POST", "url": CHAT, "body": body}).encode() + b"\n"

    file = await files.put(tenant, "requests.jsonl", "batch", content(), 1 << 30)
    return (await batches.create(Caller(tenant), file.id, CHAT)).id


async def _step(queue: Queue, work: BatchWork, clock: ManualClock, seconds: int = 6) -> None:
    """Does what is due now and in the next few seconds."""
    for _ in range(2 * seconds):
        found = await due(queue)
        for code in found.pools:
            await work.collect(code)
        for batch_id in found.batches:
            await work.advance(batch_id)
        clock.advance(500)
