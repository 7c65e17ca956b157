"""A pool's history as values: what is written is read, waits that are counted give percentiles."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.trend import (
    LONGEST_CLASS,
    STEPS,
    Point,
    Served,
    ServedTenant,
    ServiceGap,
    TierPoint,
    class_of,
    packed,
    percentile,
    served_json,
    served_of,
    together,
    unpacked,
)

counts = st.integers(0, 10**6)
tier_points = st.builds(
    TierPoint,
    depth=counts,
    oldest_ms=st.integers(0, 10**10),
    inflight=counts,
    came=counts,
    ended=counts,
    tokens=counts,
    waits=st.dictionaries(st.integers(0, LONGEST_CLASS), st.integers(1, 10**6), max_size=5),
)


@given(st.dictionaries(st.from_regex(r"[a-z0-9_-]{1,32}", fullmatch=True), tier_points, max_size=4))
def test_what_is_packed_is_unpacked(tiers: dict[str, TierPoint]) -> None:
    point = Point(7_000, 5.0, tiers, slots=8, busy=0.25, gamma=0.125, replicas=2)
    seen = unpacked(7_000, packed(point))
    empty = TierPoint()
    assert {name: seen.tiers.get(name, empty) for name in tiers} == tiers
    assert (seen.at_ms, seen.took_s, seen.slots, seen.busy, seen.gamma, seen.replicas) == (
        7_000,
        5.0,
        8,
        0.25,
        0.125,
        2,
    )


def test_a_pool_at_rest_takes_a_few_bytes_and_nothing_is_known_of_it() -> None:
    rest = Point(0, 5.0, {name: TierPoint() for name in ("priority", "default", "flex", "batch")})
    assert packed(rest) == "took+5"
    assert unpacked(0, "took+5") == Point(0, 5.0, {})
    assert Point(0, 0.0, {}).per_s(3) is None
    assert Point(0, 5.0, {}).per_s(10) == 2.0


@given(st.lists(st.floats(0, 2e9), min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_percentile_is_off_by_one_class_at_the_most(waits_ms: list[float], share: float) -> None:
    waits: dict[int, int] = {}
    for wait_ms in waits_ms:
        waits[class_of(wait_ms)] = waits.get(class_of(wait_ms), 0) + 1
    true_ms = sorted(waits_ms)[math.ceil(share * len(waits_ms)) - 1]
    found = percentile(waits, share)
    assert found is not None
    assert true_ms / math.sqrt(2) - 1.5 <= found <= true_ms * math.sqrt(2) + 1.5


def test_of_no_jobs_there_is_no_percentile() -> None:
    assert percentile({}, 0.5) is None


@pytest.mark.parametrize(("wait_ms", "k"), [(0, 0), (0.5, 0), (1, 0), (1.42, 1), (2, 2), (1024, 20), (1e99, 63)])
def test_waits_are_counted_in_classes_of_the_square_root_of_two(wait_ms: float, k: int) -> None:
    assert class_of(wait_ms) == k


def test_points_together_add_up_or_keep_the_largest() -> None:
    one, other = TierPoint(3, 500, 1, 10, 9, 90, {4: 9}), TierPoint(2, 900, 4, 1, 2, 30, {4: 1, 7: 1})
    assert together([one, other]) == TierPoint(3, 900, 4, 11, 11, 120, {4: 10, 7: 1})
    assert together([]) == TierPoint()


def test_the_spans_are_what_they_are_called() -> None:
    assert {span: step.s * step.kept / 3600 for span, step in STEPS.items()} == {"15m": 0.25, "6h": 6, "7d": 168}


def test_who_was_served_is_read_as_it_was_written() -> None:
    tenants = (ServedTenant("ann", 3, 40, 3.0, 2.5), ServedTenant("bob", 0, 0, 0.0, 2.5))
    served = Served(1, 60.0, "requests", 3, 40, tenants, (ServiceGap("default", 2.5, "ann", "bob"),))
    assert served_of(served_json(served)) == served
