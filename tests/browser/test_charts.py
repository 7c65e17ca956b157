"""Charts show the history, and move while one looks; what is refreshed around them leaves them alone."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import Enter
from tests.browser.seed import LLAMA


def waiting(page: Page) -> str:
    """What a screen reader hears of the first chart: its newest numbers."""
    chart = page.locator(".chart").first
    expect(chart).to_have_attribute("aria-label", re.compile(r"^Waiting jobs, newest: priority \d+"))
    return chart.get_attribute("aria-label") or ""


def test_charts_are_drawn_and_move_while_one_looks(enter: Enter) -> None:
    page = enter()
    page.goto(f"/pools/{LLAMA}")
    before = waiting(page)
    expect(page.locator(".chart canvas")).to_have_count(8)
    canvas = page.locator(".chart canvas").first.element_handle()
    expect(page.locator(".chart").first).not_to_have_attribute("aria-label", before, timeout=30_000)
    assert canvas.evaluate("it => it.isConnected"), "a refresh draws on, and does not begin anew"


def test_a_chart_of_seven_days_has_a_week_behind_it(enter: Enter) -> None:
    page = enter()
    page.goto(f"/pools/{LLAMA}")
    page.get_by_role("link", name="7 d").click()
    expect(page.get_by_role("link", name="7 d")).to_have_attribute("aria-current", "true")
    waiting(page)
    expect(page.locator(".chart canvas")).to_have_count(8)
    days = page.evaluate(
        "async () => { const {at} = await (await fetch(document.querySelector('.chart').dataset.trend)).json();"
        " return (at.at(-1) - at[0]) / 86400 }"
    )
    assert 6 < days <= 7


def test_in_the_dark_lines_have_other_colours(enter: Enter) -> None:
    page = enter(color_scheme="light")
    page.goto(f"/pools/{LLAMA}")
    waiting(page)
    marker = page.locator(".u-marker").nth(1)
    light = marker.evaluate("it => getComputedStyle(it).borderTopColor")
    page.get_by_role("button", name="Switch between light and dark").click()
    expect(marker).not_to_have_css("border-top-color", light)
