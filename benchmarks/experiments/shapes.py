"""What the pages' tables have in common: how ways are called, and the columns that several of them have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.experiments.measuring import MEASURES
from benchmarks.experiments.results import Results
from dispatcher.simulator.confidence import Estimate, estimate
from dispatcher.simulator.ours import OURS
from dispatcher.simulator.tables import Cell, Column, Table

FCFS: Final = "direct"
WORDS: Final[Mapping[str, str]] = {
    "direct": "FCFS: vLLM alone",
    "fcfs": "FCFS, one line",
    "tenant-round-robin": "round robin among tenants",
    "vtc": "VTC",
    "hrrn": "HRRN",
    "strict-priority": "strict priority, one line",
    "round-robin": "round robin",
    "least-loaded": "least loaded",
    "infaas": "INFaaS-like",
    "llumnix": "Llumnix, two priorities",
    "multi-tier": "multi-tier, as published",
    "engine-fcfs": "FCFS",
    "engine-priority": "vLLM's `priority` by tier",
    "engine-sjf": "SJF, perfect lengths",
    "engine-srpt": "SRPT, perfect lengths",
    "engine-sjf-prompt": "SJF by prompt",
    "engine-uniboost": "UniBoost",
    "engine-uniboost-fixed": "UniBoost, γ = 10/s",
    "engine-uniboost-low": "UniBoost, γ = 0.1/s",
    "engine-uniboost-unguarded": "UniBoost, no memory guard",
    **{name: f"Fairlane, {variant.what}" for name, variant in OURS.items()},
    "ours": "**Fairlane**",
}
WAY: Final = Column("way")


@dataclass(frozen=True, slots=True)
class Shown:
    """A column and what stands in it for a row; the row is the keys of a cell."""

    column: Column
    cell: Callable[[Mapping[str, object]], Cell]


def table(first: Column, rows: Iterable[tuple[Cell, Mapping[str, object]]], columns: Sequence[Shown]) -> Table:
    """One row for each of `rows`: what stands in its first cell, and its keys."""
    cells = [[head, *(shown.cell(keys) for shown in columns)] for head, keys in rows]
    return Table([first, *(shown.column for shown in columns)], cells)


def by_way(results: Results, where: Mapping[str, object], columns: Sequence[Shown]) -> Table:
    """One row for each way that was run there."""
    rows = [(WORDS[way], {**where, "way": way}) for way in results.distinct("way", **where)]
    return table(WAY, rows, columns)


def shown(results: Results, measure: str, name: str = "", digits: int | None = None) -> Shown:
    """A measure with its confidence interval."""
    of = MEASURES[measure]
    column = Column(name or measure, of.unit, min(of.digits, 2) if digits is None else digits, spread=True)
    return Shown(column, lambda keys: results.estimate(measure, **keys))


def compared(results: Results, measure: str, name: str, to: str = FCFS, *, less: bool = False) -> Shown:
    """How many times that of the way `to` it is, run by run; `less`: how much smaller it is, in %."""

    def cell(keys: Mapping[str, object]) -> Estimate:
        ratios = results.ratios(measure, {"way": to}, **keys)
        return estimate([100 * (1 - one) for one in ratios] if less else ratios)

    unit, digits = ("%", 0) if less else ("×", 2)
    return Shown(Column(name, unit, digits, spread=True), cell)


def number(value: float | Estimate, digits: int = 2) -> str:
    """In a sentence."""
    return f"{value.mean if isinstance(value, Estimate) else value:.{digits}f}"


def verdict(holds: bool) -> str:
    return "yes" if holds else "**no**"
