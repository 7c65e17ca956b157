"""Estimates: sane whatever the queue looks like, and right where one can count."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.estimate import Pace, Valve, position
from fairlane.model import Limits
from fairlane.standing import Explanation, LineView

TIERS = ("priority", "default", "flex")
WEIGHTS = st.floats(0.001, 1000)
LINES = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 10**6), WEIGHTS, st.booleans()), max_size=6)


def lines_of(**tenants: tuple[int, float, bool]) -> list[LineView]:
    return [LineView(name, jobs, 0, held, Limits(weight=weight)) for name, (jobs, weight, held) in tenants.items()]


def why(ahead: int, rank: int | None, tenants: int, *depths: int, tenant: str = "a") -> Explanation:
    by_tier: dict[str, int] = dict(zip(TIERS, depths, strict=False))
    return Explanation("queued", tenant, TIERS[len(depths) - 1], ahead, rank, tenants, None, None, False, by_tier, ())


@given(
    LINES,
    st.integers(0, 1000),
    st.none() | st.integers(0, 1000),
    st.integers(0, 10**4),
    st.lists(st.integers(0, 10**6), min_size=1, max_size=3),
)
def test_a_place_is_within_what_waits(
    lines: dict[str, Any], ahead: int, rank: int | None, tenants: int, depths: list[int]
) -> None:
    found = position(why(ahead, rank, tenants, *depths), lines_of(**lines))
    assert sum(depths[:-1]) <= found <= max(sum(depths[:-1]), sum(depths) - 1)


@given(
    st.floats(0.001, 1e5),
    st.dictionaries(st.sampled_from(TIERS), st.floats(0, 1e6)),
    st.integers(0, 10**7),
    st.integers(0, 10**5),
)
def test_a_wait_grows_with_what_is_ahead(service_s: float, came: dict[str, float], jobs: int, places: int) -> None:
    pace = Pace(service_s, came)
    waits = [pace.wait_s(n, places, TIERS[:2]) for n in (0, jobs, jobs + 1)]
    assert waits[0] == 0
    assert waits == sorted(waits)


VALVES = st.builds(Valve, st.floats(0.001, 1e5), st.floats(0, 1e5), st.floats(0, 1e6), st.lists(st.integers(0, 10**6)))


@given(VALVES, st.floats(0.001, 1e5), st.integers(0, 10**7))
def test_the_wait_for_the_valve_is_finite_and_grows_with_what_is_ahead(valve: Valve, per_s: float, jobs: int) -> None:
    waits = [valve.wait_s(n, per_s) for n in (0, jobs, jobs + 1)]
    assert waits[0] == 0
    assert all(map(math.isfinite, waits))
    for fewer, more in pairwise(waits):
        assert more >= fewer - 1e-9 * (valve.waited_s + fewer)  # as exact as such numbers are


@pytest.mark.parametrize(
    ("valve", "jobs", "expected"),
    [
        (Valve(16, 0, 16), 1, math.sqrt(16**2 + 32 * 16 / 10) - 16),  # in arrears: 1/16 of 10 a second, and growing
        (Valve(16, 6, 10), 1, math.sqrt(16**2 + 32 * 16 / 10) - 10),  # so in 6 s
        (Valve(16, 0, 64), 10, 10 / 2.5),  # it has waited for 4 × valve_s: 1/4
        (Valve(16, 0, 64, [100]), 10, 20 / 2.5),  # by turns with another tier
        (Valve(16, 0, 64, [2, 3]), 10, 15 / 2.5),  # those others have not so many
        (Valve(16, 0, 16), 85, 48 + 10 / 2.5),  # 75 turns until the share is full
    ],
)
def test_the_valve_takes_its_share(valve: Valve, jobs: int, expected: float) -> None:
    assert valve.wait_s(jobs, 10.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ahead", "rank", "lines", "expected"),
    [
        (10, 0, {"a": (50, 1, False)}, 10),  # alone
        (10, 0, {"a": (50, 1, False), "b": (50, 1, False)}, 20),  # in turns
        (10, 1, {"a": (50, 1, False), "b": (50, 1, False)}, 21),  # and the other has the first
        (10, 0, {"a": (50, 1, False), "b": (4, 1, False)}, 14),  # the other has but four
        (10, 0, {"a": (50, 1, False), "b": (50, 3, False)}, 40),  # the other has three turns for one
        (10, 0, {"a": (50, 2, False), "b": (50, 1, False)}, 15),
        (10, 0, {"a": (50, 1, False), "b": (50, 1, True)}, 10),  # the other may not run
    ],
)
def test_a_place_counts_the_turns_of_the_others(ahead: int, rank: int, lines: dict[str, Any], expected: int) -> None:
    tenants = sum(not held for _, _, held in lines.values())
    depth = sum(jobs for jobs, _, _ in lines.values())
    assert position(why(ahead, rank, tenants, 0, depth), lines_of(**lines)) == expected


def test_what_comes_above_slows_a_tier_down() -> None:
    pace = Pace(1.0, {"priority": 4.0, "default": 100.0})
    assert pace.wait_s(8, 8, ()) == 1
    assert pace.wait_s(8, 8, ("priority",)) == 2
    assert pace.wait_s(8, 8, ("priority", "default")) == math.inf  # but for the valve
