"""What an operator does on the page, in short words: for the flows and the screenshots."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.browser.seed import FLOOD, LLAMA


def confirm(page: Page, button: str, typed: str = "") -> None:
    """Reads the dialog that an act opens, and says yes; returns when the page has said that it was done."""
    dialog = page.get_by_role("dialog")
    if typed:
        dialog.get_by_label(re.compile("to confirm")).fill(typed)
    dialog.get_by_role("button", name=button, exact=True).click()
    expect(page.get_by_role("status").first).to_be_visible()
    expect(dialog).to_be_hidden()


def row(page: Page, words: str) -> Locator:
    """The row of a table that has these words in its head."""
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=words))


def number_in(text: str | None) -> int:
    """The first number of a text, written with spaces between thousands."""
    found = re.search(r"\d[\d\u202f]*", text or "")
    assert found, text
    return int(found[0].replace("\u202f", ""))


def weigh(page: Page, most: int, tier: str = "batch") -> None:
    """Chooses so many of the flooding tenant's jobs for another tier; returns when the dry run is ready."""
    page.get_by_role("link", name="Rebalance").click()
    page.get_by_role("link", name="New run").click()
    page.get_by_label("Pool", exact=True).select_option(LLAMA)
    page.get_by_label("Tenant", exact=True).fill(FLOOD)
    page.get_by_label("At most").fill(str(most))
    page.get_by_label("The tier that they go to").select_option(tier)
    page.get_by_role("button", name="Choose and weigh").click()
    expect(page.get_by_role("button", name="Apply")).to_be_visible()


def figure(page: Page, label: str) -> int:
    """A number with its name, of those that a page starts with."""
    return number_in(page.locator(".figure").filter(has=page.get_by_text(label, exact=True)).locator("dd").inner_text())
