"""What docs/ claims is what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from fairlane.model import FINISHED, TRANSITIONS
from fairlane.queue import keys

DOCS = Path(__file__).parents[2] / "docs"


def test_the_drawing_of_the_states_is_the_table() -> None:
    drawn = re.findall(r"^    (\S+) --> (\w+): (\w+)$", (DOCS / "states.md").read_text(), re.MULTILINE)
    table = {
        (before or "[*]", after, act)
        for act, states in TRANSITIONS.items()
        for before, afters in states.items()
        for after in afters
    }
    assert len(drawn) == len(table)
    assert set(drawn) == table


def test_the_final_states_are_drawn_as_final() -> None:
    final = re.findall(r"^    (\w+) --> \[\*\]$", (DOCS / "states.md").read_text(), re.MULTILINE)
    assert set(final) == FINISHED


def test_every_act_is_explained() -> None:
    rows = re.findall(r"^\| ([\w, ]+) \| \w+ \|", (DOCS / "states.md").read_text(), re.MULTILINE)
    acts = {act for row in rows for act in row.split(", ")} - {"act"}
    assert acts == set(TRANSITIONS)


def test_every_key_is_described() -> None:
    text = (DOCS / "keys.md").read_text()
    rows = set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))
    channels = {template for template in keys.POOL_KEYS.values() if f"`{template}` when" in text}
    assert rows | channels == set(keys.POOL_KEYS.values()) | set(keys.ACCOUNT_KEYS.values())


def test_the_example_in_the_readme_prints_what_it_says(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (DOCS.parent / "README.md").read_text(), re.DOTALL)
    (tmp_path / "example.py").write_text(example)
    ran = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.stdout.split() == ["heavy", "light", "heavy", "heavy"], ran.stderr


def test_every_metric_is_described() -> None:
    from prometheus_client import CollectorRegistry

    from dispatcher.meters import Meters
    from fairlane.metrics import pool_families

    registry = CollectorRegistry()
    Meters(registry)
    families = [*pool_families([]), *registry.collect()]
    shown = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    rows = re.findall(r"^\| `(fairlane_\w+)` \|", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    assert set(rows) == shown
    assert len(rows) == len(shown)
