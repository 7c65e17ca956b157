"""Tenants alone, all in one tier: one heavy tenant, and tenants that come and go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.experiments.cell import Cell
from benchmarks.experiments.experiment import Experiment
from benchmarks.experiments.results import Results
from benchmarks.experiments.shapes import FCFS, WORDS, by_way, number, shown
from dispatcher.simulator.plots import bars
from dispatcher.simulator.tables import Table

HEAVY: Final = "conversation, heavy tenant"
ON_OFF: Final = "conversation, on-off tenants"
LOADS: Final = (0.95, 1.05)
WAYS: Final = (FCFS, "fcfs", "tenant-round-robin", "vtc", "hrrn", "ours", "ours-tokens", "ours-no-turns")


def cells(requests: int) -> list[Cell]:
    one = Cell(workload=HEAVY, way=FCFS, rho=0.0, requests=requests // 2, scrape_ms=500, tiers=1)
    return [
        replace(one, workload=workload, rho=rho, way=way)
        for workload in (HEAVY, ON_OFF)
        for rho in LOADS
        for way in WAYS
    ]


def _table(workload: str, rho: float):
    def made(results: Results) -> Table:
        columns = [
            shown(results, "gap", "largest service gap"),
            shown(results, "jain", "Jain’s index", 3),
            shown(results, "windows", "windows compared", 0),
            *(
                [
                    shown(results, "light ttft p50", "light: TTFT P50"),
                    shown(results, "light ttft p99", "light: TTFT P99"),
                    shown(results, "light e2e p99", "light: e2e P99"),
                    shown(results, "heavy ttft p99", "heavy: TTFT P99"),
                    shown(results, "heavy e2e p99", "heavy: e2e P99"),
                ]
                if workload == HEAVY
                else [
                    shown(results, "all ttft p50", "TTFT P50"),
                    shown(results, "all ttft p99", "TTFT P99"),
                    shown(results, "all e2e p99", "e2e P99"),
                ]
            ),
            shown(results, "tokens/s", digits=0),
        ]
        return by_way(results, {"workload": workload, "rho": rho}, columns)

    return made


def _draw(results: Results, path: Path) -> None:
    where = {"workload": HEAVY, "rho": LOADS[0]}
    series = {
        f"{tenant} tenants": [results.estimate(f"{tenant} ttft p99", way=way, **where) for way in WAYS]
        for tenant in ("light", "heavy")
    }
    names = [WORDS[way].replace("*", "").replace(", ", ",\n").replace(": ", ":\n") for way in WAYS]
    bars(path, f"TTFT P99 beside a heavy tenant, ρ = {LOADS[0]}", "s", names, series, log_y=True)


def _facts(results: Results) -> dict[str, str]:
    found: dict[str, str] = {}
    for rho in LOADS:
        for way in WAYS:
            where = {"workload": HEAVY, "rho": rho, "way": way}
            found[f"{way}@{rho}:light"] = number(results.estimate("light ttft p99", **where))
            found[f"{way}@{rho}:light-p50"] = number(results.estimate("light ttft p50", **where))
            found[f"{way}@{rho}:heavy"] = number(results.estimate("heavy ttft p99", **where))
            found[f"{way}@{rho}:gap"] = number(results.estimate("gap", **where), 0)
            found[f"{way}@{rho}:gap-on-off"] = number(results.estimate("gap", **{**where, "workload": ON_OFF}), 0)
    return found


EXPERIMENT: Final = Experiment(
    "fairness",
    cells,
    {
        f"{name}@{rho}": _table(workload, rho)
        for name, workload in (("heavy", HEAVY), ("on-off", ON_OFF))
        for rho in LOADS
    },
    _facts,
    {"heavy": _draw},
)
