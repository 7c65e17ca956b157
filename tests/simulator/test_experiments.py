"""An experiment can be reproduced: the same command gives the same files."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.experiments.__main__ import EXPERIMENTS, main
from benchmarks.experiments.cell import Cell, Row
from benchmarks.experiments.driving import drive, grid
from benchmarks.experiments.experiment import Experiment, Scale
from benchmarks.experiments.measuring import MEASURES, run
from benchmarks.experiments.pages import TEMPLATES, page, write
from benchmarks.experiments.results import Results, mean_ratio, ratio, read, rounded
from benchmarks.experiments.shapes import by_way, compared, number, shown
from dispatcher.simulator.plots import bars
from dispatcher.simulator.request import Arrival
from dispatcher.simulator.workloads.trace import dump_trace

ONE = Cell(workload="chat", way="direct", rho=0.95, requests=0)
HERE = Path()  # Poisson loads need no traces
TINY = Experiment(
    "tiny",
    lambda requests: [replace(ONE, way=way, requests=requests) for way in ("direct", "ours")],
    {
        "ways": lambda results: by_way(
            results, {}, [shown(results, "all e2e p99"), compared(results, "tokens/s", "rate")]
        )
    },
    lambda results: {"ours": number(results.estimate("all e2e p99", way="ours"))},
    {
        "p99": lambda results, path: bars(
            path, "P99", "s", ["ours"], {"e2e": results.values("all e2e p99", way="ours")[:1]}
        )
    },
)


def row(**values: float) -> Row:
    return Row(ONE, values)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_an_experiment_runs_is_all_that_its_page_needs(name: str) -> None:
    """Found after a quarter of an hour of runs, when the page was made of them."""
    experiment = EXPERIMENTS[name]
    results = Results([Row(cell, dict.fromkeys(MEASURES, 1.0)) for cell in grid(experiment, Scale(3000, 2))])
    template = (TEMPLATES / f"{name}.md").read_text(encoding="utf-8")
    assert "{{" not in page(experiment, results, template)


def test_the_same_seeds_give_the_same_files_in_this_process_and_in_workers(tmp_path: Path) -> None:
    cells = grid(TINY, Scale(30, 2))
    (tmp_path / "tiny.md").write_text("{{ requests }} requests: {{ ours }} s\n\n{{ table ways }}\n\n{{ plot p99 }}\n")
    here = Results([rounded(run(cell, HERE)) for cell in cells])
    texts: list[dict[str, bytes]] = []
    for name, results in (("here", here), ("workers", drive(TINY, cells, HERE, 2))):
        folder = tmp_path / name
        folder.mkdir()
        write(TINY, results, folder, templates=tmp_path)
        texts.append({path.name: path.read_bytes() for path in sorted(folder.iterdir())})
    assert list(texts[0]) == ["tiny-p99.svg", "tiny-runs.csv", "tiny.csv", "tiny.md"]
    assert texts[0] == texts[1]


def test_a_run_at_a_higher_load_takes_longer_and_seeds_differ() -> None:
    cell = replace(ONE, requests=400)
    low, high, other = (run(one, HERE).values for one in (cell, replace(cell, rho=2.0), replace(cell, seed=1)))
    assert low["all e2e p99"] < high["all e2e p99"]
    assert low["capacity"] == high["capacity"]
    assert low["all e2e p99"] != other["all e2e p99"]


def test_the_load_is_a_share_of_what_the_backends_can_do() -> None:
    """At twice the capacity half of what comes is done by the time the last one has come."""
    values = run(replace(ONE, rho=2.0, requests=1500), HERE).values
    assert values["requests/s"] == pytest.approx(values["capacity"], rel=0.1)
    assert values["utilisation"] > 0.98


def test_classes_are_those_of_four_tiers_however_many_there_are() -> None:
    """So that a curve over K compares the same requests."""
    cell = replace(ONE, requests=60, way="engine-priority")
    one, four = (run(replace(cell, tiers=tiers), HERE).values for tiers in (1, 4))
    assert {"priority e2e p99", "batch e2e p99"} <= one.keys()
    assert one.keys() == four.keys()


def test_results_are_the_same_after_they_were_stored() -> None:
    results = Results([
        row(gap=12, jain=0.5, windows=math.inf),
        Row(replace(ONE, seed=1), {"gap": 13.0}),
        Row(replace(ONE, way="ours"), {"all e2e p99": 1.5}),
    ])  # fmt: skip
    again = read(results.csv())
    assert again.csv() == results.csv()
    assert again.mean_csv() == results.mean_csv()
    assert [one.cell for one in again.rows] == [one.cell for one in results.rows]
    assert again.values("gap", way="direct") == [12, 13]


def test_what_is_not_there_is_an_error_and_not_a_blank() -> None:
    with pytest.raises(LookupError, match="vtc"):
        Results([row(gap=1)]).values("gap", way="vtc")
    with pytest.raises(KeyError, match="nothing"):
        page(replace(TINY, facts=lambda _: {}), Results([row(gap=1)]), "{{ nothing }}")


def test_ratios() -> None:
    assert ratio(0, 0) == 1
    assert ratio(1, 0) == math.inf
    assert mean_ratio([2, 0.5]) == pytest.approx(1)
    assert mean_ratio([1, math.inf]) == math.inf


def test_one_command_runs_an_experiment_on_the_named_traces(tmp_path: Path) -> None:
    trace = tmp_path / "azure2023" / "conv_norm.csv"
    trace.parent.mkdir()
    trace.write_text(dump_trace(run_of_requests(300)))
    main(["speed", "--quick", "--traces", str(tmp_path), "--out", str(tmp_path / "out")])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"speed.md", "speed.csv", "speed-runs.csv"}
    assert "**Fairlane**" in (tmp_path / "out" / "speed.md").read_text()


def run_of_requests(count: int) -> list[Arrival]:
    return [Arrival(200.0 * n, "", "", 100, 20) for n in range(count)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such"], "no-such is no experiment"),
        (["--quick"], "--quick needs --out"),
        (["--traces", "/nowhere"], "say --traces DIR or set FAIRLANE_TRACES"),
    ],
)
def test_a_mistake_at_the_command_line_is_named(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert words in capsys.readouterr().err


def test_a_worker_ends_when_whoever_drives_it_was_killed() -> None:
    driver = """
import os, time
from benchmarks.experiments.driving import begin
if os.fork() == 0:
    begin(os.getppid())
    print("works", flush=True)
time.sleep(100)
"""
    with subprocess.Popen([sys.executable, "-c", driver], stdout=subprocess.PIPE, text=True) as driving:
        assert driving.stdout
        assert driving.stdout.readline() == "works\n"
        driving.kill()
        assert driving.communicate(timeout=20)[0] == "", "until the worker lets go of its output"
