"""Tables: one way to write each number, and back from CSV to the same Markdown."""

from __future__ import annotations

import csv
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.simulator.confidence import Estimate
from dispatcher.simulator.tables import Cell, Column, Table, read_csv

TABLE = Table(
    [Column("way"), Column("tiers", digits=0), Column("P99", "s", 2, spread=True), Column("gap", "tokens", 1)],
    [
        ["FCFS | plain", 1, Estimate(12.345, 0.5), 1.25],
        ["ours", 4, Estimate(math.inf, math.nan), math.nan],
        ["ours, again", 10, Estimate(-0.0001, 0.0), -math.inf],
    ],
)
WORDS = st.text(st.characters(exclude_categories=["C"]), max_size=8)
NUMBERS = st.floats(-1e9, 1e9) | st.sampled_from([math.nan, math.inf, -math.inf])


@st.composite
def tables(draw: st.DrawFn) -> Table:
    names = draw(st.lists(st.text("abc ().", min_size=1), min_size=1, max_size=5, unique=True))
    columns = [
        Column(name, draw(st.sampled_from(["", "s", "1/s"])), digits, digits is not None and draw(st.booleans()))
        for name in names
        for digits in [draw(st.none() | st.integers(0, 4))]
    ]

    def cell(column: Column) -> Cell:
        if column.spread:
            return Estimate(draw(NUMBERS), draw(NUMBERS))
        return draw(WORDS if column.digits is None else NUMBERS)

    return Table(columns, [[cell(column) for column in columns] for _ in range(draw(st.integers(0, 4)))])


def test_markdown_shows_units_intervals_and_what_is_missing() -> None:
    assert TABLE.markdown() == (
        "| way | tiers | P99 (s) | gap (tokens) |\n"
        "| --- | --- | --- | --- |\n"
        "| FCFS \\| plain | 1 | 12.35 ± 0.50 | 1.2 |\n"
        "| ours | 4 | ∞ | – |\n"
        "| ours, again | 10 | 0.00 ± 0.00 | -∞ |\n"
    )


def test_csv_has_two_columns_for_an_estimate() -> None:
    assert TABLE.csv() == (
        "way,tiers,P99 [s],P99 ± [s],gap [tokens]\n"
        "FCFS | plain,1,12.35,0.50,1.2\n"
        "ours,4,inf,,\n"
        '"ours, again",10,0.00,0.00,-inf\n'
    )


def test_json_has_an_object_for_each_row() -> None:
    first, second, _ = json.loads(TABLE.json())
    assert first == {"way": "FCFS | plain", "tiers": 1, "P99 [s]": 12.35, "P99 ± [s]": 0.5, "gap [tokens]": 1.2}
    assert second == {"way": "ours", "tiers": 4, "P99 [s]": "inf", "P99 ± [s]": None, "gap [tokens]": None}


def test_numbers_can_be_taken_from_a_table_that_was_read() -> None:
    table = read_csv(TABLE.csv())
    assert table.columns == TABLE.columns
    assert table.cells("tiers") == [1.0, 4.0, 10.0]
    assert table.cells("P99")[0] == Estimate(12.35, 0.5)
    with pytest.raises(ValueError, match="not in list"):
        table.cells("p99")


@given(tables())
def test_a_table_that_was_read_is_written_the_same(table: Table) -> None:
    again = read_csv(table.csv())
    assert again.csv() == table.csv()
    assert again.markdown() == table.markdown()


@pytest.mark.parametrize("text", ["", "a,b\n1\n", 'a\n"1\n'])
def test_what_is_no_table_is_told(text: str) -> None:
    with pytest.raises((ValueError, csv.Error)):
        read_csv(text)


@pytest.mark.parametrize(
    ("column", "cell"),
    [(Column("a"), 1.5), (Column("a", digits=1), Estimate(1, 1)), (Column("a", digits=1, spread=True), 1.0)],
)
def test_a_cell_that_does_not_fit_its_column_is_told(column: Column, cell: Cell) -> None:
    with pytest.raises(TypeError):
        Table([column], [[cell]]).csv()
