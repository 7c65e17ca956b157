"""The fairness page: who waits how long, who got what, and which limit binds each."""

from __future__ import annotations

import json
import re

from admin_ui.bridge import Stores
from fairlane.model import Limits
from fairlane.trend import Point, Served, ServedTenant, ServiceGap
from tests.admin.page import Page
from tests.admin.test_overview import text_of


async def serve(stores: Stores) -> None:
    """Of the last minute: Ann got most, and led Bob, who has one of one job in flight."""
    queue = stores.queue
    pool = await queue.pools.by_name("llama")
    await queue.set_limits(pool, "bob", Limits(weight=3, max_inflight=1))
    at_ms = (await queue.inspect.load(pool)).now_ms
    tenants = (ServedTenant("ann", 30, 900, 30.0, 20.0), ServedTenant("bob", 10, 100, 10.0, 20.0))
    served = Served(at_ms, 60, "requests", 40, 1_000, tenants, (ServiceGap("default", 20.0, "ann", "bob"),))
    await queue.record(pool, Point(at_ms, 5, {}), served)
    await queue.steer(pool, None, json.dumps({"at_ms": at_ms, "jain": 0.9, "compared": 2}))


def row(page: Page, tenant: str, query: str = "") -> str:
    seen = page.get(f"/fairness?pool=llama{query}")
    assert seen.status_code == 200
    return text_of(seen.text.split(f'id="tenant-{tenant}"')[1].split("</tr>")[0])


def test_each_tenant_has_its_waits_its_share_and_what_binds_it(page: Page) -> None:
    page.ask(serve)
    ann, bob = row(page, "ann"), row(page, "bob")
    assert re.search(r"· [\d.]+ m?s · · 12 0 1 25 % 75.0 % 30 jobs, 900 tokens 150 % \+10.0", ann), ann
    assert re.search(r" 3 1 3 75 % 25.0 % 10 jobs, 100 tokens 50 % -10.0 concurrency 1 run, at most 1", bob), bob
    seen = text_of(page.get("/fairness?pool=llama").text)
    assert "Largest service gap 20.0 ann before bob, default" in seen
    assert "Jain's index 0.900" in seen
    assert "Waits the most ann 12 waiting" in seen
    assert "Runs the most bob 1 in flight" in seen


def test_tenants_stand_in_the_order_asked_for(page: Page) -> None:
    page.ask(serve)

    def order(by: str) -> list[str]:
        return re.findall(r'id="tenant-(\w+)"', page.get(f"/fairness?pool=llama&by={by}").text)

    assert order("waiting") == order("service") == ["ann", "bob"]
    assert order("inflight") == order("behind") == ["bob", "ann"]
    assert page.get("/fairness?by=name").status_code == 400


def test_a_pause_binds_and_can_be_undone_from_its_row(page: Page) -> None:
    page.act("tenant.pause", pool="llama", tenant="ann")
    ann = page.get("/fairness?pool=llama").text.split('id="tenant-ann"')[1].split("</tr>")[0]
    assert "tenant paused" in ann
    assert "/act/tenant.resume" in ann


def test_who_may_see_some_tenants_sees_their_rows_and_no_other_name(page: Page) -> None:
    page.ask(serve)
    seen = page.as_("otto").get("/fairness?pool=llama").text
    assert 'id="tenant-ann"' in seen
    assert "bob" not in seen
    assert "ann before another tenant" in seen


def test_without_anybody_to_compare_with_there_is_no_index(page: Page) -> None:
    async def alone(stores: Stores) -> None:
        pool = await stores.queue.pools.by_name("llama")
        await stores.queue.steer(pool, None, json.dumps({"at_ms": 0, "jain": 1.0, "compared": 0}))

    page.ask(alone)
    assert "Jain's index – nobody to compare with" in text_of(page.get("/fairness?pool=llama").text)


def test_a_pool_that_is_not_there_is_not_found(page: Page) -> None:
    assert page.get("/fairness?pool=nobody").status_code == 404
    assert page.get("/fairness").status_code == 200
