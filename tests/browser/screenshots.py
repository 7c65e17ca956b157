"""Pictures of every view with the seed's data, into docs/images/admin/: `make screenshots`."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any, Final

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.conftest import FLAGS, chromium, sign_in
from tests.browser.operating import weigh
from tests.browser.stack import Stack, stack
from tests.browser.views import views

FOLDER: Final = Path(__file__).parents[2] / "docs" / "images" / "admin"
DARK: Final = ("overview", "fairness", "pool")
PHONE: Final = ("overview", "fairness")
SETTLE_MS: Final = 12_000  # so that dispatchers have written points, and gates are those of real scrapes
DRAWN_MS: Final = 600
HEIGHT_MOST: Final = 1200
COLOURS: Final = 128  # a quarter of the size


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with stack() as running, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium() or "/usr/bin/chromium", args=list(FLAGS))
        page = _window(browser, running)
        page.wait_for_timeout(SETTLE_MS)
        addresses = views(running.seeded) | {"rebalance-run": _run(page)}
        for name, address in addresses.items():
            _take(page, address, name)
        dark = _window(browser, running, color_scheme="dark")
        for name in DARK:
            _take(dark, addresses[name], f"{name}-dark")
        phone = _window(browser, running, viewport={"width": 390, "height": 844}, device_scale_factor=1)
        for name in PHONE:
            _take(phone, addresses[name], f"{name}-phone")
        browser.close()


def _run(page: Page) -> str:
    """A run that was weighed and is not applied yet."""
    weigh(page, 5_000)
    return page.url


def _window(browser: Browser, running: Stack, **options: Any) -> Page:
    settings = {"viewport": {"width": 1280, "height": 800}, "base_url": running.url, "timezone_id": "Europe/Berlin"}
    page = browser.new_context(**settings | options).new_page()
    sign_in(page, "ann")
    return page


def _take(page: Page, address: str, name: str) -> None:
    page.goto(address)
    page.wait_for_timeout(DRAWN_MS)
    whole = int(page.evaluate("document.documentElement.scrollHeight"))
    width = (page.viewport_size or {"width": 1280})["width"]
    clip = {"x": 0, "y": 0, "width": width, "height": min(whole, HEIGHT_MOST)}
    taken = page.screenshot(full_page=True, clip=clip)  # pyright: ignore[reportArgumentType]
    picture = Image.open(BytesIO(taken)).convert("RGB")
    picture = picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    picture.save(FOLDER / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
