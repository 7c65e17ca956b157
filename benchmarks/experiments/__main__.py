"""`make experiments`: runs the experiments and writes docs/experiments/."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks.experiments import clusters, combined, fairness, hand_over, speed, tiers, uniboost
from benchmarks.experiments.driving import drive, grid
from benchmarks.experiments.experiment import FULL, QUICK, Experiment, Scale
from benchmarks.experiments.pages import INDEX, PAGES, TEMPLATES, draw, index, stored, write
from benchmarks.experiments.workloads import CONVERSATION

EXPERIMENTS: Final = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (tiers, combined, fairness, clusters, uniboost, hand_over, speed)
}
TRACES: Final = Path(__file__).parents[3] / "shared" / "traces"
WORKERS: Final = 2


def main(arguments: Sequence[str] | None = None) -> None:
    given = _parsed(arguments)
    chosen = [EXPERIMENTS[name] for name in given.names or EXPERIMENTS]
    console = Console(stderr=True)
    given.out.mkdir(parents=True, exist_ok=True)
    for experiment in chosen:
        began_s = time.monotonic()
        if given.pages:
            draw(experiment, stored(experiment, given.out), given.out)
        else:
            _run(experiment, given)
        console.print(f"{experiment.name}: {time.monotonic() - began_s:.0f} s, in {given.out / experiment.name}.md")
    if all((given.out / f"{name}-runs.csv").exists() for name in EXPERIMENTS):
        results = {name: stored(experiment, given.out) for name, experiment in EXPERIMENTS.items()}
        template = (TEMPLATES / f"{INDEX}.md").read_text(encoding="utf-8")
        (given.out / f"{INDEX}.md").write_text(index(EXPERIMENTS, results, template), encoding="utf-8")


def _run(experiment: Experiment, given: argparse.Namespace) -> None:
    scale = QUICK if given.quick else FULL
    cells = grid(experiment, Scale(given.requests or scale.requests, given.seeds or scale.seeds))
    write(experiment, drive(experiment, cells, given.traces, given.workers), given.out)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.experiments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="EXPERIMENT", help=f"of {', '.join(EXPERIMENTS)}; all, if none")
    parser.add_argument("--traces", type=Path, help="the folder of the traces (or FAIRLANE_TRACES)")
    parser.add_argument("--out", type=Path, default=PAGES, help="where the CSVs, pages and plots go")
    parser.add_argument("--workers", type=int, default=WORKERS, help="runs at a time (default 2)")
    parser.add_argument("--requests", type=int, help=f"of each run (default {FULL.requests})")
    parser.add_argument("--seeds", type=int, help=f"of each cell (default {FULL.seeds})")
    parser.add_argument("--quick", action="store_true", help="a smoke run: tiny, its figures mean nothing")
    parser.add_argument("--pages", action="store_true", help="only write the pages anew, from the CSVs that are there")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in EXPERIMENTS]:
        parser.error(f"{unknown[0]} is no experiment; there are {', '.join(EXPERIMENTS)}")
    if given.quick and given.out == PAGES:
        parser.error("--quick needs --out: its figures are not for the docs")
    given.traces = given.traces or Path(os.environ.get("FAIRLANE_TRACES") or TRACES)
    if not given.pages and not (given.traces / CONVERSATION).is_file():
        parser.error(f"{given.traces / CONVERSATION} is not there; say --traces DIR or set FAIRLANE_TRACES")
    return given


if __name__ == "__main__":
    sys.exit(main())
