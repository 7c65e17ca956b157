"""Pages: templates whose tables, plots and numbers are those of the results.

`{{ table NAME }}` and `{{ plot NAME }}` stand for a table and a plot of the experiment, `{{ NAME }}` for one of its
facts. In the index, `{{ EXPERIMENT.NAME }}` is a fact of that experiment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.experiments.experiment import Experiment
from benchmarks.experiments.results import Results, read

TEMPLATES: Final = Path(__file__).parent / "pages"
PAGES: Final = Path(__file__).parents[2] / "docs" / "experiments"
INDEX: Final = "README"
_PLACE: Final = re.compile(r"\{\{ (?:(table|plot) )?([^ }]+) \}\}")


def page(experiment: Experiment, results: Results, template: str) -> str:
    """Raises KeyError if the template has a place for something that the experiment has not."""
    facts = {**_setup(results), **experiment.facts(results)}

    def fill(place: re.Match[str]) -> str:
        kind, name = place.groups()
        if kind == "table":
            return experiment.tables[name](results).markdown().rstrip("\n")
        if kind == "plot":
            experiment.plots[name]
            return f"![{name.replace('-', ' ')}]({plot_path(experiment, name)})"
        return facts[name]

    return _PLACE.sub(fill, template)


def index(experiments: Mapping[str, Experiment], results: Mapping[str, Results], template: str) -> str:
    facts = {
        f"{name}.{fact}": text
        for name, experiment in experiments.items()
        for fact, text in experiment.facts(results[name]).items()
    }
    return _PLACE.sub(lambda place: facts[place[2]], template)


def plot_path(experiment: Experiment, name: str) -> str:
    return f"{experiment.name}-{name}.svg"


def write(experiment: Experiment, results: Results, folder: Path, templates: Path = TEMPLATES) -> None:
    """The CSV of the runs and of their means, the page and its plots."""
    (folder / f"{experiment.name}-runs.csv").write_text(results.csv(), encoding="utf-8")
    (folder / f"{experiment.name}.csv").write_text(results.mean_csv(), encoding="utf-8")
    draw(experiment, results, folder, templates)


def draw(experiment: Experiment, results: Results, folder: Path, templates: Path = TEMPLATES) -> None:
    """The page and its plots."""
    template = (templates / f"{experiment.name}.md").read_text(encoding="utf-8")
    (folder / f"{experiment.name}.md").write_text(page(experiment, results, template), encoding="utf-8")
    for name, plot in experiment.plots.items():
        plot(results, folder / plot_path(experiment, name))


def stored(experiment: Experiment, folder: Path = PAGES) -> Results:
    """The results as they were written."""
    return read((folder / f"{experiment.name}-runs.csv").read_text(encoding="utf-8"))


def _setup(results: Results) -> dict[str, str]:
    """Facts that every page may tell of its grid."""
    return {
        key: ", ".join(str(value) for value in results.distinct(key))
        for key in ("requests", "profile", "backends", "mix", "rho", "workload")
    } | {"seeds": str(len(results.distinct("seed")))}
