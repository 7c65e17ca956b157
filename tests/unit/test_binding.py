"""Which limit binds, and what a gate says in words: the first that holds, with the numbers it was decided on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from admin_ui.binding import tenant_binding, tier_binding, tier_gates
from admin_ui.gating import Gate, best, gates_of
from admin_ui.glance import glance_of
from admin_ui.shares import heat
from fairlane.model import BackendCounts, GateReason, Limits, Policy, TierGate
from fairlane.queue.pools import Pool
from fairlane.standing import BackendView, Overview, Standing, TierView

NOW = 1_000_000
SEEN = {
    "running": 16, "waiting": 2, "kv": 0.91, "token_ms": 161.0, "rooms": [1.0, 0.8, 0.71, 0.68],
    "capacity": {"k": 16, "cap": 14},
}  # fmt: skip
POOL = Pool("llama", "abcd", "fl:{abcd}:", Policy())


def backend(
    limit: int = 18, why: GateReason = "full", live: int = 18, *, seen: dict[str, Any] | None = None, **changes: Any
) -> BackendView:
    gates = {tier: TierGate(limit, 5, why) for tier in POOL.policy.tiers}
    view = BackendView(
        "b1", "up", BackendCounts(live, 0, 0), 0, 0, 0, 0, 0, 0, False, None, NOW - 100, gates, {}, {},
        json.dumps(SEEN if seen is None else seen), None,
    )  # fmt: skip
    return replace(view, **changes)


def glance(*backends: BackendView, paused: bool = False, tier_paused: bool = False, runnable: int = 1) -> Overview:
    tiers = tuple(
        TierView(tier, 5, 1, 1, runnable, NOW - 2_000, tier_paused and tier == "flex") for tier in POOL.policy.tiers
    )
    steer = json.dumps({"at_ms": NOW - 1_000, "replicas": 1})
    return Overview(tiers, 0, 1, 0, 0, paused, backends, steer, NOW)


def flex_gate(view: BackendView) -> Gate:
    return gates_of(view, POOL.policy, NOW)[2]


def test_what_the_highest_tier_may_have_ahead_of_what_was_put_back_is_said() -> None:
    words = [gate.words for gate in gates_of(backend(21), POOL.policy, NOW)]
    assert words[0] == "18 of 21 leases (cap 14 + θ 3, and 4 ahead of what it has put back)"
    assert "ahead" not in words[1]


@pytest.mark.parametrize(
    ("view", "reason", "words"),
    [
        (backend(live=3), "open", "3 of 18 leases (cap 14 + θ 1)"),
        (backend(), "full", "18 of 18 leases (cap 14 + θ 1)"),
        (backend(13, "room"), "room", "18 of 13 leases (room 0.71 × (capacity 16 + θ 3))"),
        (backend(0, "kv"), "kv", "KV cache 91\u202f%, at most 95\u202f% × room 0.71 = 67\u202f%"),
        (backend(0, "slow_tokens"), "slow_tokens", "161 ms per token, at most 150 ms; opens again below 135 ms"),
        (backend(fresh_at_ms=NOW - 3_000), "stale", "metrics are 3.0 s old, at most 600 ms; until then 18 of 5 leases"),
        (backend(fresh_at_ms=None), "stale", "its metrics were never read, at most 600 ms; until then 18 of 5 leases"),
        (backend(status="draining"), "draining", "takes no more; 18 still run"),
        (backend(status="down", down_at_ms=NOW - 9_000), "down", "takes no connection since 9.0 s"),
        (
            backend(0, "down", seen={"health": {"until_ms": NOW + 5_000}}),
            "down",
            "left alone for its errors, 5.0 s more",
        ),
        (backend(8, live=8, seen={"slots": 8}), "full", "8 of 8 leases (slots as given)"),
    ],
)
def test_a_gate_says_its_reason_and_the_numbers_it_was_decided_on(view: BackendView, reason: str, words: str) -> None:
    """Case 6."""
    gate = flex_gate(view)
    assert (gate.reason, gate.words) == (reason, words)


def test_the_lowest_tier_waits_until_nothing_waits_in_the_backend() -> None:
    assert gates_of(backend(14), POOL.policy, NOW)[3].words == "18 of 14 leases (cap 14, θ 0 while 2 wait there)"


def test_a_gate_that_never_refused_is_seen_to_have_never_refused() -> None:
    """Case 6: a threshold that no backend could reach."""
    quiet = flex_gate(backend(decisions={"flex:open": 900, "batch:full": 3}))
    assert (quiet.opened, quiet.refused, quiet.last_refusal) == (900, 0, None)
    said = flex_gate(
        backend(decisions={"flex:open": 900, "flex:kv": 3, "flex:full": 4}, said={"flex": "kv 4 0 999000"})
    )
    assert said.last_refusal is not None
    assert (said.refused, said.last_refusal.reason, said.last_refusal.at_ms) == (7, "kv", 999_000)


def test_the_nearest_gate_is_an_open_one_and_else_one_of_a_backend_that_is_up() -> None:
    gates = [flex_gate(backend(status="down")), flex_gate(backend(live=20)), flex_gate(backend(live=19))]
    nearest = best(gates)
    assert nearest is not None
    assert nearest.live == 19
    assert best([*gates, flex_gate(backend(live=1))]) != nearest
    assert best([]) is None


@pytest.mark.parametrize(
    ("view", "kind"),
    [
        (glance(backend(live=1)), "turn"),
        (glance(backend(), paused=True), "paused"),
        (glance(backend(live=1), tier_paused=True), "paused"),
        (glance(backend()), "full"),
        (glance(backend(), backend(0, "kv")), "full"),
        (glance(), "no_backend"),
        (glance(backend(live=1), runnable=0), "held"),
    ],
)
def test_what_binds_a_tier(view: Overview, kind: str) -> None:
    assert tier_binding(view, view.tiers[2], tier_gates(POOL, view)["flex"]).kind == kind


ANN = Standing("ann", Limits(), 3, 1, None, None, {"flex": NOW - 500})


@pytest.mark.parametrize(
    ("view", "standing", "kind", "words"),
    [
        (glance(backend()), replace(ANN, held_by="paused"), "paused", "until it is resumed"),
        (glance(backend()), replace(ANN, held_by="inflight", limits=Limits(1, 1)), "inflight", "1 run, at most 1"),
        (
            glance(backend(), paused=True),
            replace(ANN, held_by="requests", held_until_ms=NOW + 2_000, limits=Limits(1, None, 60)),
            "requests",
            "at most 60 requests a minute; free in 2.0 s",
        ),
        (
            glance(backend()),
            replace(ANN, limits=Limits(max_waiting=3)),
            "backlog",
            "3 wait, at most 3; new ones are refused",
        ),
        (glance(backend(), paused=True), ANN, "paused", ""),
        (glance(backend(live=1), tier_paused=True), ANN, "paused", "flex"),
        (glance(backend()), ANN, "full", "b1: 18 of 18 leases (cap 14 + θ 1)"),
        (glance(backend(live=1)), ANN, "turn", "a gate is open; it runs when its turn comes"),
        (glance(backend()), replace(ANN, waiting=0, oldest_ms={}), "idle", ""),
        (glance(backend()), replace(ANN, oldest_ms={}), "delayed", "3 are delayed"),
    ],
)
def test_what_binds_a_tenant_is_the_first_that_holds(view: Overview, standing: Standing, kind: str, words: str) -> None:
    binding = tenant_binding(view, tier_gates(POOL, view), standing, 10_000)
    assert (binding.kind, binding.words) == (kind, words)


@pytest.mark.parametrize(("age_ms", "degree"), [(None, 0), (0, 0), (299, 0), (300, 1), (60_000, 6), (10**9, 9)])
def test_the_longer_the_wait_the_hotter(age_ms: int | None, degree: int) -> None:
    assert heat(age_ms) == degree


def test_a_tenant_that_alone_is_held_is_named_with_its_limit() -> None:
    view = glance(backend(live=1), runnable=0)
    gates = tier_gates(POOL, view)["flex"]
    held = replace(ANN, held_by="inflight", limits=Limits(1, 1))
    named = tier_binding(view, view.tiers[2], gates, [replace(held, tenant="bob", oldest_ms={}), held])
    assert (named.kind, named.name, named.words, named.tenant) == ("held", "concurrency", "1 run, at most 1", "ann")
    assert tier_binding(view, view.tiers[2], gates).words == "the only tenant is paused or at a limit of its own"
    two = replace(view.tiers[2], tenants=2)
    assert tier_binding(view, two, gates, [held]).words == "all 2 tenants are paused or at a limit of their own"
    problem = next(one for one in glance_of(POOL, view, [], [held]).problems if one.tenant)
    assert problem.words == "is all that waits in flex, and is held: concurrency (1 run, at most 1)."


def flooded(waiting: int, others: int) -> tuple[Overview, Standing]:
    """Ann has so many jobs in flex; others have theirs in default."""
    view = glance(backend(live=1))
    depths = {"flex": (waiting, 1), "default": (others, int(others > 0))}
    tiers = [(tier, *depths.get(tier.tier, (0, 0))) for tier in view.tiers]
    shown = tuple(replace(tier, depth=depth, tenants=lines, runnable=lines) for tier, depth, lines in tiers)
    return replace(view, tiers=shown), replace(ANN, waiting=waiting)


@pytest.mark.parametrize(
    ("waiting", "others", "is_told"),
    [(5_251, 17, True), (100, 99, True), (99, 1, False), (200, 200, False), (500, 0, False)],
)
def test_who_floods_is_told_when_others_wait_beside_it(waiting: int, others: int, is_told: bool) -> None:
    view, ann = flooded(waiting, others)
    told = [one for one in glance_of(POOL, view, [], [ann]).problems if one.tenant == "ann"]
    assert bool(told) == is_told
    if waiting == 5_251:
        assert told[0].words == "holds 5\u202f251 of 5\u202f268 waiting jobs."


def test_a_draining_backend_may_hold_no_more_and_its_metrics_have_no_age() -> None:
    (shown,) = glance_of(POOL, glance(backend(status="draining")), []).backends
    assert (shown.cap, shown.fresh_ms) == (0, None)


def _words(view: Overview) -> list[str]:
    return [problem.words for problem in glance_of(POOL, view, []).problems]


def test_what_is_wrong_is_said_first_and_the_worst_before_the_rest() -> None:
    assert _words(glance(backend(live=1))) == []
    down = replace(glance(backend(status="down")), steer="{}", paused=True, dead=1)
    assert _words(down) == [
        "No backend takes work.",
        "Nobody observes this pool: is a dispatcher running?",
        "b1 is down.",
        "The pool is paused: nothing starts until it is resumed.",
        "1 dead job to look at.",
    ]
    assert _words(glance())[0] == "The pool has no backend."
    assert "b1 does not show kv." in _words(glance(backend(live=1, seen={"missing": ["kv"]})))
    slow = _words(glance(backend(0, "slow_tokens")))
    assert slow[0].startswith("priority, default, flex, batch wait: token time (b1: 161 ms per token, at most 150 ms;")
    more = replace(glance(backend()), steer=json.dumps({"at_ms": NOW, "replicas": 3}))
    assert _words(more) == ["1 backend works; the load asks for 3."]
    ejected = backend(seen={"health": {"until_ms": NOW + 5}})
    assert _words(glance(ejected))[0] == "b1 fails: it is left alone and tried from time to time."
