"""Fair turns in virtual time: no gain for whoever comes and goes, and tokens shared out as they were really used."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import Final, Literal

import pytest

from dispatcher.backends.timing import Speed
from fairlane.clock import ManualClock
from fairlane.model import Fairness, JobError, JobSpec, Lease, Policy, Settlement, Usage
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import open_backend, submit_all
from tests.virtual.live import Live, job

OTHERS: Final = 100
PER_MILLE_MS: Final = 1_000  # what 1,000 weighted tokens take
BROKEN: Final = JobError("backend_error", "It broke off.", 500)
End = Literal["succeeded", "failed", "retried", "cancelled"]
ENDS: Final[tuple[End, ...]] = ("succeeded", "succeeded", "failed", "retried", "cancelled")
_calls = count(1)


@pytest.mark.parametrize("fairness", ["requests", "tokens"])
async def test_a_tenant_that_comes_back_at_each_pop_gets_no_more_than_the_others(
    queue: Queue, manual: ManualClock, fairness: Fairness
) -> None:
    """Its work is the shortest, so it has all the credit that the boost gives. It never has two jobs waiting."""
    waits = True

    def come_back(lease: Lease) -> list[JobSpec]:
        nonlocal waits
        waits = waits and lease.tenant != "sly"
        if waits:
            return []
        waits = True
        return [job("sly", "default", 2)]

    pool = await queue.pools.open("llama", Policy(fairness=fairness, lease_ms=3_600_000))
    live = Live(queue, pool, manual, Speed(slots=8, step_ms=20), at_pop=come_back)
    size = 8 if fairness == "requests" else 2  # tokens are what is shared: there the others' jobs are as short
    live.arrive(job("sly", "default", 2), *(job(f"t{n}", "default", size) for n in range(OTHERS) for _ in range(6)))
    while len(live.pops) < 5 * (OTHERS + 1):  # by then nobody else's line has run dry
        await live.run(live.clock.now + 200)
    pops = [pop.lease.tenant for pop in live.pops][: 5 * (OTHERS + 1)]
    turns = Counter(pops)
    assert 4 <= turns["sly"] <= 1.2 * len(pops) / (OTHERS + 1)
    assert max(turns.values()) - min(turns.values()) <= 2


# --- tokens -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A job that runs: what was charged for it, what it will really use (weighted tokens), how its attempt ends."""

    lease: Lease
    estimate: int
    real: int
    end: End
    began_ms: int


class Tokens:
    """Two tenants, each with a line that never runs dry, whose estimates are wrong, and whose jobs end in every way.

    `used`: what each tenant's attempts have used so far, those under way counted as a whole. `apart` is by how much
    the two differed at the worst, less the error of the estimates in flight. `largest` is the largest cost there was.
    """

    def __init__(self, queue: Queue, pool: Pool, manual: ManualClock, seed: int) -> None:
        self._queue, self._pool, self._manual = queue, pool, manual
        self._dice = random.Random(seed)
        self._runs: list[tuple[int, int, Run]] = []
        self.used = Counter[str]()
        self.apart = 0
        self.largest = 0

    def spec(self, tenant: str) -> JobSpec:
        """ann always says too much, bob too little."""
        real = self._dice.randint(20, 400)
        estimate = real * 3 if tenant == "ann" else real // 3
        return JobSpec(tenant, "default", b"%d" % real, input_tokens=0, output_tokens=estimate, max_attempts=100)

    async def run(self, jobs: int, in_flight: int) -> None:
        for tenant in ("ann", "bob"):
            await submit_all(self._queue, self._pool, [self.spec(tenant) for _ in range(jobs)])
        for _ in range(jobs):
            for lease in await self._queue.acquire(self._pool, "d1", next(_calls), in_flight - len(self._runs)):
                self._begin(lease)
            await self._end_one()

    def _begin(self, lease: Lease) -> None:
        estimate, whole = 2 * lease.output_tokens, 2 * int(lease.body)
        end = self._dice.choice(ENDS)
        real = whole if end == "succeeded" else 2 * self._dice.randint(1, whole // 2)
        now_ms = self._manual.now_ms()
        run = Run(lease, estimate, real, end, now_ms)
        heapq.heappush(self._runs, (now_ms + real * PER_MILLE_MS // 1000, next(_calls), run))
        self.used[lease.tenant] += real
        self.largest = max(self.largest, estimate, real)
        error = sum(abs(one.estimate - one.real) for _, _, one in self._runs)
        self.apart = max(self.apart, abs(self.used["ann"] - self.used["bob"]) - error)

    async def _end_one(self) -> None:
        end_ms, _, run = heapq.heappop(self._runs)
        self._manual.advance(end_ms - self._manual.now_ms())
        usage = Usage(0, run.real // 2)
        if run.end == "retried":
            await self._queue.retry(self._pool, run.lease, BROKEN, delay_ms=0, usage=usage)
        elif run.end == "cancelled":
            await self._queue.cancel(run.lease.id)
            await self._queue.release(self._pool, run.lease)
        else:
            await self._queue.settle_many(self._pool, [Settlement(run.lease, run.end, 200, b"{}", usage=usage)])


@pytest.mark.parametrize("in_flight", [1, 8])
async def test_two_tenants_never_differ_by_more_tokens_than_two_jobs_and_the_error_in_flight(
    queue: Queue, manual: ManualClock, in_flight: int
) -> None:
    pool = await queue.pools.open("llama", Policy(fairness="tokens", lease_ms=3_600_000, gamma=0))
    await open_backend(queue, pool, "b1", 1_000)
    tokens = Tokens(queue, pool, manual, seed=in_flight)
    await tokens.run(jobs=300, in_flight=in_flight)
    assert min(tokens.used.values()) > 10 * tokens.largest, "else the bound says nothing"
    assert tokens.apart <= 2 * tokens.largest
