"""The order handed over: what an engine gains that serves and evicts by the priority that Fairlane gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.experiments.cell import Cell
from benchmarks.experiments.experiment import Experiment
from benchmarks.experiments.results import Results
from benchmarks.experiments.shapes import FCFS, WORDS, by_way, compared, number, shown
from dispatcher.simulator.confidence import estimate
from dispatcher.simulator.plots import bars
from dispatcher.simulator.tables import Table
from fairlane.model import DEFAULT_TIERS

KIND: Final = "reasoning"
SCRAPE_MS: Final = 500  # such a run is an hour of virtual time
LOADS: Final = (0.85, 0.95)
WITHOUT: Final = "ours-no-hand-over"
WAYS: Final = (FCFS, "engine-priority", "ours", WITHOUT, "ours-no-boost", "ours-fixed-gamma")
HIGHEST, LOWEST = DEFAULT_TIERS[0], DEFAULT_TIERS[-1]


def cells(requests: int) -> list[Cell]:
    one = Cell(workload=KIND, way=FCFS, rho=0.0, requests=requests // 2, scrape_ms=SCRAPE_MS)
    return [replace(one, rho=rho, way=way) for rho in LOADS for way in WAYS]


def _table(rho: float):
    def made(results: Results) -> Table:
        columns = [
            shown(results, f"{HIGHEST} ttft p99", "highest tier: TTFT P99"),
            shown(results, f"{HIGHEST} e2e p99", "highest tier: e2e P99"),
            shown(results, f"{LOWEST} e2e p99", "lowest tier: e2e P99"),
            shown(results, "all ttft p50", "all: TTFT P50"),
            shown(results, "all ttft p99", "all: TTFT P99"),
            shown(results, "all e2e p50", "all: e2e P50"),
            shown(results, "all e2e p99", "all: e2e P99"),
            compared(results, "tokens/s", "tokens/s to FCFS’s"),
            shown(results, "preemptions", digits=0),
            shown(results, "wasted", "computed in vain", 0),
        ]
        return by_way(results, {"rho": rho}, columns)

    return made


def _draw(results: Results, path: Path) -> None:
    where = {"rho": LOADS[-1]}
    series = {
        name: [results.estimate(f"{of} e2e p99", way=way, **where) for way in WAYS]
        for of, name in ((HIGHEST, "highest tier"), (LOWEST, "lowest tier"), ("all", "all"))
    }
    names = [WORDS[way].replace("*", "").replace("`", "").replace(", ", ",\n").replace(": ", ":\n") for way in WAYS]
    bars(path, f"End-to-end P99, {KIND} load, ρ = {LOADS[-1]}", "s", names, series, log_y=True)


def _facts(results: Results) -> dict[str, str]:
    """How much less with the hand-over than without it, in %; negative: more."""
    measures = {
        "highest-e2e": f"{HIGHEST} e2e p99",
        "highest-ttft": f"{HIGHEST} ttft p99",
        "lowest-e2e": f"{LOWEST} e2e p99",
        "all-e2e": "all e2e p99",
        "all-e2e-p50": "all e2e p50",
        "all-ttft": "all ttft p99",
    }

    def less(rho: float, measure: str) -> str:
        ratios = results.ratios(measure, {"way": WITHOUT}, way="ours", rho=rho)
        return number(estimate([100 * (1 - one) for one in ratios]), 0)

    return {f"@{rho}:{name}": less(rho, measure) for rho in LOADS for name, measure in measures.items()}


EXPERIMENT: Final = Experiment(
    "hand-over", cells, {f"load@{rho}": _table(rho) for rho in LOADS}, _facts, {"tiers": _draw}
)
