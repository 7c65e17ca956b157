"""The drawing of a batch's states is the table that the scripts enforce."""

from __future__ import annotations

import re
from pathlib import Path

from fairlane.batches.view import ENDED, TURNS

PAGE = (Path(__file__).parents[2] / "docs" / "batches.md").read_text()


def test_the_drawing_is_the_table() -> None:
    drawn = set(re.findall(r"^    (\w+) --> (\w+)$", PAGE, re.MULTILINE))
    assert drawn == {(before, after) for before, states in TURNS.items() for after in states}


def test_the_end_states_are_drawn_as_such() -> None:
    assert set(re.findall(r"^    (\w+) --> \[\*\]$", PAGE, re.MULTILINE)) == ENDED
