"""The rows of an experiment: written to CSV and read back, and asked for what a page needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from statistics import fmean, geometric_mean
from typing import Any, Final

from benchmarks.experiments.cell import DIGITS, KEYS, TEXTS, Cell, Row
from benchmarks.experiments.measuring import MEASURES
from dispatcher.simulator.confidence import Estimate, estimate
from dispatcher.simulator.tables import Column, Table, read_csv

_TYPES: Final = {field.name: field.type for field in fields(Cell)}


class Results:
    """`rows`: one for each cell and seed, in the order of the grid."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self._places: dict[tuple[str, object], set[int]] = {}
        for place, row in enumerate(rows):
            for key in KEYS:
                self._places.setdefault((key, getattr(row.cell, key)), set()).add(place)

    def distinct(self, key: str, **where: object) -> list[Any]:
        """The values of a key of the cells, in the order in which they come first."""
        return list(dict.fromkeys(getattr(row.cell, key) for row in self.where(**where)))

    def where(self, **where: object) -> Sequence[Row]:
        """In their order."""
        if not where:
            return self.rows
        places = set.intersection(*(self._places.get(pair, set()) for pair in where.items()))
        return [self.rows[place] for place in sorted(places)]

    def values(self, measure: str, **where: object) -> list[float]:
        """Of one cell, by seed. Raises LookupError if there is none, or more than one."""
        found = self.where(**where)
        if not found or len({row.cell.seed for row in found}) < len(found):
            raise LookupError(f"{len(found)} rows have {where}")
        return [row.values.get(measure, math.nan) for row in found]

    def estimate(self, measure: str, **where: object) -> Estimate:
        return estimate(self.values(measure, **where))

    def ratios(self, measure: str, to: Mapping[str, object], **where: object) -> list[float]:
        """How many times as much it is as in the cell that differs from this one by `to`; by seed."""
        pairs = zip(self.values(measure, **where), self.values(measure, **{**where, **to}), strict=True)
        return [ratio(mine, theirs) for mine, theirs in pairs]

    def csv(self) -> str:
        """One line for each run."""
        names = self._measures()
        columns = [_column(key) for key in KEYS] + [_measure(name) for name in names]
        rows = [[*_key(row.cell), *(row.values.get(name, math.nan) for name in names)] for row in self.rows]
        return Table(columns, rows).csv()

    def mean_csv(self) -> str:
        """One line for each cell: the means over its seeds, and half the widths of their 95 % confidence intervals."""
        names = self._measures()
        keys = [key for key in KEYS if key != "seed"]
        cells: dict[tuple[str | float, ...], list[Row]] = {}
        for row in self.rows:
            cells.setdefault(tuple(_key(row.cell, keys)), []).append(row)
        columns = [_column(key) for key in keys] + [_measure(name, spread=True) for name in names]
        rows = [
            [*key, *(estimate([row.values.get(name, math.nan) for row in theirs]) for name in names)]
            for key, theirs in cells.items()
        ]
        return Table(columns, rows).csv()

    def _measures(self) -> list[str]:
        return [
            name for name in MEASURES if any(not math.isnan(row.values.get(name, math.nan)) for row in self.rows)
        ]  # fmt: skip


def read(text: str) -> Results:
    """As `Results.csv` wrote it."""
    table = read_csv(text)
    names = [column.name for column in table.columns if column.name not in KEYS]
    rows: list[Row] = []
    for cells in table.rows:
        named = dict(zip([column.name for column in table.columns], cells, strict=True))
        keys = {key: _parsed(key, named[key]) for key in KEYS}
        rows.append(Row(Cell(**keys), {name: _number(named[name]) for name in names}))
    return Results(rows)


def rounded(row: Row) -> Row:
    """As it stands in CSV, so that what is computed from it is the same before and after."""
    return read(Results([row]).csv()).rows[0]


def ratio(mine: float, theirs: float) -> float:
    """1 if both are 0."""
    if theirs == 0:
        return 1.0 if mine == 0 else math.inf
    return mine / theirs


def mean_ratio(ratios: Iterable[float]) -> float:
    """Geometric: twice and half are 1 on average."""
    found = list(ratios)
    return geometric_mean(found) if all(0 < one < math.inf for one in found) else fmean(found)


def _parsed(key: str, cell: Any) -> Any:
    if key in TEXTS:
        return str(cell)
    return float(cell) if _TYPES[key] == "float" else int(cell)


def _number(cell: Any) -> float:
    """A column without a single finite number has texts."""
    return math.nan if cell == "" else float(cell)


def _key(cell: Cell, keys: Sequence[str] = KEYS) -> list[str | float]:
    return [getattr(cell, key) for key in keys]


def _column(key: str) -> Column:
    return Column(key, "", None if key in TEXTS else DIGITS[key])


def _measure(name: str, spread: bool = False) -> Column:
    return Column(name, MEASURES[name].unit, MEASURES[name].digits, spread)
