"""The one table of what servers call their metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatcher.backends.families import FAMILIES, detect

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "tests/data/pages").glob("*.txt"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_is_told_by_its_names(page: Path) -> None:
    found = detect(page.read_bytes())
    assert found is FAMILIES[page.stem.split("-")[0]]


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"process_start_time_seconds 1\n",
        b"# TYPE vllm:num_requests_waiting gauge\n",
        b"vllm:num_requests_waiting_by_reason 1\n",
        b"vllm:kv_cache_usage_perc 0.5\n",
        b"<html>vllm:num_requests_running 1</html>",
    ],
)
def test_a_page_of_nobody_is_not_taken_for_somebodys(page: bytes) -> None:
    assert detect(page) is None


def test_no_name_means_two_things() -> None:
    for family in FAMILIES.values():
        assert len(set(family.wanted)) == len(family.wanted)
    loads = [name for family in FAMILIES.values() for name in family.load]
    assert len(set(loads)) == len(loads), "detect could not tell these families apart"


def test_every_name_is_documented() -> None:
    text = (ROOT / "docs/families.md").read_text()
    for family in FAMILIES.values():
        for name in (*family.load, *family.kv, *family.token_seconds, *family.progress):
            assert f"`{name}`" in text, f"docs/families.md lacks {name}"
