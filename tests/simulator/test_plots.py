"""Plots: the same data, the same file; and what to do without matplotlib."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dispatcher.simulator.confidence import Estimate
from dispatcher.simulator.plots import Series, bars, cdf, lines

WITHOUT = """
import sys
sys.modules["matplotlib"] = None
from pathlib import Path
from dispatcher.simulator.plots import cdf
cdf(Path("never.svg"), "t", "x", {"a": [1.0]})
"""


def a_line(path: Path) -> None:
    points = [(1.0, Estimate(2.0, 0.5)), (2.0, Estimate(3.0, math.nan)), (3.0, math.inf)]
    lines(
        path, "P99 <by> tiers", "tiers K", "P99 (s)", [Series("ours", points), Series("$5", [(1.0, 4.0)])], log_y=True
    )


def some_bars(path: Path) -> None:
    series = {"ours": [1.0, Estimate(2.0, 0.1)], "FCFS": [math.inf, 3.0]}
    bars(path, "P99 <by> tiers", "P99 (s)", ["ρ = .5", "ρ = .95"], series)


def a_cdf(path: Path) -> None:
    cdf(path, "P99 <by> tiers", "TTFT (s)", {"ours": [0.1, 1.0, 100.0, math.inf], "$5": [2.0]}, log_x=True)


@pytest.mark.parametrize("draw", [a_line, some_bars, a_cdf])
def test_the_same_data_give_the_same_file_with_its_words_as_text(draw: Callable[[Path], None], tmp_path: Path) -> None:
    draw(tmp_path / "one.svg")
    draw(tmp_path / "two.svg")
    drawn = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert drawn == (tmp_path / "two.svg").read_text(encoding="utf-8")
    assert "P99 &lt;by&gt; tiers</text>" in drawn
    assert "ours</text>" in drawn
    assert "<dc:date>" not in drawn


def test_without_matplotlib_it_is_told_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60, check=False)
    assert "pip install 'fairlane[plots]'" in done.stderr.splitlines()[-1]
