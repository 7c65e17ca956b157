"""The pages of docs/experiments/ say what the committed CSVs say, to the digit."""

from __future__ import annotations

import random
import re

import pytest

from benchmarks.experiments.__main__ import EXPERIMENTS
from benchmarks.experiments.cell import Cell, Row
from benchmarks.experiments.driving import grid
from benchmarks.experiments.experiment import FULL, QUICK, Experiment
from benchmarks.experiments.measuring import MEASURES
from benchmarks.experiments.pages import INDEX, PAGES, TEMPLATES, index, page, plot_path, stored
from benchmarks.experiments.results import Results, read

every = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=list(EXPERIMENTS))


def committed(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def template(name: str) -> str:
    return (TEMPLATES / f"{name}.md").read_text(encoding="utf-8")


@every
def test_a_page_is_what_its_csv_renders_to(experiment: Experiment) -> None:
    assert committed(f"{experiment.name}.md") == page(experiment, stored(experiment), template(experiment.name))


@every
def test_the_csv_of_the_means_is_that_of_the_runs(experiment: Experiment) -> None:
    assert committed(f"{experiment.name}.csv") == stored(experiment).mean_csv()


@every
def test_the_csv_of_the_runs_has_the_whole_grid(experiment: Experiment) -> None:
    assert [row.cell for row in stored(experiment).rows] == grid(experiment, FULL)


@every
def test_the_plots_of_a_page_are_there(experiment: Experiment) -> None:
    shown = set(re.findall(r"!\[[^]]*\]\((\S+)\)", committed(f"{experiment.name}.md")))
    assert shown == {plot_path(experiment, name) for name in experiment.plots}
    assert all((PAGES / name).is_file() for name in shown)


def test_the_index_tells_what_the_pages_tell() -> None:
    results = {name: stored(experiment) for name, experiment in EXPERIMENTS.items()}
    assert committed(f"{INDEX}.md") == index(EXPERIMENTS, results, template(INDEX))


@every
def test_a_page_has_a_place_for_nothing_that_its_experiment_lacks(experiment: Experiment) -> None:
    """With made-up measures of the whole grid: so that a slip is not found after an hour of runs."""
    text = page(experiment, made_up(experiment), template(experiment.name))
    assert "{{" not in text
    assert not re.search(r"\bnan\b", text)


def test_no_number_of_a_page_is_typed_that_a_run_has_measured() -> None:
    """Another run, other numbers: the pages of two made-up results have no seconds, factors or percents in common."""
    for experiment in EXPERIMENTS.values():
        for line, other in zip(*(_measured_lines(experiment, salt) for salt in ("a", "b")), strict=True):
            assert line != other


def _measured_lines(experiment: Experiment, salt: str) -> list[str]:
    """The lines of the template with a number to two digits or a time, which only runs can have made."""
    text = page(experiment, made_up(experiment, salt), template(experiment.name))
    lines = [line for line in text.splitlines() if re.search(r"\d+\.\d\d (?:s|×)\b", line)]
    return [line for line in lines if "wanted" not in line]


def made_up(experiment: Experiment, salt: str = "") -> Results:
    """All rows of its grid, with dice for measures."""
    dice = random.Random(experiment.name + salt)
    return read(Results([Row(cell, _values(dice, cell)) for cell in grid(experiment, QUICK)]).csv())


def _values(dice: random.Random, cell: Cell) -> dict[str, float]:
    tenants = "heavy" in cell.workload
    return {name: dice.uniform(1, 1000) for name in MEASURES if tenants or name.split()[0] not in {"heavy", "light"}}
