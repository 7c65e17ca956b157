"""What is said of a change before it is made: true, for each setting, and with a word of warning where it is due."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from admin_ui import limits
from admin_ui.actions.policy import as_of
from admin_ui.consequences import Change, boost_ms, destroys, rooms, sentences
from admin_ui.meaning import DEFAULTS, GROUPS, given
from admin_ui.reach import doubts
from fairlane.errors import InvalidRequest, NotFound
from fairlane.model import BackendCounts, Limits, Policy
from fairlane.queue import policies
from fairlane.standing import BackendView, PolicyChange, TenantStanding, TierLoad

OTHERS = {
    "tiers": "priority,default,night", "fairness": "tokens", "affinity": "prefix", "lease_ms": "1000",
    "stale_ms": "900", "valve_ms": "1000", "gamma": "2", "boost_max_ms": "100", "theta": "4,2,1", "reserve": "0.1",
    "decay": "1", "kv_most": "0.8", "slow_ms": "100", "result_ttl_ms": "5000", "dead_ttl_ms": "5000",
    "max_waiting_pool": "5", "max_waiting_tenant": "5",
}  # fmt: skip
NEW = BackendView(
    "b1", "up", BackendCounts(0, 0, 0), 0, 0, 0, 0, 0, 0, False, None, None, {}, {}, {}, "{}", None
)  # fmt: skip


def backend(name: str = "b1", **seen: Any) -> BackendView:
    """One that was scraped, and shows this."""
    return replace(NEW, name=name, seen=json.dumps({"kv": 0.1, "token_ms": None} | seen))


def told(policy: Policy, settings: Mapping[str, str], waiting: int = 0) -> str:
    new = policies.changed(policy, settings)
    tiers = [TierLoad(tier, waiting, None, 0) for tier in policy.tiers]
    return " ".join(sentences(Change(policy, new, tiers, []), list(settings)))


def test_every_setting_is_in_one_group_and_has_a_meaning() -> None:
    names = [setting.name for group in GROUPS for setting in group.settings]
    assert sorted(names) == sorted(policies.NAMES) == sorted(OTHERS) == sorted(DEFAULTS)
    assert all(one.what.endswith(".") and one.allowed and one.since for group in GROUPS for one in group.settings)


@pytest.mark.parametrize("name", policies.NAMES)
def test_a_change_of_any_setting_says_what_follows(name: str) -> None:
    assert given(Policy(), {name: OTHERS[name]}).keys() == {name}
    assert told(Policy(), {name: OTHERS[name]})
    assert told(policies.changed(Policy(), {name: OTHERS[name]}), {name: DEFAULTS[name]})


def test_what_is_the_same_in_other_words_is_no_change() -> None:
    assert not given(Policy(), {"reserve": " 0.20", "theta": "3, 2, 1", "slow_ms": "150.0", "gamma": "auto"})


def test_what_is_said_of_a_head_start_counts_from_what_holds() -> None:
    words = told(Policy(), {"theta": "4,2,0"})
    assert "Up to 4 jobs of the tier priority wait in each backend, 1 more than now." in words
    assert "Up to 0 jobs of the tier batch wait in each backend, 1 fewer than now." in words
    assert "default" not in words


def test_rooms_are_those_that_the_observer_decides_by() -> None:
    assert {tier: round(room, 3) for tier, room in rooms(Policy()).items()} == {
        "priority": 1.0, "default": 0.8, "flex": 0.713, "batch": 0.675,
    }  # fmt: skip
    assert rooms(Policy(tiers=("only",))) == {"only": 1.0}


def test_a_boost_is_bounded_and_nothing_without_gamma() -> None:
    assert boost_ms(Policy(), 0.0, 1.0) == 0.0
    assert boost_ms(Policy(boost_max_ms=500), 0.001, 0.1) == 500
    assert boost_ms(Policy(), 2.0, 0.5) == pytest.approx(229.3, abs=0.1)


def test_a_pinned_gamma_sets_the_thermostat_aside() -> None:
    assert "γ is pinned at 2/s: the thermostat no longer steers." in told(Policy(), {"gamma": "2"})
    assert "steers again" in told(Policy(gamma=2.0), {"gamma": "auto"})
    assert "Without a boost" in told(Policy(), {"gamma": "0"})


def test_a_bound_below_what_waits_is_warned_of() -> None:
    assert "Careful: so many wait already." in told(Policy(), {"max_waiting_pool": "40"}, waiting=10)
    assert "Careful" not in told(Policy(), {"max_waiting_pool": "41"}, waiting=10)


@pytest.mark.parametrize(
    ("settings", "backends", "warned"),
    [
        ({"slow_ms": 200.0}, [backend(token_ms=20.0)], set[str]()),
        ({"slow_ms": 201.0}, [backend(token_ms=20.0)], {"slow_ms"}),
        ({"slow_ms": 201.0}, [backend(token_ms=20.0), backend("b2", token_ms=25.0)], set[str]()),
        ({"slow_ms": 20.0}, [backend(token_ms=20.0)], {"slow_ms"}),
        ({"slow_ms": 9000.0}, [backend(kv=None)], {"kv_most"}),
        ({"kv_most": 1.0}, [], {"kv_most"}),
        ({"kv_most": 0.95}, [backend(kv=0.1)], set[str]()),
        ({"kv_most": 0.5}, [backend(kv=0.6)], {"kv_most"}),
        ({"theta": (8,)}, [backend(kv=0.1, capacity={"k": 8, "ramp": False})], set[str]()),
        ({"theta": (9,)}, [backend(kv=0.1, capacity={"k": 8, "ramp": False})], {"theta"}),
        ({"theta": (9,)}, [backend(kv=0.1, capacity={"k": 8, "ramp": True})], set[str]()),
        ({"stale_ms": 300}, [], {"stale_ms"}),
        ({}, [replace(NEW, seen="no JSON"), replace(NEW, seen="[]"), NEW], set[str]()),
    ],
)  # fmt: skip
def test_thresholds_are_doubted_by_what_backends_show(
    settings: dict[str, Any], backends: list[BackendView], warned: set[str]
) -> None:
    assert {one.setting for one in doubts(replace(Policy(), **settings), backends)} == warned


def test_only_a_threshold_that_keeps_work_from_a_backend_now_is_a_fault() -> None:
    shown = [backend(kv=0.6, token_ms=20.0)]
    shuts = {one.setting for one in doubts(replace(Policy(), slow_ms=20.0, kv_most=0.5), shown) if one.shuts}
    assert shuts == {"slow_ms", "kv_most"}
    never_reached = doubts(replace(Policy(), slow_ms=9_000.0, kv_most=1.0), shown)
    assert [one.shuts for one in never_reached] == [False, False]


def test_what_goes_at_once_is_said_to_be_destroyed() -> None:
    assert destroys(Policy(), Policy(dead_ttl_ms=1000))
    assert destroys(Policy(), Policy(tiers=("priority",)))
    assert not destroys(Policy(), Policy(dead_ttl_ms=10**9, theta=(9,)))


def test_a_policy_of_the_past_is_made_of_what_was_before_each_later_change() -> None:
    history = [
        PolicyChange(3, 0, "ann", {"theta": ("5", "6")}),
        PolicyChange(2, 0, "bob", {"theta": ("4", "5"), "reserve": ("0.2", "0.3")}),
        PolicyChange(1, 0, "ann", {"theta": ("3", "4"), "gone": ("1", "2")}),
    ]
    now = {"theta": "6", "reserve": "0.3"}
    assert as_of(now, 3, history, 2) == {"theta": "5", "reserve": "0.3"}
    assert as_of(now, 3, history, 1) == {"theta": "4", "reserve": "0.2"}
    assert as_of(now, 3, history, 0) == {"theta": "3", "reserve": "0.2"}
    for current, known, version in ((3, history, 3), (3, history, 4), (3, history[:2], 0)):
        with pytest.raises(NotFound):
            as_of(now, current, known, version)


# --- limits of tenants ------------------------------------------------------------------------------------------------


def test_only_limits_that_are_others_are_changed() -> None:
    now = limits.texts(Limits(weight=0.1 + 0.2))
    assert limits.changed(now, {"weight": now["weight"], "max_inflight": ""}) == {}
    assert limits.changed(now, {"weight": "2.0", "max_inflight": "08", "max_waiting": "none"}) == {
        "weight": (now["weight"], "2"),
        "max_inflight": ("none", "8"),
    }
    assert limits.changed({"tiers": "a,b"}, {"tiers": "b, a"}) == {}
    assert limits.changed({"tiers": "a,b"}, {"tiers": ""}) == {"tiers": ("a,b", "all")}
    with pytest.raises(InvalidRequest):
        limits.changed(now, {"weight": "none"})


def test_limits_below_what_there_is_say_what_becomes_of_it() -> None:
    places = {"llama": TenantStanding(Limits(), 7, 3, False, None)}
    words = " ".join(limits.sentences("ann", {"max_inflight": "2", "max_waiting": "7"}, places))
    assert "In llama 3 run now: they go on" in words
    assert "In llama 7 wait now: they stay" in words
    assert "In llama" not in " ".join(limits.sentences("ann", {"max_inflight": "3", "max_waiting": "8"}, places))


def test_limits_that_differ_between_pools_show_each_value() -> None:
    assert limits.in_pools([Limits(), Limits(2.0), Limits()])["weight"] == "1 / 2"
