"""One user floods a backend, another one sends now and then: what does the second one notice?

The load shape alone: whoever calls `run` says how a request is sent, straight to the backend or through Fairlane, so
that both are measured alike. Straight to the backend: python -m benchmarks.flood URL --model NAME
"""

from __future__ import annotations

import argparse
import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import httpx

from dispatcher.backends.scrape import ScrapeFailed, scrape

POLL_S: Final = 0.05
LIGHT_EVERY_S: Final = 0.5
FEW_WAITING: Final = 4
SETTLING_S: Final = 1.0  # what waits in the first second is not counted
TIMEOUT_S: Final = 600.0
KEEPALIVE_S: Final = 2.0  # vLLM closes a connection after 5 s without a request; httpx would reuse it just then

Body = dict[str, Any]
Send = Callable[[str, Body], Awaitable[object]]  # tenant and body; returns when answered, raises if it failed


@dataclass(frozen=True)
class Shape:
    """How many requests of how many tokens the heavy user sends at once. The light user's are of the same kind."""

    model: str
    jobs: int = 400
    tokens: int = 48
    stream: bool = False

    def body(self, tenant: str, n: int) -> Body:
        """No two prompts are alike, so that a prefix cache helps neither side."""
        content = f"{n} {tenant}: tell me something about request {n} that nobody knows"
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": self.tokens,
            "ignore_eos": True,
            **({"stream": True} if self.stream else {}),
        }


@dataclass(frozen=True)
class FirstToken:
    """When the first event of a streamed answer came; all of it has come."""

    at: float


@dataclass(frozen=True)
class Result:
    """What one flood showed. Times in seconds, infinite if the light user got no answer; streamed: to its first token.

    `heavy_s` is how long the flood lasted, and `light_jobs` are those of the light user that were answered by then.
    `failed` are requests of either user, and count in no other figure. `waiting` are the polls of the backend's own
    counter, each with the time since the flood began.
    """

    light_s: Sequence[float]
    heavy_jobs: int
    heavy_s: float
    light_jobs: int
    failed: int
    waiting: Sequence[tuple[float, int]]

    @property
    def light_median_s(self) -> float:
        return median(self.light_s) if self.light_s else math.inf

    @property
    def light_p95_s(self) -> float:
        return quantile(self.light_s, 0.95)

    @property
    def light_max_s(self) -> float:
        return max(self.light_s, default=math.inf)

    @property
    def heavy_per_s(self) -> float:
        return self.heavy_jobs / self.heavy_s

    @property
    def per_s(self) -> float:
        """Answers to both users per second, while the flood lasted: serving the light one is work too."""
        return (self.heavy_jobs + self.light_jobs) / self.heavy_s

    @property
    def few_waiting(self) -> float | None:
        """The share of the polls after the first second that saw at most 4 requests waiting; None without one."""
        seen = [waiting <= FEW_WAITING for at, waiting in self.waiting if at >= SETTLING_S]
        return sum(seen) / len(seen) if seen else None

    def __str__(self) -> str:
        share = self.few_waiting
        return (
            f"light median {self.light_median_s:.3f} s, p95 {self.light_p95_s:.3f} s, max {self.light_max_s:.3f} s "
            f"of {len(self.light_s)}; heavy {self.heavy_per_s:.2f} jobs/s, both {self.per_s:.2f}; "
            f"waiting ≤ {FEW_WAITING} in {'no' if share is None else f'{share:.1%} of {len(self.waiting)}'} polls, "
            f"most {max((waiting for _, waiting in self.waiting), default=0)}; failed {self.failed}"
        )


def quantile(values: Sequence[float], share: float) -> float:
    """The least value that `share` of them do not exceed; infinite if there are none."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else math.inf


@dataclass
class _Run:
    """A flood while it is going on."""

    send: Send
    shape: Shape
    began: float = field(default_factory=time.perf_counter)
    light_s: list[float] = field(default_factory=list)
    waiting: list[tuple[float, int]] = field(default_factory=list)
    heavy_jobs: int = 0
    failed: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def one(self, tenant: str, n: int) -> None:
        sent = time.perf_counter()
        try:
            answer = await self.send(tenant, self.shape.body(tenant, n))
        except Exception as error:  # noqa: BLE001 - whatever went wrong, it is one request that failed
            self.failed += 1
            print(f"{tenant} {n} failed: {error!r}")
            return
        if tenant == "light":
            self.light_s.append((answer.at if isinstance(answer, FirstToken) else time.perf_counter()) - sent)
        else:
            self.heavy_jobs += 1

    async def light(self) -> None:
        """One every half second, whether or not the last one is answered, until the flood is over and all are."""
        async with asyncio.TaskGroup() as group:
            n = 0
            while not self.over.is_set():
                group.create_task(self.one("light", n))
                n += 1
                await self._pause(self.began + n * LIGHT_EVERY_S)

    async def poll(self, url: str) -> None:
        """The backend's own counter, every 50 ms, over a connection of its own."""
        async with httpx.AsyncClient() as client:
            while not self.over.is_set():
                due = time.perf_counter() + POLL_S
                with suppress(ScrapeFailed):
                    reading = await scrape(client, url, timeout_s=10)
                    self.waiting.append((time.perf_counter() - self.began, reading.waiting))
                await self._pause(due)

    async def _pause(self, until: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), max(0.0, until - time.perf_counter()))


async def run(send: Send, shape: Shape, metrics_url: str | None = None) -> Result:
    """Floods once, until both users have all their answers. `metrics_url`: the backend whose waiting is polled."""
    flood = _Run(send, shape)
    async with asyncio.TaskGroup() as group:
        if metrics_url:
            group.create_task(flood.poll(metrics_url))
        group.create_task(flood.light())
        await asyncio.gather(*(flood.one("heavy", n) for n in range(shape.jobs)))
        heavy_s, light_jobs = time.perf_counter() - flood.began, len(flood.light_s)
        flood.over.set()
    return Result(flood.light_s, flood.heavy_jobs, heavy_s, light_jobs, flood.failed, flood.waiting)


@asynccontextmanager
async def direct(url: str) -> AsyncIterator[Send]:
    """Sends straight to the backend, over as many connections as it takes."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEPALIVE_S)
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, limits=limits) as client:

        async def send(tenant: str, body: Body) -> object:
            return await post(client, body)

        yield send


async def post(client: httpx.AsyncClient, body: Body, headers: Mapping[str, str] | None = None) -> object:
    """The answer; of a streamed one its FirstToken. Raises httpx.HTTPError, ValueError for a stream that broke off."""
    async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
        if not body.get("stream"):
            await answer.aread()
            answer.raise_for_status()
            return answer.json()
        answer.raise_for_status()
        first, last = math.inf, ""
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                first, last = min(first, time.perf_counter()), line
        if last.strip() != "data: [DONE]":
            raise ValueError(f"the stream ended with {last!r}")
        return FirstToken(first)


async def rounds(url: str, shape: Shape, count: int) -> list[Result]:
    """Direct floods, one after another, printed as they end."""
    results: list[Result] = []
    for n in range(count):
        async with direct(url) as send:
            results.append(await run(send, shape, url))
        print(f"round {n + 1}: {results[-1]}", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="the backend, for example http://127.0.0.1:8100")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    asyncio.run(rounds(args.url, Shape(args.model, args.jobs, args.tokens), args.rounds))


if __name__ == "__main__":
    main()
