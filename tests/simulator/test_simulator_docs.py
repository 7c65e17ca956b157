"""What docs/simulate.md and docs/plan.md show is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dispatcher.simulator.catalogue import NAMES
from dispatcher.simulator.profile import PROFILES
from dispatcher.simulator.workloads.lengths import KINDS
from dispatcher.simulator.workloads.tiers import MIXES
from dispatcher.simulator.workloads.trace import read_trace
from tests.simulator.typed import DONE, REFUSED, fairlane, like, write_trace

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {name: (DOCS / f"{name}.md").read_text() for name in ("simulate", "plan")}
EXAMPLES = [
    (command.strip(), printed)
    for page in PAGES.values()
    for command, printed in re.findall(r"```sh\n(.*?)```\n(?:\n```text\n(.*?)```)?", page, re.DOTALL)
]


@pytest.mark.parametrize(("command", "printed"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_the_examples_print_what_they_say(
    command: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_trace(tmp_path / "trace.csv")
    program, *words = shlex.split(command)
    assert program == "fairlane"
    done = fairlane(*words, exit_code=REFUSED if printed.startswith("No number") else DONE)
    shown = done.stdout if "--json" in words else done.output
    if printed:
        assert like(printed).fullmatch(shown), shown


def test_every_command_that_is_shown_is_run() -> None:
    assert len(EXAMPLES) == sum(page.count("```sh") for page in PAGES.values())


def test_the_trace_that_is_shown_is_one(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```csv\n(.*?)```", PAGES["simulate"], re.DOTALL)
    (tmp_path / "trace.csv").write_text(shown)
    assert [one.tenant for one in read_trace(tmp_path / "trace.csv")] == ["ann", "bob", "ann"]


def test_every_name_that_is_told_is_there() -> None:
    page = PAGES["simulate"]
    (table,) = re.findall(r"\| ways \| \|\n(.*?)\n\n", page, re.DOTALL)
    told = [name for row in table.splitlines() for name in re.findall(r"`([\w-]+)`", row.split(" | ")[0])]
    assert set(told) <= set(NAMES)
    assert len(told) > 12
    for name in (*PROFILES, *MIXES, *KINDS):
        assert f"`{name}`" in page
