"""The bounds of the dispatcher's decisions, as tables and properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.policy import capacity, gate, headroom
from dispatcher.policy.capacity import Capacity, Scrape
from dispatcher.policy.gate import Load

actives = st.lists(st.booleans(), min_size=1, max_size=10)


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


@given(actives)
def test_room_never_rises_for_a_lower_tier_and_never_ends(active: list[bool]) -> None:
    rooms = headroom.rooms(active)
    assert rooms[0] == 1.0
    assert list(rooms) == sorted(rooms, reverse=True)
    assert rooms[-1] > 0.1


@given(
    actives,
    st.integers(1, 2000),
    st.integers(1, 2000),
    st.integers(0, 50),
    st.none() | st.floats(0, 1),
    st.booleans(),
)
def test_no_lower_tier_may_hold_more_than_a_higher_one(
    active: list[bool], k: int, cap: int, waiting: int, kv: float | None, slow: bool
) -> None:
    known = Capacity(k=k, cap=min(cap, k))
    found = gate.gates(known, Load(waiting, kv, None), headroom.rooms(active), slow=slow)
    limits = [each.limit for each in found]
    fallbacks = [each.fallback for each in found]
    assert limits == sorted(limits, reverse=True)
    assert fallbacks == sorted(fallbacks, reverse=True)
    assert all(1 <= each.fallback <= known.cap for each in found)
    assert all(each.limit <= known.cap + gate.theta(0) for each in found)


@pytest.mark.parametrize(
    ("load", "slow", "whys"),
    [
        (Load(0, 0.1, None), False, ["full", "room", "room", "room"]),
        (Load(2, 0.1, None), False, ["full", "room", "room", "full"]),  # the lowest only while nothing waits
        (Load(0, 0.97, None), False, ["full", "kv", "kv", "kv"]),  # tier 0 is never shut by this
        (Load(0, 0.70, None), False, ["full", "room", "kv", "kv"]),  # .95 of the room
        (Load(0, None, None), False, ["full", "room", "room", "room"]),
        (Load(0, 0.1, 200.0), True, ["slow_tokens"] * 4),
    ],
)
def test_the_gate_says_which_condition_binds(load: Load, slow: bool, whys: list[str]) -> None:
    found = gate.gates(Capacity(k=20, cap=20), load, headroom.rooms([True] * 4), slow=slow)
    assert [each.why for each in found] == whys


def test_slow_tokens_have_a_hysteresis_and_an_idle_backend_is_never_slow() -> None:
    seen = [(149.0, False), (151.0, True), (140.0, True), (134.0, False), (140.0, False), (None, False)]
    slow = False
    for token_ms, expected in seen:
        slow = gate.is_slow(slow, token_ms)
        assert slow is expected
    assert gate.is_slow(True, None) is False


scrapes = st.builds(
    Scrape,
    now_ms=st.integers(0, 10**6),
    running=st.integers(0, 300),
    waiting=st.integers(0, 300),
    live=st.integers(0, 300),
    done=st.integers(0, 300),
    denied=st.integers(0, 10),
    progress=st.floats(0, 1e9),
    started_at=st.sampled_from([0.0, 0.0, 1.0]),
)


@given(st.lists(scrapes, max_size=40))
def test_whatever_a_backend_shows_the_capacity_stays_in_its_bounds(seen: list[Scrape]) -> None:
    known = Capacity()
    for scrape in seen:
        after = capacity.learn(known, scrape, 3)
        assert 1 <= after.cap <= after.k
        if scrape.waiting > 0 and after.fresh_at_ms == scrape.now_ms:
            assert after.cap <= max(1, scrape.live - scrape.waiting), "something waits: no net sends"
        known = after


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
    assert after.last_k == 64
    assert after.k <= 2
    for n in range(1, 20):
        after = capacity.learn(
            after,
            Scrape(1200 + 200 * n, after.k, 0, after.k, after.k, 1, 3.0 + n, started),
            3,
        )
    assert not after.ramp
    assert after.k >= 64
