"""The overview and a pool's page: what is wrong first, which limit binds, gates with their numbers, the history."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

from admin_ui.bridge import Stores
from fairlane.model import TierGate
from fairlane.trend import Point, Served, TierPoint
from tests.admin.page import Page, job
from tests.contract.acts import NOTHING_COUNTED, submit_all

POOLS = ("llama", "org/mistral:7b")


def text_of(html: str) -> str:
    """What a reader sees, in one line."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html)))


async def observe(stores: Stores) -> None:
    """As if an observer had been at work: a scrape that shut the KV gate, a round of steering, and its history."""
    queue = stores.queue
    pool = await queue.pools.by_name("llama")
    gates = {tier: TierGate(0, 1, "kv") for tier in pool.policy.tiers[1:]} | {"priority": TierGate(8, 8)}
    seen = {"kv": 0.97, "rooms": [1, 0.8, 0.7, 0.6], "waiting": 1, "token_ms": 31, "capacity": {"k": 8, "cap": 7}}
    await queue.observe(pool, "b1", gates, counted=NOTHING_COUNTED, seen=json.dumps(seen))
    at_ms = (await queue.inspect.load(pool)).now_ms
    thermostat = {"gamma": 0.25, "least": 0.1, "most": 3.0, "tail": 1.5, "samples": 900, "why": "held"}
    await queue.steer(pool, 0.25, json.dumps({"at_ms": at_ms, "gamma": 0.25, "rho": 0.5, "thermostat": thermostat}))
    tier = TierPoint(depth=7, oldest_ms=3_000, inflight=1, came=50, ended=25, tokens=1_000, waits={20: 25})
    point = Point(at_ms, 5.0, {"default": tier}, slots=8, busy=0.5, gamma=0.25, replicas=1)
    await queue.record(pool, point, Served(at_ms, 5.0, "requests", 0, 0, (), ()))


def test_the_pool_in_trouble_stands_first_and_says_what_is_wrong(page: Page) -> None:
    page.ask(observe)
    seen = page.get("/")
    assert seen.status_code == 200
    problems = text_of(seen.text.split('id="problems"')[1].split("</ul>")[0])
    assert problems.index("org/mistral:7b") < problems.index("llama")
    assert "Nobody observes this pool" in problems
    assert "1 dead job to look at." in problems
    assert "default waits: KV cache" in problems


def test_a_pool_s_row_has_its_oldest_its_depth_its_rates_and_its_waits(page: Page) -> None:
    page.ask(observe)
    default = text_of(page.get("/pools/llama").text.split('id="tier-default"')[1].split("</tr>")[0])
    for part in ("13", "10.0", "5.0", "1.2 s", "200"):  # waiting; in and out per second; p50; tokens per second
        assert f" {part} " in default, default
    assert "KV cache b1: KV cache 97 %, at most 95 % × room 0.80 = 76 %" in default


def test_each_backend_shows_its_gate_and_the_numbers_and_the_thermostat_its_reason(page: Page) -> None:
    """Case 6."""
    page.ask(observe)
    seen = page.get("/pools/llama").text
    gates = text_of(seen.split('id="gates-b1"')[1].split("</tr>")[0])
    assert "open 1 of 8 leases (cap 7 + θ 3)" in gates
    assert "KV cache 97 %, at most 95 % × room 0.60 = 57 %" in gates
    assert "never refused" in gates
    backend = text_of(seen.split('id="backend-b1"')[1].split("</tr>")[0])
    assert "1 of 8" in backend
    assert "31 ms" in backend
    thermostat = text_of(seen.split('id="thermostat-h"')[1])
    assert "0.25 per second, free → target 1" in thermostat
    assert "No step down while the oldest job has waited longer" in thermostat


def test_a_pool_whose_name_has_slashes_has_its_page_and_its_history(page: Page) -> None:
    for name in POOLS:
        assert page.get(f"/pools/{name}").status_code == 200
        assert page.get(f"/trend/{name}").status_code == 200
    assert page.get("/pools/nobody").status_code == 404
    assert page.get("/trend/llama?span=1y").status_code == 400


def test_the_history_is_drawn_from_its_points(page: Page) -> None:
    assert page.get("/trend/llama").json["at"] == []  # pyright: ignore[reportOptionalSubscript]
    page.ask(observe)
    for span, step in (("15m", 5), ("6h", 120), ("7d", 1800)):
        found = page.get(f"/trend/llama?span={span}").json
        assert found is not None
        assert (found["step"], len(found["at"]), found["tiers"]) == (step, 1, ["priority", "default", "flex", "batch"])
        series = {name: values[0] for name, values in found["series"].items()}
        assert (series["depth:default"], series["oldest:default"], series["depth:batch"]) == (7, 3.0, 0)
        assert (series["came"], series["ended"], series["tokens"], series["busy"]) == (10, 5, 200, 0.5)
        assert series["p50"] == pytest.approx(1.2, rel=0.2)


def test_only_who_may_act_is_offered_acts(page: Page) -> None:
    assert "/act/tier.pause" in page.get("/pools/llama").text
    assert "/act/backend.drain" in page.as_("olga").get("/pools/llama").text
    for user in ("vera", "otto"):  # a viewer, and one who sees Ann only
        seen = page.as_(user).get("/pools/llama")
        assert seen.status_code == 200
        assert "/act/" not in seen.text


def test_nobody_is_named_to_who_may_not_see_them(page: Page) -> None:
    page.ask(observe)
    otto = page.as_("otto")
    for path in ("/", "/pools/llama", "/trend/llama"):
        assert "bob" not in otto.get(path).text


def test_who_floods_is_named_and_linked_to_who_may_see_them(page: Page) -> None:
    async def flood(stores: Stores) -> None:
        pool = await stores.queue.pools.by_name("llama")
        await submit_all(stores.queue, pool, [job("bob", "flex")] * 120)

    page.ask(flood)
    seen = page.get("/").text
    assert re.search(r'<a href="/tenants/bob">bob</a> holds 1\d\d of 1\d\d waiting jobs\.', seen)
    otto = page.as_("otto").get("/").text
    assert "bob" not in otto
    assert re.search(r"One tenant holds 1\d\d of", otto)


def test_a_part_is_what_the_page_refreshes(page: Page) -> None:
    part = page.get("/", headers={"HX-Request": "true"}).text
    assert "<html" not in part
    assert 'id="problems"' in part
    assert "data-trend" not in part  # charts refresh themselves


def test_without_a_pool_the_page_says_how_to_make_one(page: Page) -> None:
    async def nothing(stores: Stores) -> None:
        key = f"{stores.queue.store.namespace}:{{acct}}:pools"
        await stores.queue.store.client.eval("redis.call('DEL', KEYS[1])", 1, key)

    page.ask(nothing)
    assert "fairlane pool add" in page.get("/").text
    assert "There is no pool yet." in page.get("/fairness").text
