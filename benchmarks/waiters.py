"""500 long polls at once on one front door: how long after the settle does each have its result?

    python -m benchmarks.waiters

The front door is a process of its own; jobs are settled one by one, ten at a time, and all at once. This process also
plays the 500 callers and the dispatcher, so that what it takes itself counts as well.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from itertools import count
from typing import Any, Final

from rich.console import Console

from benchmarks.door import Line, front_door
from benchmarks.figures import Figure, table
from benchmarks.servers import server
from fairlane.head import Head
from fairlane.model import BackendCounts, BackendSpec, JobSpec, Lease, Policy, Settlement, Submitted, TierGate
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool

WAITERS: Final = 500
PROMISE_MS: Final = 50.0
PAUSE_S: Final = 0.005
RESULT: Final = b'{"object":"chat.completion","choices":[{"message":{"role":"assistant","content":"%b"}}]}'
_calls = count(1)


async def main() -> None:
    with server("valkey") as store, front_door(store.url) as port:
        queue = await Queue.open(store.url)
        pool = await queue.pools.open("llama", Policy(stale_ms=3_600_000))
        await queue.set_backend(pool, "b1", "add", spec=BackendSpec("null://"))
        gates = {tier: TierGate(10_000, 10_000) for tier in pool.policy.tiers}
        await queue.observe(pool, "b1", gates, counted=BackendCounts(0, 0, 0))
        figures: list[Figure] = []
        await measure(queue, pool, port, WAITERS, 10)  # warm
        for at_once in (1, 10, 100, WAITERS):
            figures += shown(f"settled {at_once} at a time", await measure(queue, pool, port, WAITERS, at_once))
        figures += shown("10 waiters on each of 50 jobs", await measure(queue, pool, port, 50, 1, waiters=10))
        await queue.close()
    Console().print(table(figures, f"{WAITERS} long polls on one front door"))


async def measure(queue: Queue, pool: Pool, port: int, jobs: int, at_once: int, waiters: int = 1) -> list[float]:
    """For each waiter the time from just before its job's settle to its whole answer, in ms."""
    head = Head("/v1/chat/completions", pool.name).encode()
    taken = await queue.submit_many(pool, [JobSpec("ann", "default", b"{}", head)] * jobs)
    ids = [one.id for one in taken if isinstance(one, Submitted)]
    lines = [Line(port) for _ in range(jobs * waiters)]
    asked = [
        asyncio.create_task(line.ask("GET", f"/v1/jobs/{id_}?wait=60"))
        for line, id_ in zip(lines, ids * waiters, strict=True)
    ]
    await subscribed(queue, pool, jobs)
    leases: list[Lease] = []
    while more := await queue.acquire(pool, f"bench{jobs}", next(_calls), 100):
        leases += more
    gc.collect()
    settled: dict[str, float] = {}
    for part in (leases[n : n + at_once] for n in range(0, len(leases), at_once)):
        settled |= dict.fromkeys((lease.id for lease in part), time.monotonic())
        await queue.settle_many(pool, [Settlement(each, "succeeded", 200, RESULT % each.id.encode()) for each in part])
        await asyncio.sleep(PAUSE_S * len(part))
    late: list[float] = []
    for answer in await asyncio.gather(*asked):
        id_ = answer.body["id"]
        assert answer.body["result"]["body"]["choices"][0]["message"]["content"] == id_
        late.append(1000 * (answer.at - settled[id_]))
    for line in lines:
        line.close()
    return late


async def subscribed(queue: Queue, pool: Pool, n: int) -> None:
    """Until so many jobs are waited for."""
    client: Any = queue._store.raw
    while len(await client.pubsub_channels(pool.key("settled", "*"))) < n:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


def shown(name: str, late: Sequence[float]) -> list[Figure]:
    in_order = sorted(late)
    return [
        Figure(
            f"{name}: {what}",
            in_order[at],
            "ms",
            target=f"≤ {PROMISE_MS:.0f}",
            holds=in_order[at] <= PROMISE_MS,
            digits=1,
        )
        for what, at in (("p50", len(late) // 2), ("p99", int(0.99 * len(late))), ("max", -1))
    ]


if __name__ == "__main__":
    asyncio.run(main())
