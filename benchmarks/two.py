"""Two backends as one pool, beside one of them alone: `python -m benchmarks.two --help`.

Both real vLLMs are bound to a core of their own, so that one of two has what one alone has. The queue, the dispatcher
and the load run on those cores too, and take from both alike; simulated backends need no CPU to speak of.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final

from benchmarks import flood
from benchmarks.figures import Figure
from benchmarks.flood import Shape
from benchmarks.tiers import MODELS, TIERS, Runs, backend, options, report, sized, through
from benchmarks.vllm import installed

LEAST: Final = 1.8


async def measure(urls: Sequence[str], shape: Shape, rounds: int, light: int, dispatchers: int) -> tuple[Runs, Runs]:
    """Paired rounds of (the first backend alone, both). Both get twice the work, so that both floods last as long."""
    one, both = Runs(), Runs()
    single = await sized(urls[0], shape, light)
    for n in range(rounds):
        for runs, used in ((one, urls[:1]), (both, urls)):
            load = Shape(shape.model, single.jobs * len(used), shape.tokens)
            async with through(used, shape.model, TIERS["tiers"], dispatchers) as send:
                runs.results.append(await flood.run(send, load))
            print(f"round {n + 1} {len(used)} backends: {runs.results[-1]}", flush=True)
    return one, both


def figures(one: Runs, both: Runs) -> Iterator[Figure]:
    share = both.share(one)
    note = f"by rounds {share:.3f}"
    yield Figure(
        "two backends as one pool: answers per second", both.per_s, "/s", one.per_s, f"≥ {LEAST:g} × one",
        share >= LEAST, 2, yardstick_note=note,
    )  # fmt: skip
    yield Figure("light median before two", both.median_s, "s", one.median_s, digits=3)
    failed = one.failed + both.failed
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
        one, both = asyncio.run(measure(urls, shape, given.rounds, light, given.dispatchers))
    what = "simulated backends" if given.simulated else "vLLM processes on a core each"
    held = report([*figures(one, both)], f"Two {what} as one pool, {given.slots} slots each, {given.rounds} rounds")
    raise SystemExit(0 if held else 1)


if __name__ == "__main__":
    main()
