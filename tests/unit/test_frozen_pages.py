"""What the learner of capacities makes of pages that stand still, or whose counters begin again, of each family."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dispatcher.backends.scrape import Reading, Renewals, read_page
from dispatcher.policy.capacity import Capacity, Scrape, learn

PAGES = {path.stem: path.read_bytes() for path in (Path(__file__).parents[1] / "data/pages").glob("*.txt")}
THETA = 3


def known(page: Reading) -> Capacity:
    """A backend that has learned to run 20, and whose page was read a moment ago."""
    assert page.progress is not None, "without anything that moves, no page could be told from a frozen one"
    return Capacity(
        k=20, cap=20, ramp=False, fresh_at_ms=1000, top=20, progress=page.progress, started_at=page.started_at
    )


def after(page: Reading, live: int, done: int = 0) -> Scrape:
    return Scrape(
        now_ms=1200,
        running=page.running,
        waiting=page.waiting,
        live=live,
        done=done,
        denied=1,
        progress=page.progress,
        started_at=page.started_at,
    )


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("live", [20, 0])
def test_a_page_that_stands_still_is_not_fresh_nor_believed(name: str, live: int) -> None:
    """`live` 0: all callers have gone (an abort storm), and the gauges still show them running and waiting."""
    page = read_page(PAGES[name])
    assert learn(known(page), after(page, live, done=20), THETA) == known(page)


@pytest.mark.parametrize("name", PAGES)
def test_an_idle_page_is_fresh_although_nothing_moves(name: str) -> None:
    page = replace(read_page(PAGES[name]), running=0, waiting=0)
    found = learn(known(page), after(page, live=0), THETA)
    assert (found.fresh_at_ms, found.k) == (1200, 20)


@pytest.mark.parametrize("name", PAGES)
def test_counters_that_begin_again_are_a_restart(name: str) -> None:
    page = read_page(PAGES[name])
    restarted = replace(page, running=1, waiting=0, progress=(page.progress or 0) / 10)
    found = learn(known(page), after(restarted, live=1), THETA)
    assert found.ramp
    assert found.last_k == 20
    assert found.k < 20


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("sglang-0")])
def test_jobs_that_wait_on_old_gauges_do_not_shut_the_backend(name: str) -> None:
    """Tokens come, but SGLang has not renewed what runs and waits: 12 that have long ended would make K = 1."""
    renewals, page = Renewals(), replace(read_page(PAGES[name]), stamp=(1.0, 2.0))
    before = known(renewals.counted(page))
    later = replace(page, progress=(page.progress or 0) + 100)
    assert learn(before, after(renewals.counted(later), live=8), THETA) == before
    renewed = replace(later, running=8, waiting=0, stamp=(1.5, 2.0))
    assert learn(before, after(renewals.counted(renewed), live=8), THETA).fresh_at_ms == 1200
