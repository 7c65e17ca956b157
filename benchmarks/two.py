"""Two backends as one pool, beside one of them alone: `python -m benchmarks.two --help`.

Both real vLLMs are bound to a core of their own, so that one of two has what one alone has. But the queue, the load and
vLLM's own front ends run on those cores too: how much two can give on this machine is what both give when the same load
goes straight to them. Simulated backends need no CPU to speak of.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Final

from benchmarks import flood
from benchmarks.figures import Figure
from benchmarks.flood import Body, Send, Shape, direct
from benchmarks.tiers import MODELS, TIERS, Runs, backend, options, report, sized, through
from benchmarks.vllm import installed

LEAST: Final = 1.8


@asynccontextmanager
async def straight(urls: Sequence[str]) -> AsyncIterator[Send]:
    """Sends straight to the backend that has the fewest of these requests."""
    async with AsyncExitStack() as stack:
        sends = [await stack.enter_async_context(direct(url)) for url in urls]
        live = [0] * len(sends)

        async def send(tenant: str, body: Body) -> object:
            n = live.index(min(live))
            live[n] += 1
            try:
                return await sends[n](tenant, body)
            finally:
                live[n] -= 1

        yield send


async def measure(urls: Sequence[str], shape: Shape, rounds: int, light: int, dispatchers: int) -> dict[str, Runs]:
    """Paired rounds. Two get twice the work, so that all floods last as long."""
    single = await sized(urls[0], shape, light)
    double = Shape(shape.model, 2 * single.jobs, shape.tokens)
    tiers = TIERS["tiers"]
    found = {"one": Runs(), "two": Runs(), "two directly": Runs()}
    for n in range(rounds):
        for name, load, opened in (
            ("one", single, through(urls[:1], shape.model, tiers, dispatchers)),
            ("two", double, through(urls, shape.model, tiers, dispatchers)),
            ("two directly", double, straight(urls)),
        ):
            async with opened as send:
                found[name].results.append(await flood.run(send, load))
            print(f"round {n + 1} {name}: {found[name].results[-1]}", flush=True)
    return found


def figures(found: dict[str, Runs]) -> Iterator[Figure]:
    one, two, directly = found["one"], found["two"], found["two directly"]
    share, most, beside = two.share(one), directly.share(one), two.share(directly)
    yield Figure(
        "two backends as one pool: answers per second", two.per_s, "/s", one.per_s, f"≥ {LEAST:g} × one",
        share >= LEAST, 2, yardstick_note=f"by rounds {share:.3f}",
    )  # fmt: skip
    yield Figure(
        "what this machine gives: two directly, answers per second", directly.per_s, "/s", one.per_s, digits=2,
        yardstick_note=f"by rounds {most:.3f}",
    )  # fmt: skip
    yield Figure(
        "two as one pool beside two directly", two.per_s, "/s", directly.per_s, "≥ 0.95", beside >= 0.95, 2,
        yardstick_note=f"by rounds {beside:.3f}",
    )  # fmt: skip
    yield Figure("light median before two", two.median_s, "s", one.median_s, digits=3)
    failed = sum(runs.failed for runs in found.values())
    yield Figure("failed", failed, "", target="0", holds=not failed)


def main() -> None:
    given = options(__doc__).parse_args()
    if not given.simulated and not installed():
        return
    with ExitStack() as stack:
        urls = [
            stack.enter_context(backend(is_simulated=given.simulated, slots=given.slots, core=core)) for core in (0, 1)
        ]
        shape = Shape(MODELS[given.simulated], 5 * given.slots, given.tokens)
        light = math.ceil(given.light / given.rounds)
        found = asyncio.run(measure(urls, shape, given.rounds, light, given.dispatchers))
    what = "simulated backends" if given.simulated else "vLLM processes on a core each"
    held = report([*figures(found)], f"Two {what} as one pool, {given.slots} slots each, {given.rounds} rounds")
    raise SystemExit(0 if held else 1)


if __name__ == "__main__":
    main()
