"""Settings of pools: each change says what follows, is checked where it was typed, kept, and taken back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from werkzeug.test import TestResponse

from admin_ui.meaning import short
from fairlane.audit import Entry
from fairlane.errors import IllegalTransition
from fairlane.model import BackendCounts, BackendSpec, Policy, TierGate
from fairlane.queue import policies
from fairlane.queue.pools import Pool
from fairlane.standing import Overview
from tests.admin.page import Page
from tests.admin.together import is_true, together

ORG = "org/mistral:7b"


def pool(page: Page, name: str = "llama") -> Pool:
    async def read(stores: Any) -> Pool:
        known = await stores.queue.pools.by_name(name)
        return await stores.queue.pools.read(known.code)

    return page.ask(read)


def overview(page: Page) -> Overview:
    known = pool(page)
    return page.ask(lambda stores: stores.queue.inspect.overview(known))


def last(page: Page) -> Entry:
    return page.ask(lambda stores: stores.audit.read()).entries[0]


def asks(page: Page, act: str, **params: object) -> str:
    """The confirmation of an act."""
    answer = page.get(f"/act/{act}", query_string={name: str(value) for name, value in params.items()})
    assert answer.status_code == 200, answer.text
    return answer.text


def fill_in(page: Page, group: str, name: str = "llama", **settings: str) -> TestResponse:
    return page.get(f"/settings/{name}", query_string={"change": group, **settings})


def shows(page: Page, seen: dict[str, Any]) -> None:
    """The backend b1 of llama was scraped, and showed this."""

    async def write(stores: Any) -> None:
        known = await stores.queue.pools.by_name("llama")
        gates = {tier: TierGate(100, 100) for tier in known.policy.tiers}
        await stores.queue.observe(known, "b1", gates, counted=BackendCounts(0, 0, 0), seen=json.dumps(seen))

    page.ask(write)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_every_setting_is_shown_with_its_meaning_and_its_default(page: Page) -> None:
    text = page.get("/settings/llama").text
    for name in Policy.__dataclass_fields__:
        assert f'id="setting-{name}"' in text
    assert "3600000" in text
    assert "1.0 h" in text


def test_all_pools_are_listed_and_names_with_slashes_lead_on(page: Page) -> None:
    assert f'href="/settings/{ORG}"' in page.get("/settings").text
    assert ORG in page.get(f"/settings/{ORG}").text


def test_a_pool_that_is_not_there_is_not_found(page: Page) -> None:
    assert page.get("/settings/nothing").status_code == 404
    assert page.get("/settings/llama?change=nothing").status_code == 400


def test_a_viewer_sees_the_settings_and_no_way_to_change_them(page: Page) -> None:
    text = page.as_("vera").get("/settings/llama").text
    assert 'id="setting-theta"' in text
    assert "/act/" not in text
    assert "change=" not in text
    assert page.as_("vera").get("/settings/llama?change=heads").status_code == 404


def test_who_sees_only_some_tenants_sees_no_backends_and_changes_nothing(page: Page) -> None:
    otto = page.as_("otto")
    text = otto.get("/settings/llama").text
    assert 'id="setting-theta"' in text
    assert "http://b1:8000" not in text
    assert "/act/" not in text
    kept = otto.get("/settings.json/llama").json
    assert kept is not None
    assert set(kept) == {"pool", "version", "policy"}


def test_settings_are_exported_as_json_without_what_is_secret_in_an_address(page: Page) -> None:
    spec = BackendSpec("http://user:secret@gpu:9000/v1?token=secret", slots=8, key_env="GPU_KEY")

    async def add(stores: Any) -> None:
        await stores.queue.set_backend(await stores.queue.pools.by_name("llama"), "gpu:9000", "add", spec=spec)

    page.ask(add)
    page.act("policy.set", pool="llama", theta="4,2,1")
    answer = page.get("/settings.json/llama")
    assert 'filename="settings-llama.json"' in answer.headers["Content-Disposition"]
    kept = answer.json
    assert kept is not None
    assert "secret" not in answer.text
    assert kept["policy"]["theta"] == "4,2,1"
    assert kept["history"][0]["changes"] == {"theta": ["3,2,1", "4,2,1"]}
    assert {
        "name": "gpu:9000", "state": "up", "url": "http://gpu:9000/v1", "slots": 8, "key_env": "GPU_KEY",
    } in kept["backends"]  # fmt: skip
    assert "secret" not in page.get("/settings/llama").text


# --- changing the policy ----------------------------------------------------------------------------------------------


def test_only_what_is_another_value_is_sent_on_to_the_confirmation(page: Page) -> None:
    answer = fill_in(page, "heads", theta="4,2,1", reserve="0.2", decay="2.5")
    assert answer.status_code == 303
    text = page.get(answer.location).text
    assert "Up to 4 jobs of the tier priority wait in each backend, 1 more than now." in text
    assert "<td>3, 2, 1</td><td>4, 2, 1</td>" in text
    assert "reserve" not in text
    assert pool(page).version == 0


def test_a_value_that_makes_no_sense_is_said_at_its_field(page: Page) -> None:
    answer = fill_in(page, "heads", theta="1,2,3", reserve="0.2", decay="2.5")
    assert answer.status_code == 400
    field, _, rest = answer.text.partition('value="1,2,3"')
    assert "none larger than the one before it" in rest
    assert 'aria-invalid="true"' in rest
    assert 'aria-invalid="true"' not in field


def test_a_form_that_changes_nothing_says_so(page: Page) -> None:
    assert "Nothing here differs" in fill_in(page, "heads", theta="3,2,1").text


def test_a_change_holds_and_the_audit_and_the_history_say_what_was_before(page: Page) -> None:
    answer = page.as_("olga").act("policy.set", pool="llama", theta="4,2,1", reserve="0.3")
    assert answer.status_code == 303
    assert pool(page).policy.theta == (4, 2, 1)
    entry = last(page)
    assert (entry.who, entry.act, entry.outcome) == ("olga", "policy.set", "done")
    assert entry.before == {"theta": "3, 2, 1", "reserve": "0.2"}
    assert entry.after == {"theta": "4, 2, 1", "reserve": "0.3"}
    text = page.get("/settings/llama").text
    assert "<td>olga</td>" in text
    assert "3,2,1 → 4,2,1" in text


def test_a_change_that_cannot_be_is_refused_and_told_in_the_audit(page: Page) -> None:
    """A tier that jobs wait in does not go."""
    tiers = "priority,flex,batch"
    text = asks(page, "policy.set", pool="llama", tiers=tiers)
    assert "Now 12 wait" in text or "Now 13 wait" in text
    answer = page.act("policy.set", {"typed": "llama"}, pool="llama", tiers=tiers)
    assert answer.status_code == 409
    assert "queued jobs in default" in answer.text
    assert last(page).outcome == "illegal_transition"
    assert pool(page).version == 0


def test_a_change_that_destroys_asks_for_the_name(page: Page) -> None:
    answer = page.act("policy.set", pool="llama", dead_ttl_ms="1000")
    assert answer.status_code == 400
    assert pool(page).version == 0
    assert page.act("policy.set", {"typed": "llama"}, pool="llama", dead_ttl_ms="1000").status_code == 303
    assert pool(page).policy.dead_ttl_ms == 1000


def test_an_address_that_was_made_up_changes_nothing(page: Page) -> None:
    made_up: list[dict[str, str]] = [{"theta": "x"}, {"nonsense": "1"}, {"valve_ms": "0"}]
    for params in made_up:
        assert page.act("policy.set", pool="llama", **params).status_code == 400
    assert page.act("policy.set", pool="llama").status_code == 409
    assert pool(page).version == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"theta": "4,2,1"}, {"theta": "5,2,1"}),
        ({"theta": "4,2,1"}, {"theta": "4,2,1"}),
        ({"theta": "4,2,1"}, {"reserve": "0.3"}),
        ({"theta": "4,2,1", "reserve": "0.3"}, {"reserve": "0.4", "decay": "1"}),
    ],
)
def test_of_two_who_change_a_policy_at_once_the_audit_says_what_each_found(
    page: Page, one: dict[str, str], other: dict[str, str]
) -> None:
    start = settings(page)
    entries = together(page, "policy.set", {"pool": "llama"} | one, {"pool": "llama"} | other)
    assert is_true(entries, start, settings(page))
    assert [entry.outcome for entry in entries].count("done") == pool(page).version


def test_a_policy_that_was_changed_since_it_was_looked_at_stays(page: Page) -> None:
    known = pool(page)
    page.act("policy.set", pool="llama", theta="4,2,1")
    with pytest.raises(IllegalTransition):
        page.ask(lambda stores: stores.queue.set_policy(known, {"reserve": 0.3}, by="olga", version=known.version))
    assert pool(page).version == known.version + 1


def settings(page: Page) -> dict[str, str]:
    """The policy of llama, as proposals have it."""
    return {name: text.replace(",", ", ") for name, text in short(policies.texts(pool(page).policy)).items()}


def test_gamma_is_pinned_and_freed(page: Page) -> None:
    text = asks(page, "policy.pin_gamma", pool="llama")
    assert "The thermostat no longer steers" in text
    refused = page.act("policy.pin_gamma", {"gamma": "-1"}, pool="llama")
    assert refused.status_code == 400
    assert 'aria-invalid="true"' in refused.text
    page.act("policy.pin_gamma", {"gamma": "2"}, pool="llama")
    assert pool(page).policy.gamma == 2.0
    assert (last(page).before, last(page).after) == ({"gamma": "auto"}, {"gamma": "2"})
    assert "γ is pinned" in page.get("/settings/llama").text
    page.act("policy.free_gamma", pool="llama")
    assert pool(page).policy.gamma is None
    assert page.act("policy.free_gamma", pool="llama").status_code == 409


def test_the_policy_goes_back_to_any_entry_of_its_history(page: Page) -> None:
    for theta in ("4,2,1", "5,2,1", "6,2,1"):
        page.act("policy.set", pool="llama", theta=theta)
    page.act("policy.set", pool="llama", reserve="0.3")
    assert 'href="/act/policy.revert?pool=llama&amp;version=0"' in page.get("/settings/llama").text
    page.act("policy.revert", pool="llama", version="1")
    assert (pool(page).policy.theta, pool(page).policy.reserve) == ((4, 2, 1), 0.2)
    assert last(page).before == {"theta": "6, 2, 1", "reserve": "0.3"}
    page.act("policy.revert", pool="llama", version="4")
    assert (pool(page).policy.theta, pool(page).policy.reserve) == ((6, 2, 1), 0.3)
    page.act("policy.revert", pool="llama", version="0")
    assert pool(page).policy == Policy(stale_ms=3_600_000)


def test_what_is_not_in_the_history_is_not_gone_back_to(page: Page) -> None:
    page.act("policy.set", pool="llama", theta="4,2,1")
    for version in ("1", "7", "x", "-1"):
        assert page.act("policy.revert", pool="llama", version=version).status_code in (400, 404)
    assert pool(page).version == 1


# --- thresholds that no backend reaches (cases.md 6) ------------------------------------------------------------------


def test_a_threshold_out_of_reach_is_warned_of_before_and_after(page: Page) -> None:
    shows(page, {"kv": 0.4, "token_ms": 20.0, "capacity": {"k": 8, "ramp": False}})
    assert "always open" not in asks(page, "policy.set", pool="llama", slow_ms="180")
    assert "b1, shows 20 ms. This gate is always open." in asks(page, "policy.set", pool="llama", slow_ms="5000")
    assert "the queue forms in the backends" in asks(page, "policy.set", pool="llama", theta="9,2")
    page.act("policy.set", pool="llama", slow_ms="5000")
    text = page.get("/settings/llama").text
    assert "This gate is always open." in text
    assert "slow_ms" in page.get("/settings").text


def test_a_threshold_that_shuts_backends_now_is_warned_of(page: Page) -> None:
    shows(page, {"kv": 0.4, "token_ms": 20.0, "capacity": {}})
    assert "b1 is slower than 10 ms a token now (20 ms)" in asks(page, "policy.set", pool="llama", slow_ms="10")
    assert "b1 has more in use now" in asks(page, "policy.set", pool="llama", kv_most="0.3")


def test_a_threshold_on_what_no_backend_says_is_warned_of(page: Page) -> None:
    shows(page, {"kv": None, "token_ms": None, "capacity": {}})
    assert "No backend of this pool says how full" in asks(page, "policy.set", pool="llama", kv_most="0.9")
    assert "No backend of this pool says how full" in page.get("/settings/llama").text


# --- pause ------------------------------------------------------------------------------------------------------------


def test_a_pool_and_a_tier_are_paused_and_resumed(page: Page) -> None:
    olga = page.as_("olga")
    assert "wait until it is resumed" in asks(olga, "pool.pause", pool="llama")
    olga.act("pool.pause", pool="llama")
    assert overview(page).paused
    assert (last(page).before, last(page).after) == ({"state": "runs"}, {"state": "paused"})
    assert olga.act("pool.pause", pool="llama").status_code == 409
    olga.act("tier.pause", pool="llama", tier="default")
    assert "Tiers that are paused by themselves stay so: default" in asks(olga, "pool.resume", pool="llama")
    assert "the whole pool is paused" in asks(olga, "tier.resume", pool="llama", tier="default")
    olga.act("pool.resume", pool="llama")
    olga.act("tier.resume", pool="llama", tier="default")
    view = overview(page)
    assert not view.paused
    assert not any(tier.paused for tier in view.tiers)


def test_a_tier_that_is_not_there_is_not_paused(page: Page) -> None:
    assert page.act("tier.pause", pool="llama", tier="nothing").status_code == 404
    assert page.act("tier.pause", pool="llama").status_code == 400


# --- backends ---------------------------------------------------------------------------------------------------------


def test_a_backend_is_added_drained_undrained_and_removed(page: Page) -> None:
    new = {"url": "http://gpu3:8000", "family": "vllm", "slots": "8", "key_env": ""}
    page.act("backend.add", new, pool="llama")
    assert last(page).after == {"url": "http://gpu3:8000", "family": "vllm", "slots": 8}
    assert 'id="backend-gpu3:8000"' in page.get("/settings/llama").text
    olga = page.as_("olga")
    olga.act("backend.drain", pool="llama", backend="gpu3:8000")
    assert (last(page).before, last(page).after) == ({"state": "up"}, {"state": "draining"})
    assert olga.act("backend.drain", pool="llama", backend="gpu3:8000").status_code == 409
    olga.act("backend.undrain", pool="llama", backend="gpu3:8000")
    assert olga.act("backend.remove", {"typed": "gpu3:8000"}, pool="llama", backend="gpu3:8000").status_code == 403
    assert page.act("backend.remove", pool="llama", backend="gpu3:8000").status_code == 400
    page.act("backend.remove", {"typed": "gpu3:8000"}, pool="llama", backend="gpu3:8000")
    assert last(page).before == {"state": "up", "url": "http://gpu3:8000", "family": "vllm", "slots": 8}
    assert "gpu3" not in page.get("/settings.json/llama").text


def test_a_backend_that_works_is_not_removed(page: Page) -> None:
    answer = page.act("backend.remove", {"typed": "b1"}, pool="llama", backend="b1")
    assert answer.status_code == 409
    assert "Drain it first" in answer.text


def test_draining_the_last_backend_says_that_everything_waits(page: Page) -> None:
    assert "no other backend of llama is up" in asks(page, "backend.drain", pool="llama", backend="b1")


def test_a_backend_that_is_down_is_reopened(page: Page) -> None:
    assert page.act("backend.reopen", pool="llama", backend="b1").status_code == 409

    async def shut(stores: Any) -> None:
        await stores.queue.set_backend(await stores.queue.pools.by_name("llama"), "b1", "down")

    page.ask(shut)
    page.as_("olga").act("backend.reopen", pool="llama", backend="b1")
    assert (last(page).before, last(page).after) == ({"state": "down"}, {"state": "up"})


def test_a_secret_in_an_address_is_refused_before_anything_keeps_it(page: Page) -> None:
    for url in ("http://user:secret@gpu:1", "http://gpu:1?key=secret"):
        assert page.act("backend.add", {"url": url}, pool="llama").status_code == 400
    kept = page.ask(lambda stores: stores.audit.read())
    assert "secret" not in str(kept.entries)


def test_what_is_no_backend_is_said_at_its_field(page: Page) -> None:
    wrong = {"url": "ftp://gpu"}, {"url": "http://gpu", "slots": "many"}, {"url": "http://["}, {"url": ""}
    for values in wrong:
        answer = page.act("backend.add", values, pool="llama")
        assert answer.status_code == 400
        assert 'aria-invalid="true"' in answer.text


# --- removing a pool --------------------------------------------------------------------------------------------------


def test_a_pool_goes_only_when_nothing_needs_it_and_its_name_was_typed(page: Page) -> None:
    answer = page.act("pool.remove", {"typed": "llama"}, pool="llama")
    assert answer.status_code == 409
    assert "b1" in answer.text
    page.act("backend.remove", {"typed": "m1"}, pool=ORG, backend="m1")
    assert page.as_("olga").act("pool.remove", {"typed": ORG}, pool=ORG).status_code == 403
    assert page.act("pool.remove", pool=ORG).status_code == 400
    assert page.act("pool.remove", {"typed": ORG}, pool=ORG).status_code == 303
    assert [one.name for one in page.ask(lambda stores: stores.queue.pools.all())] == ["llama"]
    assert page.get("/settings").status_code == 303


# --- who may ----------------------------------------------------------------------------------------------------------

POOL_WIDE: list[tuple[str, dict[str, str]]] = [
    ("pool.pause", {}), ("pool.resume", {}), ("tier.pause", {"tier": "default"}), ("tier.resume", {"tier": "default"}),
    ("policy.set", {"theta": "4,2,1"}), ("policy.pin_gamma", {}), ("policy.free_gamma", {}),
    ("policy.revert", {"version": "0"}), ("backend.drain", {"backend": "b1"}), ("backend.undrain", {"backend": "b1"}),
    ("backend.reopen", {"backend": "b1"}),
]  # fmt: skip


def test_what_concerns_all_is_nothing_for_a_viewer_or_for_who_sees_only_some_tenants(page: Page) -> None:
    vera, otto = page.as_("vera"), page.as_("otto")
    for act, params in POOL_WIDE:
        assert vera.act(act, pool="llama", **params).status_code == 403
        assert otto.act(act, pool="llama", **params).status_code == 403
    assert pool(page).version == 0
    kept = page.ask(lambda stores: stores.audit.read()).entries
    assert {entry.act for entry in kept} == {"login.once"}
