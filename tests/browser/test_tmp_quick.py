from __future__ import annotations
import json
import pytest
from tests.browser.conftest import Enter
from tests.browser.operating import confirm, weigh
from playwright.sync_api import expect
pytestmark = pytest.mark.xdist_group("browser")

def test_tmp(enter: Enter) -> None:
    one, two = enter("olga"), enter("olga")
    weigh(one, 50)
    two.goto(one.url)
    one.locator("#live-switch").click()
    one.get_by_role("button", name="Apply").focus()
    two.get_by_role("button", name="Discard").click()
    confirm(two, "Abort")
    one.locator("#live-switch").click()
    one.get_by_role("button", name="Apply").click() if one.get_by_role("button", name="Apply").count() else None
    one.wait_for_timeout(600)
    one.screenshot(path="/tmp/q_dialog.png")
    print(one.get_by_role("dialog").inner_text() if one.get_by_role("dialog").count() else "no dialog")
    one.get_by_role("dialog").get_by_text("Close").click()
    expect(one.get_by_role("button", name="Apply")).to_have_count(0, timeout=1500)
    for path in ("/jobs", "/audit"):
        one.goto(path)
        print(path, one.evaluate("[...document.querySelectorAll('.filters input,.filters select,.filters button')].map(e=>[e.tagName,Math.round(e.getBoundingClientRect().top),Math.round(e.getBoundingClientRect().height)])"))
        print([round(x) for x in one.evaluate("[...document.querySelectorAll('.places a')].map(e=>e.getBoundingClientRect().left)")])
        one.screenshot(path=f"/tmp/q{path.replace('/','_')}.png")
