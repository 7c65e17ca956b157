"""Fairness: Jain's index and the largest gap, whatever the tenants do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.policy.fairness import Fairness, covers, fairness, jain, top

SERVICE = st.floats(0, 1e9)
ROUND = st.dictionaries(st.sampled_from(["priority", "batch"]), st.dictionaries(st.sampled_from("abcdef"), SERVICE))
TIMES = st.integers(0, 50)


@given(st.lists(SERVICE, min_size=1))
def test_jain_is_between_one_nth_and_one(shares: list[float]) -> None:
    assert 1 / len(shares) - 1e-9 <= jain(shares) <= 1 + 1e-9


def test_jain_is_one_for_equals_and_one_nth_if_one_has_everything() -> None:
    assert jain([3.0] * 7) == pytest.approx(1)
    assert jain([5.0, 0, 0, 0]) == pytest.approx(1 / 4)
    assert jain([]) == 1


@given(st.lists(ROUND, max_size=12))
def test_every_history_has_an_index_and_a_gap_within_bounds(rounds: list[dict[str, dict[str, float]]]) -> None:
    found = fairness(rounds)
    assert 0 < found.jain <= 1 + 1e-9
    assert 0 <= found.gap <= sum(service for one in rounds for of in one.values() for service in of.values()) + 1e-6
    assert found.tenants or found == Fairness()


@given(st.dictionaries(st.sampled_from("ab"), SERVICE, max_size=1), st.integers(1, 12))
def test_with_one_tenant_or_none_there_is_nothing_unfair(services: dict[str, float], rounds: int) -> None:
    assert fairness([{"default": services}] * rounds) == Fairness()


@given(st.lists(st.tuples(SERVICE, SERVICE), min_size=1, max_size=12))
def test_of_two_that_always_wait_the_gap_is_the_difference_of_their_service(pairs: list[tuple[float, float]]) -> None:
    found = fairness([{"default": {"ann": a, "bob": b}} for a, b in pairs])
    difference = abs(sum(a for a, _ in pairs) - sum(b for _, b in pairs))
    assert found.gap == pytest.approx(difference, rel=1e-6, abs=1e-3)


def test_a_crowd_that_came_later_makes_nobody_look_favoured() -> None:
    """Ann had half of a quiet pool, Bob a tenth of a busy one: each got what it was owed."""
    quiet = {"default": {"ann": 30.0, "eve": 30.0}}
    busy = {"default": {"bob": 6.0} | {f"t{n}": 6.0 for n in range(9)}}
    found = fairness([quiet] * 6 + [busy] * 6)
    assert (found.jain, found.gap, found.tenants) == (pytest.approx(1), pytest.approx(0), 12)


def test_tenants_are_compared_within_their_tier_only() -> None:
    found = fairness([{"priority": {"ann": 50.0, "bob": 50.0}, "batch": {"cho": 1.0, "dee": 1.0}}])
    assert (found.jain, found.gap) == (pytest.approx(1), pytest.approx(0))
    assert fairness([{"priority": {"ann": 50.0}, "batch": {"cho": 1.0}}]) == Fairness()


def test_one_that_waits_unserved_is_seen() -> None:
    found = fairness([{"default": {"ann": 10.0, "bob": 0.0}}] * 3)
    assert (found.jain, found.gap) == (pytest.approx(1 / 2), pytest.approx(30))


@given(st.lists(st.tuples(TIMES, TIMES)), TIMES, TIMES)
def test_spans_cover_a_time_if_each_moment_of_it_is_in_one(spans: list[tuple[int, int]], a: int, b: int) -> None:
    start, end = min(a, b), max(a, b)
    halves = range(2 * start, 2 * end + 1)  # also between two whole ms
    expected = all(any(2 * s <= moment <= 2 * e for s, e in spans) for moment in halves) if start < end else True
    assert covers(spans, start, end) == expected


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1e6)), st.integers(0, 10))
def test_the_top_and_the_rest_are_the_whole(amounts: dict[str, float], most: int) -> None:
    ranked, rest = top(amounts, most)
    assert len(ranked) == min(most, len(amounts))
    assert sum(amount for _, amount in ranked) + rest == pytest.approx(sum(amounts.values()))
    assert all(
        amounts[name] >= max((amounts[n] for n in amounts.keys() - dict(ranked)), default=0) for name, _ in ranked
    )
