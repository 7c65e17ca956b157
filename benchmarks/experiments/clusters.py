"""Four backends: dispatch at the arrival, by what is known of them, beside a queue in front of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.experiments.cell import Cell
from benchmarks.experiments.experiment import Experiment
from benchmarks.experiments.results import Results
from benchmarks.experiments.shapes import WORDS, by_way, compared, number, shown
from dispatcher.simulator.clusters import CLUSTERS
from dispatcher.simulator.confidence import estimate
from dispatcher.simulator.plots import bars
from dispatcher.simulator.tables import Table
from fairlane.model import DEFAULT_TIERS

LOADS: Final = (0.7, 0.85, 0.95)
BASE: Final = "round-robin"
WAYS: Final = (*CLUSTERS, "ours")
HIGHEST, LOWEST = DEFAULT_TIERS[0], DEFAULT_TIERS[-1]


def cells(requests: int) -> list[Cell]:
    one = Cell(
        workload="conversation",
        way=BASE,
        rho=0.0,
        requests=requests // 2,
        scrape_ms=500,
        backends=4,
        profile="a10-7b",
        mix="normal",
    )
    return [replace(one, rho=rho, way=way) for rho in LOADS for way in WAYS]


def _load(rho: float):
    def made(results: Results) -> Table:
        columns = [
            shown(results, f"{HIGHEST} ttft p99", "highest tier: TTFT P99"),
            shown(results, f"{HIGHEST} e2e p99", "highest tier: e2e P99"),
            shown(results, f"{LOWEST} e2e p99", "lowest tier: e2e P99"),
            shown(results, "all ttft p99", "all: TTFT P99"),
            shown(results, "all e2e p99", "all: e2e P99"),
            compared(results, "tokens/s", "tokens/s to round robin’s", BASE),
            shown(results, "preemptions", digits=0),
            shown(results, "wasted", "computed in vain", 0),
        ]
        return by_way(results, {"rho": rho}, columns)

    return made


def _draw(results: Results, path: Path) -> None:
    series = {
        name: [results.estimate(f"{of} e2e p99", way=way, rho=LOADS[-1]) for way in WAYS]
        for of, name in ((HIGHEST, "highest tier"), (LOWEST, "lowest tier"), ("all", "all"))
    }
    names = [WORDS[way].replace("*", "").replace(", ", ",\n") for way in WAYS]
    bars(path, f"Four backends: end-to-end P99, ρ = {LOADS[-1]}", "s", names, series, log_y=True)


def _facts(results: Results) -> dict[str, str]:
    def better(of: str, keys: Mapping[str, object], to: str) -> str:
        return number(estimate([1 / one for one in results.ratios(f"{of} e2e p99", {"way": to}, **keys)]))

    return {
        f"{way}@{rho}:{of}": better(measure, {"rho": rho, "way": way}, "least-loaded")
        for rho in LOADS
        for way in WAYS
        for of, measure in (("highest", HIGHEST), ("lowest", LOWEST), ("all", "all"))
    }


EXPERIMENT: Final = Experiment(
    "clusters", cells, {f"load@{rho}": _load(rho) for rho in LOADS}, _facts, {"tiers": _draw}
)
