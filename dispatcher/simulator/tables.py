"""Tables of results: one value, written as Markdown, CSV and JSON, and read back from CSV.

Numbers are rounded to their column's digits and always written the same. `read_csv(table.csv())` has the same CSV and
the same Markdown as `table`, so that a test can hold a page's table to the file that was committed with it.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from dispatcher.simulator.confidence import Estimate

Cell = str | float | Estimate
_SPREAD: Final = " ±"
_NUMBER: Final = re.compile(r"-?\d+(?:\.(?P<digits>\d+))?")
_MARKDOWN: Final = {"": "–", "inf": "∞", "-inf": "-∞"}


@dataclass(frozen=True, slots=True)
class Column:
    """`digits` after the point; None: its cells are texts. With `spread` they are Estimates, in CSV two columns."""

    name: str
    unit: str = ""
    digits: int | None = None
    spread: bool = False

    @property
    def heads(self) -> list[str]:
        """What it is called in CSV and JSON."""
        unit = f" [{self.unit}]" if self.unit else ""
        return [f"{self.name}{spread}{unit}" for spread in (("", _SPREAD) if self.spread else ("",))]

    def texts(self, cell: Cell) -> list[str]:
        """The cell as it stands in CSV."""
        parts = [cell.mean, cell.half] if isinstance(cell, Estimate) else [cell]
        if len(parts) != len(self.heads):
            raise TypeError(f"{self.name}: {cell!r} {'is no estimate' if self.spread else 'is one'}")
        return [_text(part, self.digits) for part in parts]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under columns."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    def cells(self, name: str) -> list[Cell]:
        """Of the column with that name. Raises ValueError if there is none."""
        place = [column.name for column in self.columns].index(name)
        return [row[place] for row in self.rows]

    def markdown(self) -> str:
        heads = [f"{column.name} ({column.unit})" if column.unit else column.name for column in self.columns]
        rows = [
            [_shown(column.texts(cell)) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows
        ]
        lines = [heads, ["---"] * len(heads), *rows]
        return "".join(f"| {' | '.join(map(_escaped, line))} |\n" for line in lines)

    def csv(self) -> str:
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows([self._heads(), *self._texts()])
        return file.getvalue()

    def json(self) -> str:
        """A list of one object for each row. What is missing is null, what is infinite the string "inf"."""
        numbers = [column.digits is not None for column in self.columns for _ in column.heads]
        objects = [
            {head: _value(text, number) for head, text, number in zip(self._heads(), row, numbers, strict=True)}
            for row in self._texts()
        ]
        return json.dumps(objects, indent=2, ensure_ascii=False) + "\n"

    def _heads(self) -> list[str]:
        return [head for column in self.columns for head in column.heads]

    def _texts(self) -> list[list[str]]:
        return [
            [text for column, cell in zip(self.columns, row, strict=True) for text in column.texts(cell)]
            for row in self.rows
        ]


def read_csv(text: str) -> Table:
    """A table as `Table.csv` wrote it. Raises ValueError or csv.Error if it is none."""
    heads, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    if any(len(row) != len(heads) for row in rows):
        raise ValueError(f"a row has not {len(heads)} cells")
    names = [_split(head) for head in heads]
    texts = list(zip(*rows, strict=True)) if rows else [()] * len(heads)
    columns: list[Column] = []
    cells: list[Sequence[Cell]] = []
    place = 0
    while place < len(names):
        name, unit = names[place]
        spread = names[place + 1 : place + 2] == [(name + _SPREAD, unit)]
        theirs = texts[place : place + (2 if spread else 1)]
        digits = _digits(chain(*theirs))
        columns.append(Column(name, unit, (digits or 0) if spread else digits, spread))
        cells.append([_cell(parts, digits, spread) for parts in zip(*theirs, strict=True)])
        place += len(theirs)
    return Table(columns, list(zip(*cells, strict=True)))


def _split(head: str) -> tuple[str, str]:
    """Name and unit."""
    name, found, unit = head.removesuffix("]").rpartition(" [")
    return (name, unit) if found and head.endswith("]") else (head, "")


def _digits(texts: Iterable[str]) -> int | None:
    """How many digits after the point they all have; None if they are not all numbers that would be written so."""
    finite = [text for text in texts if text not in _MARKDOWN]
    found = {len(match["digits"] or "") if (match := _NUMBER.fullmatch(text)) else None for text in finite}
    digits = found.pop() if len(found) == 1 else None
    if digits is None or any(_text(float(text), digits) != text for text in finite):
        return None
    return digits


def _cell(parts: Sequence[str], digits: int | None, spread: bool) -> Cell:
    if spread:
        return Estimate(*map(_number, parts))
    return parts[0] if digits is None else _number(parts[0])


def _number(text: str) -> float:
    return float(text) if text else math.nan


def _text(part: str | float, digits: int | None) -> str:
    if isinstance(part, str) or not math.isfinite(part):
        return "" if part != part else str(part)
    if digits is None:
        raise TypeError(f"{part} stands in a column of texts")
    text = f"{part:.{digits}f}"
    return text if float(text) else text.removeprefix("-")  # -0.00


def _value(text: str, number: bool) -> str | float | None:
    if not text:
        return None
    if not number or not (match := _NUMBER.fullmatch(text)):
        return text
    return float(text) if match["digits"] else int(text)


def _shown(parts: Sequence[str]) -> str:
    """As it stands in Markdown: an estimate with its interval, if it has one."""
    mean, *half = (_MARKDOWN.get(part, part) for part in parts)
    return f"{mean}{_SPREAD} {half[0]}" if half and parts[1] else mean


def _escaped(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")
