"""The table of all rounds: medians, and how Fairlane stands to the best of the others within each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks.peers.measure import Figures

OURS: Final = "Fairlane"
NONE: Final = "–"
Round = Mapping[str, Figures]  # by the queue's name; one that is not there failed


@dataclass(frozen=True)
class Column:
    """`fields` are those of Figures of which the best counts; `smaller` is better for times."""

    title: str
    fields: tuple[str, ...]
    smaller: bool = False

    def value(self, figures: Figures) -> float | None:
        """The best of the fields; None if it has none of them."""
        found = [value for name in self.fields if (value := getattr(figures, name)) is not None]
        return self.best(found) if found else None

    def best(self, values: Sequence[float]) -> float:
        return min(values) if self.smaller else max(values)


COLUMNS: Final = (
    Column("drain without results /s", ("drain_bare",)),
    Column("drain with results /s", ("drain",)),
    Column("submit, one caller /s", ("submit_one",)),
    Column("submit, 32 callers /s", ("submit_many",)),
    Column("submit in batches /s", ("submit_batch",)),
    Column("result p50 ms", ("latency_p50",), smaller=True),
    Column("result p99 ms", ("latency_p99",), smaller=True),
    Column("light tenant behind 10,000, ms", ("light_wait",), smaller=True),
)

# What Fairlane's figure must be ahead of: the peers' best in any of these ways to do the same.
SINGLY: Final = ("submit_one", "submit_many")
AHEAD: Final = (
    (COLUMNS[0], COLUMNS[0]),
    (COLUMNS[1], COLUMNS[1]),
    (Column("submit singly, one caller or 32", SINGLY), Column("", SINGLY)),
    (Column("submit in batches", ("submit_batch",)), Column("", (*SINGLY, "submit_batch"))),
    (COLUMNS[5], COLUMNS[5]),
    (COLUMNS[6], COLUMNS[6]),
    (COLUMNS[7], COLUMNS[7]),
)


@dataclass(frozen=True)
class Standing:
    """Fairlane beside the best peer. `ratios`, one for each round, are above 1 where Fairlane is ahead."""

    title: str
    ratios: tuple[float, ...]
    best: tuple[str, ...]  # the best peer of each round

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def ahead(self) -> bool:
        return self.ratio > 1

    def line(self) -> str:
        each = ", ".join(f"{ratio:.2f}" for ratio in self.ratios)
        rivals = ", ".join(dict.fromkeys(self.best))
        return f"{self.title}: {self.ratio:.2f} × the best peer ({rivals}); by round {each}"


def markdown(rounds: Sequence[Round]) -> str:
    """A row for each queue, in the order of the rounds: the medians of those rounds that it did not fail in."""
    names = list(dict.fromkeys(name for one in rounds for name in one))
    rows = [["", *(column.title for column in COLUMNS)], ["---", *("---:" for _ in COLUMNS)]]
    for name in names:
        taken = [one[name] for one in rounds if name in one]
        rows.append([name, *(_cell(column, taken) for column in COLUMNS)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def standings(rounds: Sequence[Round]) -> list[Standing]:
    """Of what Fairlane wants to be ahead in. A round without Fairlane, or without any other, is left out."""
    found = [_standing(ours, theirs, rounds) for ours, theirs in AHEAD]
    return [standing for standing in found if standing.ratios]


def _standing(ours: Column, theirs: Column, rounds: Sequence[Round]) -> Standing:
    ratios: list[float] = []
    best: list[str] = []
    for one in rounds:
        own = ours.value(one[OURS]) if OURS in one else None
        others = {name: value for name, figures in one.items() if name != OURS and (value := theirs.value(figures))}
        if own is None or not others:
            continue
        rival = theirs.best(list(others.values()))
        best.append(next(name for name, value in others.items() if value == rival))
        ratios.append(rival / own if ours.smaller else own / rival)
    return Standing(ours.title, tuple(ratios), tuple(best))


def _cell(column: Column, taken: Sequence[Figures]) -> str:
    values = [value for figures in taken if (value := column.value(figures)) is not None]
    if not values:
        return NONE
    middle = median(values)
    return f"{middle:,.1f}" if column.smaller and middle < 100 else f"{middle:,.0f}"
