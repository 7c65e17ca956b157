"""The dispatcher's decisions on one backend, as tables; their bounds are in test_policy_bounds.py."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dispatcher.policy import capacity, gate, headroom
from dispatcher.policy.capacity import Capacity, Scrape
from dispatcher.policy.gate import Load, Tuning
from fairlane.model import GateReason, TierGate


@pytest.mark.parametrize(
    ("active", "rooms"),
    [
        ([True] * 4, (1.0, 0.80, 0.713, 0.675)),
        ([False, False, False, True], (1.0, 1.0, 1.0, 1.0)),
        ([False, True, False, True], (1.0, 1.0, 0.913, 0.913)),
        ([True], (1.0,)),
        ([True, True], (1.0, 0.80)),
    ],
)
def test_rooms_are_those_of_the_design(active: list[bool], rooms: tuple[float, ...]) -> None:
    assert headroom.rooms(active) == pytest.approx(rooms, abs=0.0005)


def test_an_operator_may_keep_more_or_less_and_the_lowest_tier_is_still_let_in() -> None:
    assert headroom.rooms([True] * 3, reserve=0.4, decay=0.0) == pytest.approx((1.0, 0.6, 0.2))
    assert headroom.rooms([True] * 3, reserve=0.0) == (1.0, 1.0, 1.0)
    assert headroom.rooms([True] * 10, reserve=1.0, decay=0.0)[-1] == headroom.LEAST


HIGHEST, SECOND, THIRD, LOWEST = range(4)
CALM = Load(waiting=0, kv=0.1, token_ms=20.0)
ALL, ALONE = (True,) * 4, (False, False, False, True)


@pytest.mark.parametrize(
    ("tier", "active", "load", "slow", "tuning", "limit", "fallback", "why"),
    [
        # K = cap = 20: K + θ_0 = 23, of which each tier has its room
        (HIGHEST, ALL, CALM, False, Tuning(), 23, 20, "full"),
        (SECOND, ALL, CALM, False, Tuning(), 18, 16, "room"),
        (THIRD, ALL, CALM, False, Tuning(), 16, 14, "room"),
        (LOWEST, ALL, CALM, False, Tuning(), 15, 13, "room"),
        # nothing is active above it: only what may wait there differs
        (SECOND, ALONE, CALM, False, Tuning(), 22, 20, "full"),
        (LOWEST, ALONE, CALM, False, Tuning(), 21, 20, "full"),
        (LOWEST, ALONE, Load(2, 0.1, 20.0), False, Tuning(), 20, 20, "full"),  # until as many finished as waited
        (HIGHEST, ALONE, Load(2, 0.1, 20.0), False, Tuning(), 23, 20, "full"),
        # KV: .95 of the room; tier 0 is never shut by it
        (HIGHEST, ALL, Load(0, 0.99, 20.0), False, Tuning(), 23, 20, "full"),
        (SECOND, ALL, Load(0, 0.76, 20.0), False, Tuning(), 0, 1, "kv"),
        (SECOND, ALL, Load(0, 0.75, 20.0), False, Tuning(), 18, 16, "room"),
        (LOWEST, ALL, Load(0, 0.65, 20.0), False, Tuning(), 0, 1, "kv"),
        (LOWEST, ALONE, Load(0, 0.94, 20.0), False, Tuning(), 21, 20, "full"),
        (LOWEST, ALL, Load(0, None, 20.0), False, Tuning(), 15, 13, "room"),  # it does not say
        # below that as many as, filled like those that run, reach as much: 8 fill .4, 13 more than .95 × .675
        (LOWEST, ALL, Load(0, 0.4, 20.0, running=8), False, Tuning(), 13, 13, "kv"),
        (SECOND, ALL, Load(0, 0.4, 20.0, running=8), False, Tuning(), 16, 16, "kv"),
        (LOWEST, ALL, Load(0, 0.64, 20.0, running=8), False, Tuning(), 9, 9, "kv"),  # below its share: one more
        (HIGHEST, ALL, Load(0, 0.4, 20.0, running=8), False, Tuning(), 23, 20, "full"),
        (LOWEST, ALL, Load(0, 0.2, 20.0, running=8), False, Tuning(), 15, 13, "room"),
        (LOWEST, ALL, Load(0, 0.6, 20.0, running=1), False, Tuning(), 2, 2, "kv"),
        (LOWEST, ALL, Load(0, 0.0, 20.0, running=8), False, Tuning(), 15, 13, "room"),
        # slow tokens shut it for all, before anything else
        (HIGHEST, ALL, Load(0, 0.99, 200.0), True, Tuning(), 0, 1, "slow_tokens"),
        (LOWEST, ALL, Load(0, 0.99, 200.0), True, Tuning(), 0, 1, "slow_tokens"),
        # an operator's own
        (HIGHEST, ALL, CALM, False, Tuning(theta=(0,)), 20, 20, "full"),
        (LOWEST, ALONE, CALM, False, Tuning(theta=(8, 5)), 25, 20, "full"),
        (SECOND, ALL, CALM, False, Tuning(theta=(8, 5)), 22, 16, "room"),
        (SECOND, ALL, Load(0, 0.5, 20.0), False, Tuning(kv_most=0.6), 0, 1, "kv"),
    ],
)
def test_the_gate(
    tier: int,
    active: Sequence[bool],
    load: Load,
    slow: bool,
    tuning: Tuning,
    limit: int,
    fallback: int,
    why: GateReason,
) -> None:
    found = gate.gates(Capacity(k=20, cap=20), load, headroom.rooms(active), slow=slow, tuning=tuning)
    assert found[tier] == TierGate(limit, fallback, why)


PUT_BACK = Load(8, 0.9, 20.0, running=12)


@pytest.mark.parametrize(
    ("load", "most", "slow", "limit"),
    [
        (PUT_BACK, 10, False, 20 + 3),  # θ_0 more than there are, at each scrape
        (PUT_BACK, 2, False, 20 + 2),
        (PUT_BACK, 0, False, 12 + 3),
        (Load(3, 0.9, 20.0, running=17), 10, False, 17 + 3),  # no more waits than we let wait
        (PUT_BACK, 10, True, 0),  # tokens that come too slowly shut it all the same
    ],
)
def test_where_priority_is_handed_over_the_highest_tier_goes_ahead_of_what_the_engine_has_put_back(
    load: Load, most: int, slow: bool, limit: int
) -> None:
    live = load.running + load.waiting
    fits = Capacity(k=load.running, cap=load.running)
    before = gate.gates(fits, load, headroom.rooms(ALL), slow=slow)
    highest, *others = gate.ahead(before, live, load, most, slow=slow)
    assert highest.limit == limit
    assert others == [*before[1:]], "nobody else does"


def test_a_pool_of_one_tier_keeps_no_room() -> None:
    only = gate.gates(Capacity(k=20, cap=20), Load(2, 0.99, None), headroom.rooms([True]), slow=False)
    assert only == (TierGate(23, 20, "full"),)


def test_slow_tokens_are_what_the_operator_says() -> None:
    tuning = Tuning(slow_ms=40.0)
    for was_slow, token_ms, slow in (
        (False, 39.0, False),
        (False, 40.0, True),
        (True, 36.0, True),
        (True, 35.9, False),
    ):
        assert gate.is_slow(was_slow, token_ms, tuning) is slow


def test_slow_tokens_have_a_hysteresis_and_an_idle_backend_is_never_slow() -> None:
    seen = [(149.0, False), (151.0, True), (140.0, True), (134.0, False), (140.0, False), (None, False)]
    slow = False
    for token_ms, expected in seen:
        slow = gate.is_slow(slow, token_ms)
        assert slow is expected
    assert gate.is_slow(True, None) is False


def test_the_lowest_tier_sends_only_when_as_many_have_finished_as_waited() -> None:
    rooms = headroom.rooms([False, False, False, True])
    for waiting, limit in ((0, 21), (2, 20)):
        lowest = gate.gates(Capacity(k=20, cap=20), Load(waiting, 0.1, None), rooms, slow=False)[-1]
        assert (lowest.limit, lowest.why) == (limit, "full")


def test_a_frozen_page_teaches_nothing_and_is_not_fresh() -> None:
    page = Scrape(now_ms=100, running=1, waiting=0, live=1, done=1, denied=1, progress=5.0)
    known = capacity.learn(Capacity(), page, 3)
    frozen = Scrape(now_ms=300, running=1, waiting=0, live=known.k, done=1, denied=1, progress=5.0)
    assert capacity.learn(known, frozen, 3) == known


@pytest.mark.parametrize("change", ["the start time", "the counters"])
def test_a_restarted_backend_starts_anew_and_ramps_to_what_it_had(change: str) -> None:
    known = Capacity(k=64, cap=64, ramp=False, fresh_at_ms=1000, progress=900.0, started_at=1.0)
    started = 2.0 if change == "the start time" else 1.0
    page = Scrape(now_ms=1200, running=0, waiting=0, live=0, done=0, denied=1, progress=3.0, started_at=started)
    after = capacity.learn(known, page, 3)
    assert after.k <= 2
    ramps = [after := capacity.learn(after, _all_runs(after, 1200 + 200 * n, started), 3) for n in range(1, 10)]
    assert next(each.k for each in ramps if not each.ramp) == 64


def _all_runs(known: Capacity, now_ms: int, started_at: float) -> Scrape:
    return Scrape(now_ms, known.k, 0, known.k, known.k, 1, (known.progress or 0) + 1, started_at)


def test_a_capacity_that_was_learned_too_low_comes_back_when_more_are_seen_running() -> None:
    known = Capacity(k=7, cap=7, ramp=False, fresh_at_ms=1000, running=8, live=10, progress=900.0)
    eight_run = Scrape(1200, 8, 2, live=10, done=1, denied=1, progress=950.0)
    assert capacity.learn(known, eight_run, 3).k == 8


def test_a_page_of_before_a_crash_that_is_judged_after_it_does_not_forget_the_capacity() -> None:
    known = Capacity(k=64, cap=64, ramp=False, fresh_at_ms=1000, running=64, live=67, progress=900.0, started_at=1.0)
    its_leases_are_gone = Scrape(1200, 64, 3, live=0, done=67, denied=1, progress=950.0, started_at=1.0)
    known = capacity.learn(known, its_leases_are_gone, 3)
    assert known.cap == 1
    restarted = Scrape(3000, 0, 0, live=0, done=0, denied=1, progress=0.0, started_at=2.0)
    assert capacity.learn(known, restarted, 3).last_k == 64


def test_a_backend_that_crashes_again_and_again_still_ramps_to_what_it_had() -> None:
    known = Capacity(k=64, cap=64, ramp=False, fresh_at_ms=1000, progress=900.0, started_at=1.0)
    for started in (2.0, 3.0, 4.0):
        page = Scrape(int(1000 * started), 0, 0, live=0, done=0, denied=1, progress=1.0, started_at=started)
        known = capacity.learn(known, page, 3)
    assert known.last_k == 64


def test_what_others_run_on_a_backend_is_left_to_them() -> None:
    known = Capacity(k=64, cap=64, ramp=False, fresh_at_ms=1000, top=64, running=64, live=64, progress=900.0)
    twenty_are_not_ours = Scrape(1200, 60, 0, live=40, done=24, denied=0, progress=950.0)
    assert capacity.learn(known, twenty_are_not_ours, 3).cap == 44
    five_have_just_left = Scrape(1200, 64, 0, live=59, done=5, denied=0, progress=950.0)
    assert capacity.learn(known, five_have_just_left, 3).cap == 64


@pytest.mark.parametrize(
    ("ramp", "page", "early"),
    [
        (True, Scrape(0, 4, 0, live=8, done=0, denied=0, progress=1.0), True),  # full
        (True, Scrape(0, 4, 0, live=4, done=0, denied=1, progress=1.0), True),  # a pop was refused
        (True, Scrape(0, 6, 1, live=7, done=0, denied=0, progress=1.0), True),  # on their way into the batch
        (True, Scrape(0, 4, 1, live=5, done=0, denied=0, progress=1.0), False),
        (True, Scrape(0, 4, 0, live=4, done=0, denied=0, progress=1.0), False),  # nothing more to send
        (True, Scrape(0, 0, 0, live=0, done=0, denied=1, progress=1.0), False),  # idle
        (False, Scrape(0, 4, 0, live=8, done=0, denied=1, progress=1.0), False),
    ],
)
def test_the_next_scrape_comes_early_during_a_ramp_that_has_more_to_send(ramp: bool, page: Scrape, early: bool) -> None:
    assert capacity.soon(Capacity(k=8, cap=8, ramp=ramp, running=4), page) is early
