"""One request at a time, of one token: how much longer does it take through Fairlane than directly?

    python -m benchmarks.overhead [--requests 300] [--rounds 3]

Front door, dispatcher, simulated backend and Valkey are processes of their own. Each round sends one request directly
and one through Fairlane, in turn, so that both meet the same machine; the difference of percentiles is the overhead.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from statistics import median
from typing import Final

from rich.console import Console

from benchmarks.door import Line, command, free_port, front_door, until_listening
from benchmarks.figures import Figure, table
from benchmarks.servers import server
from fairlane.queue.engine import Queue

CHAT: Final = {"model": "sim", "max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}]}
PATH: Final = "/v1/chat/completions"
WARM: Final = 50
P50_MS: Final = 8.0
P99_MS: Final = 25.0
READY_S: Final = 30.0


async def main(requests: int, rounds: int) -> None:
    backend = free_port()
    with (
        server("valkey") as store,
        command("sim-backend", "--port", str(backend), "--model", "sim"),
        command("dispatcher", "--redis", store.url, "--backend", f"sim=http://127.0.0.1:{backend}"),
        front_door(store.url) as door,
    ):
        until_listening(backend)
        await served(store.url)
        p50s: list[float] = []
        p99s: list[float] = []
        for n in range(rounds):
            directly, through = await pairs(backend, door, requests)
            p50s.append(percentile(through, 0.5) - percentile(directly, 0.5))
            p99s.append(percentile(through, 0.99) - percentile(directly, 0.99))
            print(f"round {n + 1}: directly {shown(directly)}; through {shown(through)}", flush=True)
    figures = [
        Figure("p50", median(p50s), "ms", target=f"≤ {P50_MS:.0f}", holds=median(p50s) <= P50_MS, digits=1),
        Figure("p99", median(p99s), "ms", target=f"≤ {P99_MS:.0f}", holds=median(p99s) <= P99_MS, digits=1),
    ]
    Console().print(table(figures, "More than directly, one request of one token at a time"))


async def pairs(backend: int, door: int, requests: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each request (directly, through)."""
    lines = Line(backend), Line(door)
    taken: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    for n in range(requests + WARM):
        for line, times in zip(lines, taken, strict=True):
            began = time.monotonic()
            answer = await line.ask("POST", PATH, CHAT)
            assert answer.status == 200, answer
            if n >= WARM:
                times.append(1000 * (answer.at - began))
    for line in lines:
        line.close()
    return taken


async def served(redis_url: str) -> None:
    """Until the backend was seen."""
    queue = await Queue.open(redis_url)
    async with asyncio.timeout(READY_S):
        while True:
            pools = await queue.pools.all()
            if pools and any(view.fresh_at_ms for view in (await queue.inspect.load(pools[0])).backends):
                break
            await asyncio.sleep(0.05)
    await queue.close()


def shown(times: list[float]) -> str:
    return f"p50 {percentile(times, 0.5):.1f}, p99 {percentile(times, 0.99):.1f} ms"


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    asyncio.run(main(given.requests, given.rounds))
