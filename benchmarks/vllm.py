"""Another user's flood on a real vLLM, directly and through Fairlane: `python -m benchmarks.vllm --help`.

Needs a vLLM, which `make bench-vllm` starts if one is installed. Paired rounds in one run: only their ratios count.
"""

from __future__ import annotations

import argparse
import asyncio
from statistics import median

from benchmarks import flood
from benchmarks.flood import Result, Shape
from benchmarks.through import fairlane
from fairlane.options import parse_backend


async def measure(url: str, shape: Shape, rounds: int, dispatchers: int) -> list[tuple[Result, Result]]:
    """Pairs of (directly, through Fairlane)."""
    pairs: list[tuple[Result, Result]] = []
    async with fairlane([parse_backend(f"{shape.model}={url}")], dispatchers) as ours:
        for n in range(rounds):
            async with flood.direct(url) as send:
                directly = await flood.run(send, shape, url)
            print(f"round {n + 1} directly:          {directly}", flush=True)
            through = await flood.run(ours.send, shape, url)
            print(f"round {n + 1} through Fairlane:  {through}", flush=True)
            pairs.append((directly, through))
    return pairs


def verdict(pairs: list[tuple[Result, Result]]) -> bool:
    """Prints each figure beside what is wanted; whether all hold."""
    light = median(ours.light_median_s for _, ours in pairs)
    directly = median(direct.light_median_s for direct, _ in pairs)
    ratio = median(ours.heavy_per_s / direct.heavy_per_s for direct, ours in pairs)
    few = median(ours.few_waiting or 0.0 for _, ours in pairs)
    held = [light <= 0.5, ratio >= 0.95, few >= 0.95, not any(ours.failed for _, ours in pairs)]
    print(f"light median: {light:.3f} s (wanted ≤ 0.5 s; directly {directly:.3f} s)")
    print(f"throughput: {ratio:.3f} of direct (wanted ≥ 0.95)")
    print(f"waiting ≤ {flood.FEW_WAITING} in {few:.1%} of the polls after the first second (wanted ≥ 95 %)")
    print(f"failed: {sum(ours.failed for _, ours in pairs)} (wanted 0)")
    return all(held)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dispatchers", type=int, default=1)
    given = parser.parse_args()
    shape = Shape(given.model, given.jobs, given.tokens)
    pairs = asyncio.run(measure(given.url, shape, given.rounds, given.dispatchers))
    raise SystemExit(0 if verdict(pairs) else 1)


if __name__ == "__main__":
    main()
