"""How far apart the tiers are in an engine: by γ, by how long answers take, and never so that they pass each other."""

from __future__ import annotations

import math
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.handover import EPOCH_MS
from dispatcher.policy.lead import (
    GAMMA_LEAD_MOST_MS,
    INT32_MOST,
    LONG_LEAD_MOST_MS,
    engine_priority,
    next_ms,
    of_tier_ms,
    wanted_ms,
)

INT32: Final = range(-INT32_MOST, INT32_MOST + 1)
anything = st.floats(allow_nan=True, allow_infinity=True)
leads_ms = st.floats(0, LONG_LEAD_MOST_MS)


@pytest.mark.parametrize(
    ("gamma", "met_s", "leads_s"),
    [
        (0.2, 0.0, (20.79, 13.86, 6.93, 0)),  # steps of ln 4/γ
        (0.01, 0.0, (120, 80, 40, 0)),  # capped
        (0.0, 0.0, (120, 80, 40, 0)),  # no boost: the tiers still have their order
        (10.0, 0.0, (0.416, 0.277, 0.139, 0)),
        (0.2, 1.0, (20.79, 13.86, 6.93, 0)),  # short answers: as γ says
        (0.2, 18.0, (90, 60, 30, 0)),
        (0.2, 600.0, (900, 600, 300, 0)),  # capped
        (0.2, math.inf, (900, 600, 300, 0)),
        (0.2, math.nan, (20.79, 13.86, 6.93, 0)),
    ],
)
def test_each_tier_leads_the_next_by_the_same(gamma: float, met_s: float, leads_s: tuple[float, ...]) -> None:
    highest_ms = wanted_ms(4, gamma, 1000 * met_s)
    assert [of_tier_ms(tier, 4, highest_ms) / 1000 for tier in range(4)] == pytest.approx(leads_s, abs=0.01)


@given(st.integers(1, 10), anything, anything)
def test_a_higher_tier_never_leads_by_less_and_the_lowest_by_nothing(tiers: int, gamma: float, met_ms: float) -> None:
    leads = [of_tier_ms(tier, tiers, wanted_ms(tiers, gamma, met_ms)) for tier in range(tiers)]
    assert leads == sorted(leads, reverse=True)
    assert leads[-1] == 0, "one tier alone, too"
    assert leads[0] <= max(GAMMA_LEAD_MOST_MS, LONG_LEAD_MOST_MS)


@given(
    st.integers(2, 10),
    leads_ms,
    st.lists(st.tuples(leads_ms, st.floats(1, 60_000)), min_size=1, max_size=30),
    st.data(),
)
def test_whatever_is_wanted_one_of_a_lower_tier_that_comes_later_never_passes_one_of_a_higher(
    tiers: int, first_ms: float, wanted: list[tuple[float, float]], data: st.DataObject
) -> None:
    higher = data.draw(st.integers(0, tiers - 2))
    lower = data.draw(st.integers(higher + 1, tiers - 1))
    at_ms, lead_ms = 0.0, first_ms
    place_ms = -of_tier_ms(higher, tiers, lead_ms)
    for wish_ms, passed_ms in wanted:
        at_ms, lead_ms = at_ms + passed_ms, next_ms(lead_ms, wish_ms, passed_ms)
        assert place_ms <= at_ms - of_tier_ms(lower, tiers, lead_ms) + 1e-6


def test_the_lead_rises_with_time_and_falls_slowly() -> None:
    assert next_ms(20_000, 900_000, 5_000) == 25_000
    assert next_ms(20_000, 22_000, 5_000) == 22_000
    assert next_ms(900_000, 20_000, 5_000) == 899_500
    assert next_ms(20_100, 20_000, 5_000) == 20_000


@given(st.floats(-1e18, 1e18), st.integers(1, 10), st.data(), leads_ms)
def test_an_engine_priority_always_fits_32_bits(phi_ms: float, tiers: int, data: st.DataObject, lead_ms: float) -> None:
    tier = data.draw(st.integers(0, tiers - 1))
    assert engine_priority(phi_ms, tier, tiers, lead_ms, EPOCH_MS) in INT32


def test_in_the_engine_a_smaller_phi_goes_first_and_a_higher_tier_leads() -> None:
    at, lead_ms = EPOCH_MS + 86_400_000, wanted_ms(4, 0.2)
    assert engine_priority(at, 1, 4, lead_ms, EPOCH_MS) < engine_priority(at + 1_000, 1, 4, lead_ms, EPOCH_MS)
    assert engine_priority(at + 5_000, 0, 4, lead_ms, EPOCH_MS) < engine_priority(at, 1, 4, lead_ms, EPOCH_MS)
    assert engine_priority(at, 1, 4, lead_ms, EPOCH_MS) < engine_priority(at + 8_000, 0, 4, lead_ms, EPOCH_MS), (
        "age wins"
    )


def test_the_order_lasts_for_six_years_after_the_epoch() -> None:
    late, lead_ms = EPOCH_MS + 6 * 365 * 86_400_000, wanted_ms(4, 0.2)
    assert engine_priority(late, 3, 4, lead_ms, EPOCH_MS) < engine_priority(late + 1_000, 3, 4, lead_ms, EPOCH_MS)
