"""How many backends a pool is said to need."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.policy.autoscale import Scaling, Use, desired_replicas, freeness, mean_freeness

LOOK_MS = 5_000
OUT_MS, IN_MS = 30_000, 300_000
uses = st.lists(st.builds(Use, slots=st.integers(0, 512), live=st.integers(0, 600)), max_size=8)


def looks(
    known: Scaling, backends: list[Use], waiting: int, for_ms: int, *, from_ms: int = 0, most: int = 64
) -> Scaling:
    for now_ms in range(from_ms, from_ms + for_ms + 1, LOOK_MS):
        known = desired_replicas(known, backends, waiting, now_ms, most=most)
    return known


def busy(n: int, live: int = 6) -> list[Use]:
    """8 slots each."""
    return [Use(slots=8, live=live)] * n


@pytest.mark.parametrize(
    ("slots", "load", "room", "found"),
    [
        (8, 0, 1.0, 16.0),  # idle
        (1, 0, 1.0, 2.0),
        (8, 2, 1.0, 3.0),
        (10, 4, 1.0, 1.5),  # 40 % used
        (8, 8, 1.0, 0.0),
        (8, 12, 1.0, -0.5),  # half as much again waits
        (8, 6, 0.5, -1 / 3),  # for a tier that has half the room
    ],
)
def test_freeness(slots: int, load: float, room: float, found: float) -> None:
    assert freeness(slots, load, room) == pytest.approx(found)


@given(uses, st.integers(0, 10**6), st.floats(0.05, 1))
def test_less_room_is_never_freer(backends: list[Use], waiting: int, room: float) -> None:
    free, in_room = mean_freeness(backends, waiting), mean_freeness(backends, waiting, room)
    assert (free is None) == (in_room is None) == (not backends)
    assert free is None or in_room is None or in_room <= free


def test_what_waits_is_shared_by_the_slots() -> None:
    assert mean_freeness([Use(8, 8), Use(24, 24)], 16) == pytest.approx(-0.5)


def test_a_flood_asks_for_as_many_as_it_fills_but_at_most_twice_those_that_work() -> None:
    start = looks(Scaling(), busy(2), 0, 0)
    assert start.desired == 2
    assert looks(start, busy(2, 8), 16, OUT_MS + LOOK_MS).desired == 4
    assert looks(start, busy(2, 8), 10, OUT_MS + LOOK_MS).desired == 4  # 26 jobs
    assert looks(start, busy(2, 8), 10**6, OUT_MS + LOOK_MS).desired == 4
    assert looks(start, busy(2, 8), 10**6, OUT_MS + LOOK_MS, most=3).desired == 3


def test_a_burst_that_is_over_before_half_a_minute_asks_for_nothing() -> None:
    known = looks(Scaling(), busy(2), 0, 0)
    known = looks(known, busy(2, 8), 50, OUT_MS - 2 * LOOK_MS)
    known = looks(known, busy(2), 0, LOOK_MS, from_ms=OUT_MS)
    assert looks(known, busy(2, 8), 50, OUT_MS - 2 * LOOK_MS, from_ms=OUT_MS + LOOK_MS).desired == 2


def test_the_wish_does_not_grow_while_new_backends_start() -> None:
    assert looks(Scaling(), busy(2, 8), 16, 100 * OUT_MS).desired == 4


def test_an_idle_pool_shrinks_by_one_in_five_minutes_down_to_one() -> None:
    known, backends, sizes = Scaling(), busy(4, 0), list[int]()
    for now_ms in range(0, 6 * IN_MS, LOOK_MS):
        known = desired_replicas(known, backends, 0, now_ms)
        backends = busy(known.desired, 0)
        sizes.append(known.desired)
    changes = [n * LOOK_MS for n, (a, b) in enumerate(pairwise(sizes)) if a != b]
    assert sizes[-1] == 1
    assert len(changes) == 3
    assert all(later - earlier >= IN_MS for earlier, later in pairwise(changes))


def test_a_backend_is_not_given_up_if_the_others_could_not_take_its_work() -> None:
    """The mean is of each one's freeness, so that one that is idle hides how full the others are."""
    full = [Use(slots=16, live=16)] * 3
    for slots, desired in ((16, 3), (4, 4)):
        backends = [*full, Use(slots, live=0)]
        assert (mean_freeness(backends, 0) or 0) > 1.5
        assert looks(Scaling(), backends, 0, 2 * IN_MS).desired == desired


@given(st.integers(2, 12), st.integers(0, 200), st.integers(0, 200))
def test_one_backend_more_or_less_never_turns_the_pressure_around(n: int, load: int, waiting: int) -> None:
    """Where it scales in, it would not scale out at once with what is left; and the other way round."""

    def settled(backends: int) -> Scaling:
        live = min(load, 8 * backends)
        shared = [Use(8, live // backends + (each < live % backends)) for each in range(backends)]
        return looks(Scaling(), shared, waiting + load - live, IN_MS + LOOK_MS)

    first = settled(n)
    second = settled(first.desired)
    if first.desired < n:
        assert second.desired <= first.desired
    if first.desired > n:
        assert second.desired >= first.desired


def test_a_backend_that_is_down_is_no_capacity() -> None:
    three = looks(Scaling(), busy(3), 0, 0)
    assert three.desired == 3
    assert desired_replicas(three, busy(2, 8), 2, LOOK_MS).desired == 3, "it is still wanted"
    assert looks(three, busy(2, 8), 2, IN_MS + LOOK_MS).desired == 2, "after five minutes the two are enough"
    assert looks(three, busy(1, 8), 16, IN_MS + LOOK_MS).desired == 3, "or not"


def test_while_none_works_what_is_desired_stays() -> None:
    three = looks(Scaling(), busy(3), 0, 0)
    assert looks(three, [], 500, 2 * IN_MS).desired == 3
    assert looks(Scaling(), [], 500, 2 * IN_MS).desired == 1


def test_a_backend_that_was_added_and_is_needed_is_not_given_up() -> None:
    two = looks(Scaling(), busy(2), 0, 0)
    assert desired_replicas(two, busy(3), 0, LOOK_MS).desired == 3


@pytest.mark.parametrize("jump_ms", [-(10**9), 10**9])
def test_a_jump_of_the_clock_is_at_most_one_step(jump_ms: int) -> None:
    known = looks(Scaling(), busy(4, 0), 0, LOOK_MS, from_ms=10**10)
    assert looks(known, busy(4, 0), 0, 4 * LOOK_MS, from_ms=10**10 + jump_ms).desired in (3, 4)


@given(st.lists(st.tuples(uses, st.integers(0, 10**6), st.integers(0, 10**7)), max_size=8), st.integers(1, 64))
def test_it_is_always_within_its_bounds(steps: list[tuple[list[Use], int, int]], most: int) -> None:
    known = Scaling()
    for backends, waiting, now_ms in steps:
        known = desired_replicas(known, backends, waiting, now_ms, most=most)
        assert 1 <= known.desired <= most
        again = desired_replicas(known, backends, waiting, now_ms, most=most)
        assert again.desired == known.desired, "no time has passed"
