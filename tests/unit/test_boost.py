"""The soft boost, and what it learns of a class of jobs."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dispatcher.policy.boost import MEMORY, ClassStats, boost_ms, learned

MOST_MS = 30_000
anything = st.floats(allow_nan=True, allow_infinity=True)
gammas = st.floats(0, 1000)
times = st.floats(0, 1e7)


def after(took: list[float], gamma: float, stats: ClassStats | None = None) -> ClassStats:
    stats = stats or ClassStats()
    for ms in took:
        stats = learned(stats, gamma, ms)
    return stats


@pytest.mark.parametrize(
    ("gamma", "w_ms", "boost"),
    [
        (0.2, 100, 19_610),  # 5 s · ln(1/(1 - e^-.02))
        (0.2, 1_000, 8_539),
        (0.2, 10_000, 727),
        (0.2, 1, MOST_MS),  # capped
        (2.0, 1_000, 73),  # a large γ: nearly first come, first served
        (0.0, 1_000, 0),
        (1000.0, 1_000_000, 0),
    ],
)
def test_the_boost_is_that_of_the_formula(gamma: float, w_ms: float, boost: float) -> None:
    assert boost_ms(gamma, w_ms, MOST_MS) == pytest.approx(boost, abs=1)


@given(anything, anything, st.floats(0, 1e9))
@example(5e-324, 1.0, 30_000)
@example(math.inf, math.inf, 30_000)
def test_the_boost_is_never_below_nothing_nor_above_its_cap(gamma: float, w_ms: float, most_ms: float) -> None:
    assert 0 <= boost_ms(gamma, w_ms, most_ms) <= most_ms


@given(anything, anything, anything, st.integers(0, 2**43))
def test_phi_is_finite(gamma: float, w_ms: float, most_ms: float, arrival_ms: int) -> None:
    assert math.isfinite(arrival_ms - boost_ms(gamma, w_ms, min(most_ms, 1e9)))


@given(gammas, st.lists(times, min_size=2, max_size=5))
def test_shorter_work_never_has_a_smaller_boost(gamma: float, works: list[float]) -> None:
    boosts = [boost_ms(gamma, w_ms, MOST_MS) for w_ms in sorted(works)]
    assert all(shorter >= longer * (1 - 1e-9) for shorter, longer in pairwise(boosts))


def test_a_job_that_arrives_later_by_more_than_the_cap_never_comes_first() -> None:
    for gamma in (0.001, 0.2, 10):
        long, short = 0 - boost_ms(gamma, 1e6, MOST_MS), MOST_MS + 1 - boost_ms(gamma, 1, MOST_MS)
        assert long < short, "age wins in the end"


def test_a_class_is_the_certainty_equivalent_of_what_its_jobs_took() -> None:
    gamma, took = 0.5, [500.0, 1_000.0, 4_000.0, 2_000.0]
    mean = sum(math.exp(gamma * ms / 1000) for ms in took) / len(took)
    stats = after(took, gamma)
    assert stats.n == 4
    assert stats.w_ms == pytest.approx(1000 * math.log(mean) / gamma)
    assert boost_ms(gamma, stats.w_ms, MOST_MS) == pytest.approx(1000 / gamma * math.log(mean / (mean - 1)))


@given(st.lists(st.floats(1, 60_000), min_size=1, max_size=20), st.floats(1e-6, 0.08))
def test_what_is_learned_is_between_the_mean_and_the_longest(took: list[float], gamma: float) -> None:
    w_ms = after(took, gamma).w_ms
    assert sum(took) / len(took) * (1 - 1e-6) <= w_ms <= max(took) * (1 + 1e-6)


@given(st.lists(anything, max_size=20), anything)
def test_what_is_learned_is_finite_and_no_less_than_nothing(took: list[float], gamma: float) -> None:
    assert 0 <= after([min(ms, 1e12) for ms in took], gamma).w_ms < math.inf


@pytest.mark.parametrize("gamma", [0.0, 1e-12])
def test_without_a_tail_to_mind_a_class_is_its_mean(gamma: float) -> None:
    assert after([1_000, 2_000, 6_000], gamma).w_ms == pytest.approx(3_000)


def test_a_change_of_gamma_keeps_what_was_learned() -> None:
    stats = after([2_000.0] * 20, 0.2)
    assert after([2_000.0] * 20, 0.8, stats).w_ms == pytest.approx(2_000)


def test_one_job_that_took_ten_minutes_is_forgotten_after_a_few_times_the_memory() -> None:
    stats = learned(after([2_000.0] * MEMORY, 0.2), 0.2, 600_000.0)
    assert stats.w_ms > 5_000, "it counts"
    assert after([2_000.0] * 4 * MEMORY, 0.2, stats).w_ms == pytest.approx(2_000, rel=0.1)


def test_a_cold_guess_weighs_as_many_samples_as_it_says() -> None:
    assert learned(ClassStats(n=3, w_ms=4_000), 0.0, 8_000).w_ms == pytest.approx(5_000)
