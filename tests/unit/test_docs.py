"""What docs/ claims is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from dispatcher.meters import Meters
from fairlane.metrics import METRICS, pool_families, webhook_families
from fairlane.model import FINISHED, TRANSITIONS
from fairlane.queue import keys
from fairlane.webhooks.delivery import Counts
from producer.promises import Promises

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


def test_every_setting_of_a_policy_is_described_with_its_default() -> None:
    from fairlane.model import Policy
    from fairlane.queue.policies import policy_of, texts

    page = (DOCS / "policy.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `?([^|`]+)`? \|", page[: page.index("## Tenants")], re.MULTILINE)
    assert [name for name, _ in rows] == list(texts(Policy()))
    assert policy_of({name: default.strip().encode() for name, default in rows}) == Policy()


def test_every_metric_is_described() -> None:
    text = (DOCS / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \| ([\w ]+) \|", text, re.MULTILINE)
    table = [(metric.name, ", ".join(metric.labels), metric.where) for metric in METRICS]
    assert rows == table


def test_every_metric_of_the_table_is_shown_and_no_other() -> None:
    registry = CollectorRegistry()
    Meters(registry)
    Promises(registry)
    families = [*pool_families([]), *webhook_families(Counts(0, 0, 0, 0, 0)), *registry.collect()]
    shown = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    assert shown == {metric.name for metric in METRICS}
