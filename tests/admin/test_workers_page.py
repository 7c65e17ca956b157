"""Dispatchers on the page: whether they are heard, what they hold, and how one is drained."""

from __future__ import annotations

import json

from admin_ui.bridge import Stores
from tests.admin.page import Page


def heard(page: Page, name: str = "d1", inflight: int = 1, pool: str = "llama") -> bool:
    """A heartbeat; whether the dispatcher was told to drain."""
    info = json.dumps({"host": "box-7", "pid": 4242, "inflight": inflight, "roles": ["observer"]})

    async def beat(stores: Stores) -> bool:
        return await stores.queue.beat(await stores.queue.pools.by_name(pool), name, info)

    return page.ask(beat)


def test_dispatchers_are_listed_with_what_they_do(page: Page) -> None:
    heard(page)
    heard(page, "d2", 0)
    shown = page.get("/workers").text
    for word in ("d1", "d2", "box-7", "4242", "observer", "working"):
        assert word in shown


def test_a_pool_without_a_dispatcher_is_named(page: Page) -> None:
    heard(page)
    shown = page.get("/workers").text
    assert "No dispatcher serves" in shown
    assert ">org/mistral:7b</a>: its jobs wait" in shown
    heard(page, pool="org/mistral:7b")
    assert "No dispatcher serves" not in page.get("/workers").text


def test_what_a_dispatcher_holds_is_shown(page: Page) -> None:
    heard(page)
    shown = page.get("/workers/d1").text
    assert ">bob<" in shown, "his job is leased"
    assert "b1" in shown
    assert page.get("/workers/d9").status_code == 404


def test_who_sees_only_ann_sees_no_job_of_bobs(page: Page) -> None:
    heard(page)
    shown = page.as_("otto").get("/workers/d1").text
    assert "bob" not in shown
    assert "It holds nothing of your tenants" in shown
    assert page.as_("otto").act("dispatcher.drain", dispatcher="d1").status_code == 403


def test_a_dispatcher_is_drained(page: Page) -> None:
    heard(page)
    form = page.get("/act/dispatcher.drain?dispatcher=d1").text
    assert "It is the only dispatcher of llama" in form
    assert not heard(page), "a look changes nothing"
    page.as_("olga").act("dispatcher.drain", dispatcher="d1")
    assert heard(page)
    assert "draining" in page.get("/workers").text
    assert page.act("dispatcher.drain", dispatcher="d1").status_code == 409
    assert page.act("dispatcher.drain", dispatcher="d9").status_code == 404


def test_a_viewer_drains_nothing(page: Page) -> None:
    heard(page)
    vera = page.as_("vera")
    assert "dispatcher.drain" not in vera.get("/workers").text
    assert vera.act("dispatcher.drain", dispatcher="d1").status_code == 403
    assert vera.post("/act/dispatcher.drain", {"param.dispatcher": "d1"}).status_code == 403
    assert not heard(page)
