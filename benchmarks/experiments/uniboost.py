"""UniBoost in the engine: against orders that know every length, and against first come, first served."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.experiments.cell import Cell
from benchmarks.experiments.experiment import Experiment
from benchmarks.experiments.results import Results
from benchmarks.experiments.shapes import WORDS, by_way, compared, number, shown
from dispatcher.simulator.confidence import estimate
from dispatcher.simulator.orders import ORDERS
from dispatcher.simulator.plots import Series, lines
from dispatcher.simulator.tables import Table
from dispatcher.simulator.workloads.lengths import KINDS

LOADS: Final = (0.85, 0.95, 1.05)
OURS: Final = "engine-uniboost"
WAYS: Final = tuple(f"engine-{order}" for order in ORDERS if order != "priority")
FCFS, SJF, SRPT = "engine-fcfs", "engine-sjf", "engine-srpt"


def cells(requests: int) -> list[Cell]:
    one = Cell(workload="", way=FCFS, rho=0.0, requests=requests // 2, tiers=1)
    return [
        replace(one, workload=kind, rho=rho, way=way) for kind in KINDS for rho in LOADS for way in WAYS
    ]  # fmt: skip


def _table(kind: str, rho: float):
    def made(results: Results) -> Table:
        columns = [
            shown(results, "all e2e p50", "e2e P50"),
            shown(results, "all e2e p99", "e2e P99"),
            compared(results, "all e2e p99", "P99 to perfect SJF’s", SJF),
            shown(results, "all ttft p50", "TTFT P50"),
            shown(results, "all ttft p99", "TTFT P99"),
            compared(results, "all ttft p99", "TTFT P99 to perfect SJF’s", SJF),
            compared(results, "all ttft p99", "TTFT P99 to FCFS’s", FCFS),
            compared(results, "tokens/s", "tokens/s to FCFS’s", FCFS),
            shown(results, "preemptions", digits=0),
            shown(results, "wasted", "computed in vain", 0),
        ]
        return by_way(results, {"workload": kind, "rho": rho}, columns)

    return made


def _draw(kind: str, what: str):
    def plot(results: Results, path: Path) -> None:
        series = [
            Series(
                WORDS[way],
                [(rho, results.estimate(f"all {what} p99", workload=kind, rho=rho, way=way)) for rho in LOADS],
            )
            for way in WAYS
        ]
        words = {"e2e": "End-to-end P99", "ttft": "TTFT P99"}[what]
        lines(path, f"{words}, {kind} load", "load (ρ)", "s", series, log_y=True)

    return plot


def _facts(results: Results) -> dict[str, str]:
    """How much less than the others’ UniBoost's are, in %; negative: more."""
    found: dict[str, str] = {}
    for kind in KINDS:
        for rho in LOADS:
            keys = {"workload": kind, "rho": rho, "way": OURS}
            for to in (SJF, SRPT, FCFS):
                for what in ("e2e p99", "ttft p99", "ttft p50", "e2e p50"):
                    ratios = results.ratios(f"all {what}", {"way": to}, **keys)
                    name = f"{kind}@{rho}:{what.replace(' ', '-')}-to-{to.removeprefix('engine-')}"
                    found[name] = number(estimate([100 * (1 - one) for one in ratios]), 0)
    return found


EXPERIMENT: Final = Experiment(
    "uniboost",
    cells,
    {f"{kind}@{rho}": _table(kind, rho) for kind in KINDS for rho in LOADS},
    _facts,
    {f"{kind}-{what}": _draw(kind, what) for kind in KINDS for what in ("e2e", "ttft")},
)
