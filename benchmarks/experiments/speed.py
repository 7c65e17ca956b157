"""How fast the simulator is: an hour of 20,000 requests through the production queue."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from benchmarks.experiments.cell import Cell
from benchmarks.experiments.experiment import FULL, Experiment
from benchmarks.experiments.results import Results
from benchmarks.experiments.shapes import by_way, number, shown, verdict
from dispatcher.simulator.tables import Table

HOUR: Final = 20_000
WANTED_S: Final = 120.0
WAYS: Final = ("direct", "vtc", "multi-tier", "ours")


def cells(requests: int) -> list[Cell]:
    hour = HOUR * requests // FULL.requests
    one = Cell(workload="conversation, an hour", way="", rho=0.58, requests=hour, backends=2)
    return [replace(one, way=way) for way in WAYS]


def _table(results: Results) -> Table:
    return by_way(results, {}, [shown(results, name, digits=1) for name in ("simulated", "wall", "tokens/s")])


def _facts(results: Results) -> dict[str, str]:
    wall = results.estimate("wall", way="ours")
    return {"wall": number(wall, 0), "holds": verdict(wall.mean < WANTED_S)}


EXPERIMENT: Final = Experiment("speed", cells, {"speed": _table}, _facts, timed=True)
