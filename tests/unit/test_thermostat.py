"""γ from the tail: its range under any input, and which way it moves."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.policy.thermostat import FEWEST, Sample, Thermostat, gamma_th, next_gamma, tail_ratio

B_MS = 30_000.0
anything = st.floats(allow_nan=True, allow_infinity=True)
any_samples = st.builds(
    lambda few, times: few * times,
    st.lists(st.builds(Sample, anything, anything), max_size=8),
    st.sampled_from([1, FEWEST]),
)


def even(n: int = FEWEST, *, service_ms: float = 100.0) -> list[Sample]:
    return [Sample(1_000.0, service_ms)] * n


def heavy(n: int = FEWEST, *, service_ms: float = 100.0) -> list[Sample]:
    """t99 is four times t95."""
    return [*even(n - n // 40, service_ms=service_ms), *([Sample(4_000.0, service_ms)] * (n // 40))]


def steps(
    samples: list[Sample], *, rho: float = 0.5, oldest_ms: float = 0.0, known: Thermostat | None = None, n: int = 50
) -> Thermostat:
    known = known or Thermostat()
    for _ in range(n):
        known = next_gamma(known, samples, rho, oldest_ms, B_MS)
    return known


@settings(max_examples=200)
@given(st.lists(st.tuples(any_samples, anything, anything, anything), min_size=1, max_size=4))
def test_gamma_stays_in_its_range_under_any_input(
    rounds: list[tuple[list[Sample], float, float, float]],
) -> None:
    known = Thermostat()
    for samples, rho, oldest_ms, most_ms in rounds:
        known = next_gamma(known, samples, rho, oldest_ms, most_ms)
        assert 0 < known.least <= known.gamma <= known.most < math.inf
        assert known.tail is None or math.isfinite(known.tail)


@pytest.mark.parametrize(
    ("service_ms", "rho", "theory"),
    [
        ([1_000.0] * 10, 0.5, 2.0),  # 2·.5/(.5·1·1)
        ([0.0] * 9 + [10_000.0], 0.5, 0.2),  # cv² = 9
        ([1_000.0], 0.0, 38.0),  # ρ counts as .05
        ([1_000.0], 7.0, 2 * 0.05 / 0.95),  # … as .95
        ([1_000.0], math.nan, 2 * 0.05 / 0.95),
    ],
)
def test_theory(service_ms: list[float], rho: float, theory: float) -> None:
    assert gamma_th(service_ms, rho) == pytest.approx(theory, rel=0.01)


def test_an_even_tail_takes_gamma_to_the_top_and_a_heavy_one_down() -> None:
    top = 3 * gamma_th([100.0], 0.5)
    assert steps(even()).gamma == pytest.approx(top)
    assert tail_ratio([each.sojourn_ms for each in heavy()]) == 4
    assert steps(heavy()).gamma == pytest.approx(top / 13)
    assert steps(heavy()).least == pytest.approx(top / 30)


def test_a_step_goes_three_tenths_of_the_way() -> None:
    known = Thermostat(gamma=20.0, least=1.0, most=60.0, why="steered")
    after = next_gamma(known, even(), 0.5, 0.0, B_MS)
    assert after.gamma == pytest.approx(0.7 * 20 + 0.3 * 60)
    assert after.why == "steered"


def test_before_it_was_ever_steered_it_is_gamma_0_of_what_is_known() -> None:
    new = next_gamma(Thermostat(), [], 0.5, 0.0, B_MS)
    assert (new.gamma, new.why) == (pytest.approx(0.3), "start")  # 1 s of work, exponential
    few = next_gamma(new, even(10), 0.5, 0.0, B_MS)
    assert (few.gamma, few.why) == (pytest.approx(0.3 * gamma_th([100.0], 0.5)), "start")


def test_a_lull_changes_nothing() -> None:
    known = steps(even())
    lull = next_gamma(known, even(FEWEST - 1, service_ms=9_000.0), 0.05, 0.0, B_MS)
    assert lull == replace(known, tail=None, samples=FEWEST - 1, why="few")


def test_with_long_jobs_under_load_the_floor_holds() -> None:
    """3γ_th is .016 there, and 4/B_max .133: smaller, and nearly every job has the boost B_max."""
    long = steps(even(service_ms=10_000.0), rho=1.3)
    assert (long.least, long.gamma, long.most) == (pytest.approx(4 / 30), pytest.approx(4 / 30), pytest.approx(4 / 30))


def test_no_step_goes_down_while_the_oldest_job_has_waited_too_long() -> None:
    known = steps(even())
    held = next_gamma(known, heavy(), 0.5, B_MS + 1, B_MS)
    assert (held.gamma, held.why) == (known.gamma, "held")
    assert next_gamma(held, heavy(), 0.5, B_MS, B_MS).gamma < held.gamma
    low = steps(heavy())
    assert next_gamma(low, even(), 0.5, B_MS + 1, B_MS).gamma > low.gamma, "up it may go"


def test_a_range_that_falls_below_gamma_waits_too() -> None:
    known = steps(even())
    held = next_gamma(known, even(service_ms=5_000.0), 0.9, B_MS + 1, B_MS)
    assert held.gamma == held.most == known.gamma


def test_only_the_last_two_thousand_samples_count() -> None:
    assert steps(heavy(1_000) + even(2_000)).tail == 1
    assert steps(heavy(1_000) + even(2_000)).samples == 2_000
