"""Another user's flood, and what tiers do for the second one: `python -m benchmarks.tiers --help`.

The heavy user's flood in `batch` and the light one's requests in `priority`, and both in `default`; beside them in each
round the same load straight to the backend, and through an ideal scheduler in this process. Paired rounds in one run:
only their ratios count. Each run has a queue and dispatchers of its own, so that none learns from another's flood.
Without a URL it starts the vLLM in FAIRLANE_VLLM_DIR, or, with --simulated, a simulated backend of the speed that the
wanted figures were set for.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal

from rich.console import Console

from benchmarks import flood
from benchmarks.figures import Figure, markdown, table
from benchmarks.flood import LIGHT_EVERY_S, Body, Result, Send, Shape, direct, quantile
from benchmarks.ideal import ideal
from benchmarks.through import fairlane
from benchmarks.vllm import installed, vllm
from fairlane.options import parse_backend
from tests.simulated.server import simulated

Side = Literal["direct", "ideal", "tiers", "default"]
OURS: Final[tuple[Side, ...]] = ("tiers", "default")
YARDSTICKS: Final[tuple[Side, ...]] = ("direct", "ideal")
TIERS: Final[Mapping[Side, Mapping[str, str]]] = {
    "tiers": {"heavy": "batch", "light": "priority"},
    "default": {"heavy": "default", "light": "default"},
}
BATCH_S: Final = 0.24  # what a request took in a full batch where the wanted figures were set
MEDIAN_S: Final[Mapping[Side, float]] = {"tiers": 0.30, "default": 0.40}
P99_S: Final[Mapping[Side, float]] = {"tiers": 0.45, "default": 0.60}
SIMULATED: Final = ("--priority", "obeyed", "--step-ms", "4.6", "--sequence-ms", "0.05")  # 48 tokens: BATCH_S
MODELS: Final = {False: "tiny", True: "sim"}


@dataclass
class Runs:
    """One side's floods, one a round."""

    results: list[Result] = field(default_factory=lambda: list[Result]())

    @property
    def median_s(self) -> float:
        """The median of the rounds' medians."""
        return median(result.light_median_s for result in self.results)

    @property
    def light(self) -> int:
        return sum(len(result.light_s) for result in self.results)

    @property
    def p99_s(self) -> float:
        """Of all rounds' requests together: one round has too few."""
        return quantile([taken for result in self.results for taken in result.light_s], 0.99)

    @property
    def per_s(self) -> float:
        return median(result.per_s for result in self.results)

    def share(self, of: Runs) -> float:
        """Throughput: the median of the rounds' ratios."""
        return median(mine.per_s / its.per_s for mine, its in zip(self.results, of.results, strict=True))

    @property
    def failed(self) -> int:
        return sum(result.failed for result in self.results)


@contextmanager
def backend(*, is_simulated: bool, slots: int, core: int | None = None) -> Iterator[str]:
    """The URL of one, ready."""
    if is_simulated:
        with simulated("--slots", str(slots), *SIMULATED) as server:
            yield server.url
    else:
        with vllm(slots, core) as url:
            yield url


@asynccontextmanager
async def through(urls: Sequence[str], model: str, tiers: Mapping[str, str], dispatchers: int) -> AsyncIterator[Send]:
    """Sends through a Fairlane of its own, each tenant's jobs in its tier; the backends are one pool."""
    async with fairlane([parse_backend(f"{model}={url}") for url in urls], dispatchers) as ours:

        async def send(tenant: str, body: Body) -> None:
            await ours.send(tenant, body, tiers[tenant])

        yield send


async def sized(url: str, shape: Shape, light: int) -> Shape:
    """As many heavy jobs as last until `light` light ones were sent, measured by a short direct flood."""
    async with direct(url) as send:
        tried = await flood.run(send, shape)
    jobs = math.ceil(tried.per_s * light * LIGHT_EVERY_S)
    print(f"{tried.per_s:.2f} answers/s directly: floods of {jobs} jobs", flush=True)
    return Shape(shape.model, jobs, shape.tokens)


async def measure(url: str, shape: Shape, rounds: int, dispatchers: int) -> dict[Side, Runs]:
    """Paired rounds, all four sides in each."""
    sides: dict[Side, Callable[[], AbstractAsyncContextManager[Send]]] = {
        "direct": lambda: direct(url),
        "tiers": lambda: through([url], shape.model, TIERS["tiers"], dispatchers),
        "ideal": lambda: ideal(url),
        "default": lambda: through([url], shape.model, TIERS["default"], dispatchers),
    }
    found: dict[Side, Runs] = {side: Runs() for side in sides}
    for n in range(rounds):
        for side, opened in sides.items():
            async with opened() as send:
                found[side].results.append(await flood.run(send, shape, url))
            print(f"round {n + 1} {side + ':':9}{found[side].results[-1]}", flush=True)
    return found


NAMES: Final[Mapping[Side, str]] = {
    "tiers": "heavy in batch, light in priority",
    "default": "both in default",
    "direct": "directly",
    "ideal": "ideal scheduler",
}


def figures(found: Mapping[Side, Runs], slots: int) -> Iterator[Figure]:
    """Those that depend on the machine's speed are shown in units of a full batch as well; the rest are ratios."""
    directly, best = found["direct"], found["ideal"]
    batch_s = slots / directly.per_s
    yield Figure("a request in a full batch, directly", batch_s, "s", digits=3, note=f"{directly.per_s:.2f} answers/s")
    for side in OURS:
        name, ours = NAMES[side], found[side]
        wanted = (("median", ours.median_s, MEDIAN_S[side]), ("p99", ours.p99_s, P99_S[side]))
        for what, value, most in wanted:
            batches, most_batches = value / batch_s, most / BATCH_S
            yield Figure(
                f"{name}: light {what}", value, "s", target=f"≤ {most:.2f} s, or ≤ {most_batches:.2f} batches",
                holds=value <= most or batches <= most_batches, digits=3,
                note=f"{ours.light} requests; {batches:.2f} × a full batch",
            )  # fmt: skip
        most_s = 1.15 * best.median_s + 0.020
        yield Figure(
            f"{name}: light median beside the ideal's", ours.median_s, "s", best.median_s,
            f"≤ 1.15 × + 20 ms = {most_s:.3f} s", ours.median_s <= most_s, 3,
        )  # fmt: skip
        share = ours.share(directly)
        yield Figure(
            f"{name}: answers per second", ours.per_s, "/s", directly.per_s, "≥ 0.95 of direct", share >= 0.95, 2,
            yardstick_note=f"by rounds {share:.3f}",
        )  # fmt: skip
        yield Figure(f"{name}: failed", ours.failed, "", target="0", holds=not ours.failed)
    for side in YARDSTICKS:
        note = f"p99 {found[side].p99_s:.3f} s of {found[side].light}"
        yield Figure(f"{NAMES[side]}: light median", found[side].median_s, "s", digits=3, note=note)
    yield Figure("ideal scheduler: answers per second", best.per_s, "/s", directly.per_s, digits=2)


def report(found: Sequence[Figure], title: str) -> bool:
    """Prints the tables, for the eye and for the docs; whether all targets hold."""
    console = Console(width=None if Console().is_terminal else 180)
    console.print(table(found, title))
    print(f"\n{title}\n\n{markdown(found)}", flush=True)
    return all(figure.holds is not False for figure in found)


def options(about: str | None) -> argparse.ArgumentParser:
    """What benchmarks.two takes as well."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulated", action="store_true", help="Before a simulated backend; no vLLM is needed.")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--light", type=int, default=330, help="Light requests per figure, in all rounds together.")
    parser.add_argument("--dispatchers", type=int, default=1)
    return parser


async def run(url: str, given: argparse.Namespace) -> bool:
    shape = Shape(given.model or MODELS[given.simulated], 10 * given.slots, given.tokens)
    shape = await sized(url, shape, math.ceil(given.light / given.rounds))
    found = await measure(url, shape, given.rounds, given.dispatchers)
    what = "a simulated backend" if given.simulated else "a real vLLM"
    return report([*figures(found, given.slots)], f"Tiers before {what}, {given.slots} slots, {given.rounds} rounds")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--model", help="What the backend at the URL serves.")
    given = parser.parse_args()
    if not given.url and not given.simulated and not installed():
        return
    opened: AbstractContextManager[str] = (
        nullcontext(given.url) if given.url else backend(is_simulated=given.simulated, slots=given.slots)
    )
    with opened as url:
        held = asyncio.run(run(url, given))
    raise SystemExit(0 if held else 1)


if __name__ == "__main__":
    main()
