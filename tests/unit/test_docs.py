"""What docs/ claims is what the code does."""

from __future__ import annotations

import re
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


def test_every_link_leads_somewhere() -> None:
    for page in [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


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
