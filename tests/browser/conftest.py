"""Real browser tests: one stack and one Chromium for all of them; each test has its own window, signed in."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.browser.seed_around import PASSWORD
from tests.browser.stack import Stack, stack
from tests.servers import required

FLAGS: Final = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE_MS: Final = 20_000
expect.set_options(timeout=PATIENCE_MS)
Enter = Callable[..., Page]


def chromium() -> str | None:
    """A browser on PATH, if one is installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")  # Playwright holds the thread's event loop as long as it runs: other tests need theirs
def browser() -> Iterator[Browser]:
    program = chromium()
    if program is None and not required("chromium"):
        pytest.skip("chromium is not installed; `make check` requires it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program or "/usr/bin/chromium", args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def running(browser: Browser) -> Iterator[Stack]:
    """Everything runs, with the seed's data. (The browser comes first: without one nothing need be started.)"""
    with stack() as running:
        yield running


@pytest.fixture
def enter(browser: Browser, running: Stack) -> Iterator[Enter]:
    """Signs somebody in: a page in a window of its own. What goes wrong in the browser fails the test."""
    windows: list[BrowserContext] = []
    faults: list[str] = []

    def enter(name: str = "ann", **options: Any) -> Page:
        window = browser.new_context(base_url=running.url, viewport={"width": 1280, "height": 800}, **options)
        windows.append(window)
        window.set_default_timeout(PATIENCE_MS)
        page = window.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if is_fault(said) else None)
        sign_in(page, name)
        return page

    yield enter
    for window in windows:
        window.close()
    assert faults == []


def is_fault(said: ConsoleMessage) -> bool:
    """Whether the console says that something went wrong, other than that a page that was asked for is not there."""
    return said.type == "error" and said.page is not None and said.location["url"] != said.page.url


def sign_in(page: Page, name: str) -> None:
    page.goto("/login")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("navigation", name="Main").wait_for()
