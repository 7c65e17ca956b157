"""A figure: what was measured, beside its yardstick and its target; and tables of figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

COLUMNS = ("figure", "measured", "yardstick", "target", "holds")


@dataclass(frozen=True)
class Figure:
    """One measurement. `yardstick` is None if there is nothing to compare with; `holds` is None without a target.

    `digits` are those after the point; `note` says more about the measurement, `yardstick_note` about the yardstick.
    """

    name: str
    value: float
    unit: str
    yardstick: float | None = None
    target: str = ""
    holds: bool | None = None
    digits: int = 0
    note: str = ""
    yardstick_note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.value / self.yardstick if self.yardstick else None

    def cells(self) -> tuple[str, str, str, str, str]:
        measured = f"{self._number(self.value)}{f' ({self.note})' if self.note else ''}"
        yardstick = "" if self.yardstick is None else self._number(self.yardstick)
        if self.ratio is not None:
            yardstick += f" → {self.ratio:.2f} ×"
        if self.yardstick_note:
            yardstick += f" ({self.yardstick_note})"
        holds = "" if self.holds is None else "yes" if self.holds else "no"
        return self.name, measured, yardstick, self.target or "–", holds or "–"

    def _number(self, value: float) -> str:
        return f"{value:,.{self.digits}f} {self.unit}".rstrip()


def table(figures: Iterable[Figure], title: str) -> Table:
    """For a terminal."""
    made = Table(*COLUMNS, title=title, box=box.ASCII_DOUBLE_HEAD, title_justify="left")
    for figure in figures:
        style = "bold red" if figure.holds is False else None
        made.add_row(*figure.cells(), style=style)
    return made


def markdown(figures: Sequence[Figure]) -> str:
    """To paste into the docs."""
    rows = [COLUMNS, tuple("---" for _ in COLUMNS), *(figure.cells() for figure in figures)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
