"""What an experiment is: its grid, and what its page shows of the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.experiments.cell import Cell
from benchmarks.experiments.results import Results
from dispatcher.simulator.tables import Table


@dataclass(frozen=True, slots=True)
class Scale:
    """How large the runs are, and with how many seeds each cell is run."""

    requests: int
    seeds: int


FULL: Final = Scale(3000, 5)
QUICK: Final = Scale(40, 2)


@dataclass(frozen=True, slots=True)
class Experiment:
    """`cells`: without their seeds. `tables`, `plots` and `facts` fill the template pages/<name>.md.

    `timed`: how long its runs take is measured too; they have the machine to themselves, and one seed.
    """

    name: str
    cells: Callable[[int], Sequence[Cell]]  # of so many requests
    tables: Mapping[str, Callable[[Results], Table]]
    facts: Callable[[Results], Mapping[str, str]]
    plots: Mapping[str, Callable[[Results, Path], None]] = field(default_factory=dict)
    timed: bool = False
