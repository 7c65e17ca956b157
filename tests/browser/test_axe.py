"""Every page can be used by everyone: axe finds no serious fault, light or dark, and nothing is wider than a phone."""

from __future__ import annotations

from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, ViewportSize

from tests.browser.conftest import Enter
from tests.browser.stack import Stack
from tests.browser.views import views

GRAVE: Final = ("serious", "critical")
WIDE: Final = ViewportSize(width=1280, height=800)
PHONE: Final = ViewportSize(width=390, height=844)


# Rows of a table are alike: axe looks at the first ones only, which takes a tenth of the time.
FEW_ROWS: Final = "for (const row of document.querySelectorAll('tbody tr:nth-child(n+6)')) row.remove()"
COLOURS: Final = {"type": "rule", "values": ["color-contrast"]}  # all else is the same in each theme


def faults(page: Page, **options: Any) -> list[str]:
    """What is grave of what axe finds, with the first elements that are hit."""
    page.evaluate(FEW_ROWS)
    options = {"resultTypes": ["violations"]} | options
    found: dict[str, Any] = Axe().run(page, options=options).response
    return [
        f"{page.url}: {one['id']} ({one['help']}): " + " | ".join(node["html"][:160] for node in one["nodes"][:3])
        for one in found["violations"]
        if one["impact"] in GRAVE
    ]


# The longest contents that can be: each text and choice ends in a word of 256 letters, and charts have a wide window's
# width, as they have for a moment after it was made narrow. Returns how wide the page is then, and what sticks out.
LENGTHEN: Final = """() => {
  const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) if (texts.currentNode.data.trim()) texts.currentNode.data += "W".repeat(256);
  for (const drawing of document.querySelectorAll(".u-wrap")) drawing.style.width = "1280px";
  const isKept = (it) => it && (getComputedStyle(it).overflowX !== "visible" || isKept(it.parentElement));
  const out = [...document.querySelectorAll("main *")].filter(
    (it) => it.getBoundingClientRect().right > innerWidth + 1 && !isKept(it.parentElement));
  return [document.documentElement.scrollWidth, out.slice(0, 3).map((it) => it.cloneNode().outerHTML).join(" | ")];
}"""


def sticking_out(page: Page) -> list[str]:
    """What is wider than a phone: as it is, and with the longest contents."""
    page.set_viewport_size(PHONE)
    found: list[str] = []
    if (width := page.evaluate("document.documentElement.scrollWidth")) > PHONE["width"]:
        found.append(f"{page.url} is {width} px wide on a phone")
    width, elements = page.evaluate(LENGTHEN)
    if width > PHONE["width"]:
        found.append(f"{page.url} is {width} px wide on a phone if its contents are long: {elements}")
    page.set_viewport_size(WIDE)
    return found


@pytest.mark.timeout(240)
def test_every_view_can_be_used_in_light_and_dark_and_on_a_phone(enter: Enter, running: Stack) -> None:
    page = enter(color_scheme="light")
    found: list[str] = []
    for address in views(running.seeded).values():
        page.goto(address)
        found += faults(page)
        page.emulate_media(color_scheme="dark")
        found += [f"dark: {fault}" for fault in faults(page, runOnly=COLOURS)]
        page.emulate_media(color_scheme="light")
        found += sticking_out(page)
    assert found == []


def test_the_way_in_has_no_serious_fault(enter: Enter) -> None:
    page = enter()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in").wait_for()
    assert faults(page) == []
