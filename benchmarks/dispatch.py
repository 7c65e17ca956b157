"""Measures the dispatcher and prints each figure beside what is wanted: `python -m benchmarks.dispatch --help`.

Flow: simulated backends over HTTP in real time, with 1, 4 and 20 dispatcher processes, each beside a direct flood of an
equal backend. Drain: null:// in one process, every result read, beside a bare acquire and settle loop. Idle: one job at
a time, from its submit to its result. The machine's load decides the single times; the ratios are what counts.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import httpx
import uvloop

from benchmarks.flood import direct
from benchmarks.through import Fairlane, fairlane
from dispatcher.backends.scrape import ScrapeFailed, scrape
from fairlane.errors import FairlaneError
from fairlane.model import JobSpec, Settlement
from fairlane.options import parse_backend
from tests.simulated.server import simulated

RAMP_S: Final = 3.0
POLL_S: Final = 0.05
TOKENS: Final = 220  # about 2 s each
BODY: Final[dict[str, Any]] = {
    "model": "sim", "messages": [{"role": "user", "content": "Tell me something."}],
    "max_tokens": TOKENS, "ignore_eos": True,
}  # fmt: skip


@dataclass
class Watched:
    """What the backend's own counters said after the ramp: tokens made, seconds, and how many waited at each poll."""

    tokens: float = 0.0
    seconds: float = 0.0
    waiting: list[int] = field(default_factory=lambda: list[int]())

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


async def watch(url: str, seconds: float) -> Watched:
    """Polls the backend from RAMP_S on."""
    found = Watched()
    async with httpx.AsyncClient() as client:
        await asyncio.sleep(RAMP_S)
        began, first = time.perf_counter(), await scrape(client, url)
        while (now := time.perf_counter()) < began + seconds:
            with suppress(ScrapeFailed):
                last = await scrape(client, url)
                found.waiting.append(last.waiting)
                found.tokens, found.seconds = (last.progress or 0) - (first.progress or 0), time.perf_counter() - began
            await asyncio.sleep(max(0.0, now + POLL_S - time.perf_counter()))
    return found


async def direct_flood(slots: int, seconds: float) -> Watched:
    with simulated("--slots", str(slots)) as server:
        async with direct(server.url) as send:
            flood = [asyncio.ensure_future(send("heavy", BODY)) for _ in range(round(slots * (seconds + 10)))]
            try:
                return await watch(server.url, seconds)
            finally:
                for task in flood:
                    task.cancel()
                await asyncio.wait(flood)


async def through(slots: int, dispatchers: int, seconds: float, *, kill_observer: bool = False) -> Watched:
    with simulated("--slots", str(slots)) as server:
        async with fairlane([parse_backend(f"sim={server.url}")], dispatchers) as ours:
            specs = [ours.spec("heavy", BODY)] * round(slots * (seconds + 10))
            answers = await ours.queue.submit_many(ours.pool, specs)
            killer = asyncio.create_task(_unseat_observers(ours)) if kill_observer else None
            found = await watch(server.url, seconds)
            if killer:
                killer.cancel()
            for answer in answers:
                assert not isinstance(answer, FairlaneError)
                await ours.queue.cancel(answer.id)
            return found


async def _unseat_observers(ours: Fairlane) -> None:
    """Every 5 s the observer is as if it were killed: its office is held by nobody until that runs out."""
    client: Any = ours.queue.signals()._client
    while True:
        await asyncio.sleep(5)
        await client.set(ours.pool.key("elected", "observer"), "nobody", px=1500)


async def flow(seconds: float, fleets: Sequence[int], slots: int) -> bool:
    held = True
    for dispatchers, killed in [*((n, False) for n in fleets), (4, True)]:
        base = await direct_flood(slots, seconds)
        ours = await through(slots, dispatchers, seconds, kill_observer=killed)
        ratio, most = ours.rate / base.rate, max(ours.waiting)
        held = held and ratio >= 0.97 and most <= 4
        what = f"{slots} slots, {dispatchers} dispatchers{', observer killed every 5 s' if killed else ''}"
        print(f"flow, {what}: {ratio:.3f} of direct (wanted ≥ .97), waiting at most {most} (wanted ≤ 4)", flush=True)
    return held


# --- null:// ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def paused_backlog(ours: Fairlane, jobs: int) -> AsyncGenerator[list[str]]:
    await ours.queue.pause(ours.pool)
    specs = [ours.spec(f"t{n % 10}", {"model": "sim"}) for n in range(jobs)]
    answers = [
        answer for n in range(0, jobs, 1000) for answer in await ours.queue.submit_many(ours.pool, specs[n : n + 1000])
    ]
    yield [answer.id for answer in answers if not isinstance(answer, FairlaneError)]


async def drain(jobs: int) -> float:
    """Jobs per second of one dispatcher process on null://; each result is read and is its own job's."""
    async with fairlane([parse_backend("sim=null://")]) as ours, paused_backlog(ours, jobs) as ids:
        began = time.perf_counter()
        await ours.queue.resume(ours.pool)
        while True:
            load = await ours.queue.inspect.load(ours.pool)
            if not any(tier.waiting or tier.inflight for tier in load.tiers):
                break
            await asyncio.sleep(0.005)
        took = time.perf_counter() - began
        results = [await ours.queue.inspect.job(id_) for id_ in ids]
        assert [job.result for job in results] == [b'{"id":"%b","object":"null"}' % id_.encode() for id_ in ids]
        return jobs / took


async def bare(jobs: int) -> float:
    """The same by acquire and settle alone, in this process."""
    async with fairlane([parse_backend("other=null://")], dispatchers=0) as ours:
        pool = await ours.queue.pools.open("bare", ours.pool.policy)
        await ours.queue.set_backend(pool, "b", "add")
        from tests.contract.acts import set_gate

        await ours.queue.submit_many(pool, [JobSpec(f"t{n % 10}", "default", b"{}") for n in range(jobs)])
        began, done, call_no = time.perf_counter(), 0, 0
        while done < jobs:
            if call_no % 50 == 0:
                await set_gate(ours.queue, pool, "b", 100_000)
            call_no += 1
            leases = await ours.queue.acquire(pool, "bare", call_no, 100)
            settled = await ours.queue.settle_many(
                pool, [Settlement(lease, "succeeded", 200, b"{}") for lease in leases]
            )
            done += len(settled)
        return jobs / (time.perf_counter() - began)


async def idle(jobs: int) -> list[float]:
    """Milliseconds from submit to result, one job at a time."""
    async with fairlane([parse_backend("sim=null://")]) as ours:
        times: list[float] = []
        for _ in range(jobs):
            began = time.perf_counter()
            await ours.send("ann", {"model": "sim"})
            times.append(1000 * (time.perf_counter() - began))
        return sorted(times)


async def null(jobs: int, rounds: int) -> bool:
    drains, bares = [], []
    for _ in range(rounds):
        bares.append(await bare(jobs))
        drains.append(await drain(jobs))
    rate, ratio = median(drains), median(d / b for d, b in zip(drains, bares, strict=True))
    print(
        f"drain: {rate:,.0f} jobs/s (wanted ≥ 8,000), {ratio:.2f} of a bare loop's {median(bares):,.0f} (wanted ≥ .4)"
    )
    times = await idle(300)
    print(f"idle: p50 {times[150]:.2f} ms (wanted ≤ 2), p99 {times[296]:.2f} ms")
    return rate >= 8_000 and ratio >= 0.4 and times[150] <= 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*", default=["null", "flow"], help="null, flow")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--fleets", type=int, nargs="*", default=[1, 4, 20])
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    held = True
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if "null" in given.part:
            held = runner.run(null(given.jobs, given.rounds)) and held
        if "flow" in given.part:
            held = runner.run(flow(given.seconds, given.fleets, given.slots)) and held
    raise SystemExit(0 if held else 1)


if __name__ == "__main__":
    main()
