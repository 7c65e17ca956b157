"""An operator's day in a real browser: what floods is found, held and moved; what died is tried again, on record."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from playwright.sync_api import Page, expect

import admin_ui.actions  # noqa: F401  # registers them
from admin_ui.acting import ACTS
from tests.browser.conftest import Enter
from tests.browser.operating import confirm, figure, number_in, row, weigh
from tests.browser.seed import FLOOD, LLAMA
from tests.browser.stack import Stack
from tests.browser.views import views

MOVED: Final = 5_000


def test_a_tenant_that_floods_is_found_held_and_moved_and_all_is_on_record(enter: Enter) -> None:
    page = enter("olga")
    page.get_by_role("link", name="Fairness").click()
    flood = row(page, FLOOD)
    assert number_in(flood.get_by_role("cell").nth(4).inner_text()) > MOVED
    flood.get_by_role("button", name="Pause").click()
    confirm(page, "Pause")
    expect(page.get_by_text(re.compile(f"{FLOOD} was paused"))).to_be_visible()
    page.get_by_role("link", name="Fairness").click()
    expect(row(page, FLOOD)).to_contain_text("tenant paused")

    before = charted(page, "default")
    weigh(page, MOVED)
    assert figure(page, "Chosen") == MOVED
    assert figure(page, "Moved") == 0
    expect(row(page, FLOOD).first).to_be_visible()  # what it does to its wait
    run = page.url
    page.get_by_role("button", name="Apply").click()
    confirm(page, "Apply")
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    until(page, lambda: figure(page, "Moved") == MOVED)
    until(page, lambda: charted(page, "default") < before - MOVED * 0.9)
    assert charted(page, "batch") > MOVED

    page.goto(run)
    page.get_by_role("button", name="Undo").click()
    confirm(page, "Undo")
    expect(page.get_by_text("undone", exact=True)).to_be_visible()
    assert figure(page, "Brought back") == MOVED
    until(page, lambda: charted(page, "default") > before - MOVED * 0.1)

    page.get_by_role("link", name="Audit").click()
    for act in ("tenant.pause", "run.create", "run.apply", "run.undo"):
        entry = page.get_by_role("row").filter(has_text=act).first
        expect(entry).to_contain_text("olga")
        expect(entry).to_contain_text("done")
    page.goto(f"/tenants/{FLOOD}")
    row(page, LLAMA).get_by_role("button", name="Resume").click()
    confirm(page, "Resume")


def test_a_dead_job_is_requeued_and_its_payload_is_shown_only_on_record(enter: Enter, running: Stack) -> None:
    page = enter("olga")
    page.goto(f"/jobs/{running.seeded.dead}")
    expect(page.get_by_text("CUDA out of memory").first).to_be_visible()
    page.get_by_role("button", name="Requeue").click()
    confirm(page, "Requeue the job")
    page.get_by_role("link", name="Audit").click()
    expect(page.get_by_role("row").filter(has_text="job.requeue").first).to_contain_text(running.seeded.dead)


def test_a_webhook_is_sent_again_and_arrives(enter: Enter, running: Stack) -> None:
    page = enter("olga")
    page.goto(f"/webhooks/deliveries/{running.seeded.failed_delivery}")
    page.get_by_role("button", name="Send again").click()
    confirm(page, "Send again")
    until(page, lambda: running.seeded.failed_delivery in running.received)
    expect(page.get_by_text("delivered", exact=True).first).to_be_visible()
    page.get_by_role("link", name="Audit").click()
    expect(page.get_by_role("row").filter(has_text="webhook.resend").first).to_contain_text("olga")


def test_a_viewer_is_offered_nothing_that_changes_anything(enter: Enter, running: Stack) -> None:
    page = enter("vera")
    offered: list[str] = []
    for address in views(running.seeded).values():
        shown = page.request.get(address).text()
        offered += [f"{address}: {link}" for link in re.findall(r"/act/[\w.]+", shown)]
        offered += [f"{address}: {form}" for form in re.findall(r'<form method="post" action="([^"]+)"', shown)]
    assert set(offered) == {f"{address}: /logout" for address in views(running.seeded).values()}


def test_a_viewer_is_refused_every_act_by_request(enter: Enter) -> None:
    page = enter("vera")
    token = page.locator("input[name=csrf_token]").first.input_value()
    fields: dict[str, str | float | bool] = {"csrf_token": token, "param.pool": LLAMA, "param.tenant": FLOOD}
    assert ACTS
    for name in ACTS:
        assert page.request.get(f"/act/{name}?pool={LLAMA}&tenant={FLOOD}").status == 403, name
        assert page.request.post(f"/act/{name}", form=fields, headers={"referer": page.url}).status == 403, name


def charted(page: Page, tier: str) -> int:
    """The newest number of waiting jobs of a tier, as the pool's chart tells it to a screen reader."""
    if not page.url.endswith(f"/pools/{LLAMA}"):
        page.goto(f"/pools/{LLAMA}")
    chart = page.get_by_role("img", name=re.compile(r"^Waiting jobs, newest:"))
    told = re.search(rf"{tier} ([\d.]+)(K?)", chart.get_attribute("aria-label") or "")
    assert told
    return round(float(told[1]) * (1000 if told[2] else 1))


def until(page: Page, so: Callable[[], bool], patience_s: int = 20) -> None:
    """Looks again and again, while the page refreshes itself."""
    for _ in range(10 * patience_s):
        if so():
            return
        page.wait_for_timeout(100)
    raise AssertionError("it did not happen in time")
