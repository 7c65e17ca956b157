"""docs/rebalance.md draws what somebody may ask of a run, and what follows."""

from __future__ import annotations

import re
from pathlib import Path

from fairlane.rebalance.runs import TO
from fairlane.rebalance.values import MAY

PAGE = Path(__file__).parents[2] / "docs" / "rebalance.md"


def test_the_drawing_of_a_runs_states_is_the_table() -> None:
    drawn = set(re.findall(r"^    (\w+) --> (\w+): (\w+)$", PAGE.read_text(), re.MULTILINE))
    table = {(before, TO[verb], verb) for verb, states in MAY.items() for before in states}
    assert drawn == table | {("applying", "stopping", "abort")}  # with a chunk of moves open
