"""What holds of the dispatcher's decisions on one backend whatever it shows, as properties."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from dispatcher.policy import capacity, gate, headroom
from dispatcher.policy.capacity import Capacity, Scrape
from dispatcher.policy.gate import Load, Tuning

THETA = gate.DEFAULT.of(0)
actives = st.lists(st.booleans(), min_size=1, max_size=10)
counts = st.integers(0, 300)
capacities = st.builds(lambda k, cap: Capacity(k=k, cap=min(cap, k)), st.integers(1, 2000), st.integers(1, 2000))
tunings = st.builds(
    Tuning,
    theta=st.lists(st.integers(0, 50), min_size=1, max_size=10).map(lambda each: tuple(sorted(each, reverse=True))),
    kv_most=st.floats(0.01, 1),
)
loads = st.builds(Load, waiting=st.integers(0, 50), kv=st.none() | st.floats(0, 1), token_ms=st.none())
pages = st.builds(
    Scrape,
    now_ms=st.integers(1, 10**6),
    running=counts,
    waiting=counts,
    live=counts,
    done=counts,
    denied=st.integers(0, 10),
    progress=st.floats(0, 1e9),
    started_at=st.sampled_from([0.0, 0.0, 1.0]),
)


@st.composite
def histories(draw: st.DrawFn) -> Capacity:
    """What was learned from any pages."""
    known = Capacity()
    for page in draw(st.lists(pages, max_size=10)):
        known = capacity.learn(known, page, THETA)
    return known


@given(actives)
def test_room_never_rises_for_a_lower_tier_and_never_ends(active: list[bool]) -> None:
    rooms = headroom.rooms(active)
    assert rooms[0] == 1.0
    assert list(rooms) == sorted(rooms, reverse=True)
    assert rooms[-1] > 0.1


@given(actives, st.floats(0, 1), st.floats(0, 20))
def test_room_is_a_share_that_never_rises_for_a_lower_tier_however_it_is_tuned(
    active: list[bool], reserve: float, decay: float
) -> None:
    rooms = headroom.rooms(active, reserve, decay)
    assert list(rooms) == sorted(rooms, reverse=True)
    assert all(0 < room <= 1 for room in rooms)


@given(actives, st.data())
def test_room_never_rises_when_a_tier_becomes_active(active: list[bool], data: st.DataObject) -> None:
    tier = data.draw(st.integers(0, len(active) - 1))
    without, with_it = ([*active[:tier], is_active, *active[tier + 1 :]] for is_active in (False, True))
    assert all(a >= b for a, b in zip(headroom.rooms(without), headroom.rooms(with_it), strict=True))


@given(actives, capacities, loads, st.booleans(), tunings)
def test_no_lower_tier_may_hold_more_than_a_higher_one(
    active: list[bool], known: Capacity, load: Load, slow: bool, tuning: Tuning
) -> None:
    found = gate.gates(known, load, headroom.rooms(active), slow=slow, tuning=tuning)
    for figures in ([each.limit for each in found], [each.fallback for each in found]):
        assert figures == sorted(figures, reverse=True)


@given(actives, capacities, loads, st.booleans(), tunings)
def test_no_tier_may_ever_hold_more_than_the_capacity_and_what_may_wait(
    active: list[bool], known: Capacity, load: Load, slow: bool, tuning: Tuning
) -> None:
    for tier, each in enumerate(gate.gates(known, load, headroom.rooms(active), slow=slow, tuning=tuning)):
        assert 0 <= each.limit <= known.cap + tuning.of(tier)


@given(actives, capacities, loads, st.booleans(), tunings)
def test_stale_metrics_never_raise_a_limit_and_never_shut_an_idle_backend(
    active: list[bool], known: Capacity, load: Load, slow: bool, tuning: Tuning
) -> None:
    for each in gate.gates(known, load, headroom.rooms(active), slow=slow, tuning=tuning):
        assert 1 <= each.fallback <= max(1, each.limit)
        assert each.fallback <= known.cap


@given(histories(), pages)
def test_capacity_is_never_less_than_one_nor_less_than_what_may_be_sent(known: Capacity, page: Scrape) -> None:
    after = capacity.learn(known, page, THETA)
    assert 1 <= after.cap <= after.k


@given(histories(), pages)
def test_learning_is_pure(known: Capacity, page: Scrape) -> None:
    before = replace(known), replace(page)
    assert capacity.learn(known, page, THETA) == capacity.learn(known, page, THETA)
    assert (known, page) == before


@given(histories(), pages)
def test_a_frozen_page_teaches_nothing_and_is_not_fresh(known: Capacity, page: Scrape) -> None:
    assume(known.fresh_at_ms > 0)
    frozen = replace(page, live=max(1, page.live), progress=known.progress, started_at=known.started_at)
    assert capacity.learn(known, frozen, THETA) == known


@given(histories(), pages)
def test_while_something_waits_nothing_rises_beyond_what_is_seen_running(known: Capacity, page: Scrape) -> None:
    crowded = replace(
        page, waiting=max(1, page.waiting), progress=(known.progress or 0) + 1, started_at=known.started_at
    )
    after = capacity.learn(known, crowded, THETA)
    assert after.k <= max(known.k, crowded.running)
    assert after.cap <= max(1, crowded.live - crowded.waiting), "no net sends but what may wait"


@given(histories(), pages)
def test_one_scrape_at_most_doubles_during_a_ramp_and_adds_a_quarter_later(known: Capacity, page: Scrape) -> None:
    calm = replace(page, waiting=0, progress=(known.progress or 0) + 1, started_at=known.started_at)
    after = capacity.learn(known, calm, THETA)
    reached = max(known.k, calm.live)
    assert after.k - known.k <= (2 * reached - known.k if known.ramp else max(1, known.k // 4))


@given(histories(), pages)
def test_what_was_not_tried_or_is_not_yet_visible_does_not_raise_it(known: Capacity, page: Scrape) -> None:
    live = page.live % known.k  # not full
    calm = replace(
        page, waiting=0, live=live, denied=0, progress=(known.progress or 0) + 1, started_at=known.started_at
    )
    assert capacity.learn(known, calm, THETA).k <= known.k
    hidden = replace(
        page, waiting=0, live=400, running=0, done=0, progress=(known.progress or 0) + 1, started_at=known.started_at
    )
    assert capacity.learn(known, hidden, THETA).k <= known.k
