"""What prefix affinity is worth, by vLLM's own counters: `python -m benchmarks.affinity`.

Two real vLLM with prefix caching stand in one pool. Conversations about a document of one's own go on for some turns,
each with all that was said before, and pauses; in paired rounds with `affinity = none` and `prefix`. The hit rate is
Δhits ÷ Δqueries, in tokens, of both servers; "stayed" is the share of turns that ran where the turn before ran.
There are fewer conversations than slots: a pool that is full sends each job where a slot is free, warm or not.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Literal

import httpx

from benchmarks.through import Fairlane, fairlane
from benchmarks.vllm import installed, vllm
from dispatcher.backends import exposition
from fairlane.affinity import prefixes
from fairlane.options import parse_backend

ENDPOINT: Final = "/v1/chat/completions"
QUERIES, HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"
WARM_UP: Final = 60
PAUSE_S: Final = 1.0  # the mean, between an answer and the next turn
WORDS_A_DOCUMENT, WORDS_A_TURN = 500, 10
WORDS: Final = ("river", "stone", "lamp", "cloud", "seven", "paper", "north", "engine", "quiet", "glass", "and", "of")


@dataclass
class Turns:
    stayed: int = 0
    moved: int = 0

    @property
    def share(self) -> float:
        return self.stayed / max(1, self.stayed + self.moved)


async def hit_rate(ours: Fairlane, urls: list[str], talks: int, turns: int, seed: str) -> tuple[float, float]:
    """Of all the tokens of prompts, the share that a server had in its cache; and the share of turns that stayed."""
    # Nobody goes where there is no room: first the observer learns how much there is.
    await asyncio.gather(*(talk(ours, f"warm {seed} {n}", 1, Turns()) for n in range(WARM_UP)))
    before, went = [await counters(url) for url in urls], Turns()
    await asyncio.gather(*(talk(ours, f"{seed} {n}", turns, went) for n in range(talks)))
    after = [await counters(url) for url in urls]
    queries, hits = (sum(b[i] - a[i] for a, b in zip(before, after, strict=True)) for i in (0, 1))
    return hits / queries, went.share


async def talk(ours: Fairlane, name: str, turns: int, went: Turns) -> None:
    chance, messages, last = random.Random(name), list[dict[str, str]](), None
    for turn in range(turns):
        await asyncio.sleep(chance.expovariate(1 / PAUSE_S))
        messages.append({"role": "user", "content": _words(chance, turn)})
        body: dict[str, Any] = {"model": "tiny", "messages": messages, "max_tokens": 4, "ignore_eos": True}
        job = await ours.send(name.replace(" ", "-"), body, prefix=prefixes(ENDPOINT, body))
        backend = job.attempts[-1].backend
        if last is not None:
            went.stayed, went.moved = went.stayed + (backend == last), went.moved + (backend != last)
        last = backend
        messages.append({"role": "assistant", "content": chance.choice(WORDS)})


def _words(chance: random.Random, turn: int) -> str:
    return " ".join(chance.choices(WORDS, k=WORDS_A_TURN if turn else WORDS_A_DOCUMENT))


async def counters(url: str) -> tuple[float, float]:
    async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
        series = exposition.read((await client.get(f"{url}/metrics")).content, [QUERIES, HITS])
    return sum(series[QUERIES]), sum(series[HITS])


async def measure(urls: list[str], talks: int, turns: int, rounds: int) -> list[tuple[float, float]]:
    """Pairs of the hit rates without and with affinity."""
    pairs: list[tuple[float, float]] = []
    modes: tuple[Literal["none", "prefix"], ...] = ("none", "prefix")
    async with fairlane([parse_backend(f"tiny={url}") for url in urls]) as ours:
        for n in range(rounds):
            found: list[float] = []
            for affinity in modes:
                ours.pool = await ours.queue.set_policy(ours.pool, {"affinity": affinity}, by="bench")
                rate, stayed = await hit_rate(ours, urls, talks, turns, f"{n} {affinity}")
                limits = " and ".join(str(limit) for limit in await _limits(ours))
                print(
                    f"affinity = {affinity:<6}  hit rate {rate:.1%}  stayed {stayed:.1%}  (room for {limits})",
                    flush=True,
                )
                found.append(rate)
            pairs.append((found[0], found[1]))
    return pairs


async def _limits(ours: Fairlane) -> list[int]:
    load = await ours.queue.inspect.load(ours.pool)
    return [view.gates["default"].limit for view in load.backends]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--talks", type=int, default=6)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    if not installed():
        return
    with ExitStack() as stack:
        urls = [stack.enter_context(vllm(8, core)) for core in (0, 1)]
        pairs = asyncio.run(measure(urls, given.talks, given.turns, given.rounds))
    none, prefix = (median(pair[i] for pair in pairs) for i in (0, 1))
    best = 1 - 1 / given.turns  # the document is new once
    print(f"the most that one server alone could have: about {best:.1%}")
    print(f"median hit rate {none:.1%} without, {prefix:.1%} with affinity")
    print("prefix affinity is worth it" if prefix > none else "prefix affinity is NOT worth it")


if __name__ == "__main__":
    main()
