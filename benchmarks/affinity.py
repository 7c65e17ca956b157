"""What prefix affinity is worth, by vLLM's own counters: `python -m benchmarks.affinity`.

Two real vLLM with prefix caching stand in one pool. Many conversations go on for some turns, each turn with all that
was said before; once with `affinity = none`, once with `prefix`. The hit rate is Δhits ÷ Δqueries, in tokens, of both.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from contextlib import ExitStack
from typing import Any, Final, Literal

import httpx

from benchmarks.through import Fairlane, fairlane
from benchmarks.vllm import installed, vllm
from dispatcher.backends import exposition
from fairlane.options import parse_backend
from producer.affinity import prefixes

ENDPOINT: Final = "/v1/chat/completions"
QUERIES, HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"
WARM_UP: Final = 60
WORDS: Final = ("river", "stone", "lamp", "cloud", "seven", "paper", "north", "engine", "quiet", "glass", "and", "of")


async def hit_rate(ours: Fairlane, urls: list[str], talks: int, turns: int, seed: int) -> float:
    """Of all the tokens of prompts, the share that a server had in its cache."""
    # Nobody goes where there is no room: first the observer learns how much there is.
    await asyncio.gather(*(talk(ours, random.Random(f"warm {seed} {n}"), f"warm{n}", 1) for n in range(WARM_UP)))
    before = [await counters(url) for url in urls]
    await asyncio.gather(*(talk(ours, random.Random(f"{seed} {n}"), f"user{n}", turns) for n in range(talks)))
    after = [await counters(url) for url in urls]
    queries, hits = (sum(b[i] - a[i] for a, b in zip(before, after, strict=True)) for i in (0, 1))
    return hits / queries


async def talk(ours: Fairlane, chance: random.Random, tenant: str, turns: int) -> None:
    messages: list[dict[str, str]] = []
    for _ in range(turns):
        messages.append({"role": "user", "content": " ".join(chance.choices(WORDS, k=80))})
        body: dict[str, Any] = {"model": "tiny", "messages": messages, "max_tokens": 2, "ignore_eos": True}
        await ours.send(tenant, body, prefix=prefixes(ENDPOINT, body))
        messages.append({"role": "assistant", "content": chance.choice(WORDS)})


async def counters(url: str) -> tuple[float, float]:
    async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
        series = exposition.read((await client.get(f"{url}/metrics")).content, [QUERIES, HITS])
    return sum(series[QUERIES]), sum(series[HITS])


async def measure(urls: list[str], talks: int, turns: int) -> dict[str, float]:
    rates: dict[str, float] = {}
    modes: tuple[Literal["none", "prefix"], ...] = ("none", "prefix")
    for seed, affinity in enumerate(modes):
        async with fairlane([parse_backend(f"tiny={url}") for url in urls]) as ours:
            ours.pool = await ours.queue.set_policy(ours.pool, {"affinity": affinity}, by="bench")
            rates[affinity] = await hit_rate(ours, urls, talks, turns, seed)
        print(f"affinity = {affinity:<6}  hit rate {rates[affinity]:.1%}", flush=True)
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--talks", type=int, default=24)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    if not installed():
        return
    with ExitStack() as stack:
        urls = [stack.enter_context(vllm(8, core)) for core in (0, 1)]
        rates = asyncio.run(measure(urls, given.talks, given.turns))
    best = 1 - 2 / (given.turns + 1)  # each turn's prompt is that of the turn before, and one part more
    print(f"the most that one server alone could have: about {best:.1%}")
    print("prefix affinity is worth it" if rates["prefix"] > rates["none"] else "prefix affinity is NOT worth it")


if __name__ == "__main__":
    main()
