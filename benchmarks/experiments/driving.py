"""Runs the cells of an experiment in worker processes."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Thread

from rich.progress import Progress

from benchmarks.experiments.cell import Cell, Row, seeds
from benchmarks.experiments.experiment import Experiment, Scale
from benchmarks.experiments.measuring import run, timed_run
from benchmarks.experiments.results import Results, rounded
from fairlane.logging import configure
from fairlane.process import PARENT_CHECK_S


def grid(experiment: Experiment, scale: Scale) -> list[Cell]:
    """Every cell with every seed."""
    return [
        one for cell in experiment.cells(scale.requests) for one in seeds(cell, 1 if experiment.timed else scale.seeds)
    ]


def begin(parent: int) -> None:
    """In a worker. One whose parent was killed would go on for an hour, for nobody."""
    configure("error")
    Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)  # its store ends with it


def drive(experiment: Experiment, cells: Sequence[Cell], traces: Path, workers: int) -> Results:
    """The rows in the order of the cells, however many workers there are."""
    spawn = multiprocessing.get_context("spawn")  # a fork would share the store's connection
    with (
        ProcessPoolExecutor(1 if experiment.timed else workers, spawn, begin, (os.getpid(),)) as pool,
        Progress() as progress,
    ):
        task = progress.add_task(experiment.name, total=len(cells))
        futures = [pool.submit(timed_run if experiment.timed else run, cell, traces) for cell in cells]
        for future in futures:
            future.add_done_callback(lambda _: progress.advance(task))
        try:
            rows: list[Row] = [rounded(future.result()) for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return Results(rows)
