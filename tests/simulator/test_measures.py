"""Measures: percentiles that hide nothing, service as VTC defines it, and intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.simulator.backend import Use
from dispatcher.simulator.confidence import estimate
from dispatcher.simulator.measures import Slo, Span, goodput, groups, measure, percentile, times
from dispatcher.simulator.request import Request
from dispatcher.simulator.service import fairness, jain
from dispatcher.simulator.world import Run

NAN = math.nan


def request(
    came: float,
    first: float = NAN,
    done: float = NAN,
    *,
    tenant: str = "a",
    tier: str = "default",
    prompt: int = 10,
    answer: int = 20,
    made: int = 0,
) -> Request:
    """Times in seconds."""
    found = Request(prompt=prompt, answer=answer, made=made, number=0, tenant=tenant, tier=tier)
    found.arrived_ms, found.first_ms, found.done_ms = 1000 * came, 1000 * first, 1000 * done
    return found


def run_of(requests: Sequence[Request], end_s: float) -> Run:
    uses = [Use("b1", 900 * end_s, 2, 30, 0, 0), Use("b2", 500 * end_s, 1, 4, 0, 0)]
    return Run(requests, uses, 1000 * end_s)


# --- times ------------------------------------------------------------------------------------------------------------


def test_percentiles_are_by_nearest_rank() -> None:
    assert [percentile(range(1, 101), percent) for percent in (0, 1, 7, 50, 99, 99.1, 100)] == [
        1,
        1,
        7,
        50,
        99,
        100,
        100,
    ]
    assert math.isnan(percentile([], 50))


@given(st.lists(st.floats(0, 1e9), min_size=1), st.integers(1, 100))
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(values: list[float], percent: int) -> None:
    found = percentile(sorted(values), percent)
    assert found in values
    assert 100 * sum(value <= found for value in values) >= percent * len(values)
    assert 100 * sum(value < found for value in values) < percent * len(values)


def test_who_was_not_answered_counts_as_infinitely_late() -> None:
    found = measure(run_of([request(1, 2, 4), request(2, 3), request(3)], 10))
    assert (found.all.n, found.all.done) == (3, 1)
    assert found.all.ttft.p50 == 1000
    assert found.all.ttft.p99 == found.all.ttft.mean == math.inf
    assert found.all.e2e.p50 == math.inf
    assert math.isnan(times([]).p99)


def test_tiers_stand_in_their_order_and_tenants_by_name() -> None:
    requests = [request(0, 1, 2, tenant="z", tier="batch"), request(0, 1, 2, tenant="b", tier="priority")]
    found = measure(run_of([*requests, request(0, 1, 2, tier="other")], 10))
    assert list(found.tiers) == ["priority", "batch", "other"]
    assert list(found.tenants) == ["a", "b", "z"]
    assert found.tenants["z"].n == 1


def test_requests_can_be_measured_by_any_class() -> None:
    found = groups([request(0, 1, 2, prompt=5), request(0, 3, 4, prompt=500)], lambda one: f"{one.prompt > 100}")
    assert {name: group.ttft.p50 for name, group in found.items()} == {"False": 1000, "True": 3000}


def test_times_are_of_those_who_came_in_the_span_and_rates_of_those_who_ended_in_it() -> None:
    requests = [request(1, 2, 12), request(11, 13, 15), request(19, 25, 29)]
    found = measure(run_of(requests, 30), span=Span(10_000, 20_000))
    assert found.all.n == 2
    assert found.requests_per_s == pytest.approx(0.2)
    assert found.answer_tokens_per_s == pytest.approx(4)
    assert found.prompt_tokens_per_s == pytest.approx(2)


def test_a_span_without_an_end_goes_to_the_end_of_the_run() -> None:
    assert measure(run_of([request(1, 2, 12)], 30), span=Span(10_000)).requests_per_s == pytest.approx(1 / 20)


def test_use_of_the_backends_is_their_mean_and_their_sum() -> None:
    found = measure(run_of([request(1, 2, 3)], 10))
    assert found.utilisation == pytest.approx(0.7)
    assert (found.preemptions, found.wasted_tokens) == (3, 34)


def test_goodput_counts_those_within_the_bounds_of_their_tier() -> None:
    requests = [
        request(0, 1, 5, tier="priority"),
        request(0, 2, 5, tier="priority"),
        request(0, 1, 9, tier="priority"),
        request(0, 9, 9, tier="batch"),
        request(0, 1, tier="batch"),
    ]
    found = goodput(run_of(requests, 10), {"priority": Slo(ttft_ms=1_500, e2e_ms=6_000)})
    assert found.share == pytest.approx(2 / 5)
    assert found.per_s == pytest.approx(0.2)


# --- service ----------------------------------------------------------------------------------------------------------


def steady(tenant: str, every_s: float, *, until_s: int = 120, waits_s: float = 30.0, answer: int = 5) -> list[Request]:
    """One answer after the other, each request having waited for long: always backlogged."""
    return [
        request(max(0.0, n * every_s - waits_s), n * every_s, n * every_s + every_s, tenant=tenant, answer=answer)
        for n in range(int(until_s / every_s))
    ]


def test_the_service_gap_is_the_largest_difference_within_a_minute() -> None:
    """10 + 2 × 5 tokens: one tenant has 60 requests in a minute, the other 15."""
    found = fairness([*steady("a", 1), *steady("b", 4)], 120_000)
    assert found.largest_gap == pytest.approx(20 * (60 - 15), abs=10)
    assert found.jain == pytest.approx((1 + 1 / 4) ** 2 / (2 * (1 + 1 / 16)), abs=0.01)
    assert found.windows > 0


def test_equal_service_leaves_no_gap() -> None:
    found = fairness([*steady("a", 1), *steady("b", 1)], 120_000)
    assert found.largest_gap == pytest.approx(0)
    assert found.jain == pytest.approx(1)


def test_a_tenant_that_asks_for_little_is_not_compared() -> None:
    """Its requests are answered at once: it is not backlogged, whatever little it gets."""
    found = fairness([*steady("a", 1), *steady("b", 10, waits_s=0.1)], 120_000)
    assert (found.largest_gap, found.jain, found.windows) == (0, 1, 0)


def test_a_backlog_that_ends_before_the_window_does_is_not_compared() -> None:
    waited = [request(0, 59.5, 60, tenant="b")]
    assert fairness([*steady("a", 1), *waited], 120_000).windows == 0
    waited = [request(0, 60, 61, tenant="b")]
    assert fairness([*steady("a", 1), *waited], 120_000).windows == 1


def test_an_unanswered_tenant_waits_until_the_end_and_gets_nothing() -> None:
    found = fairness([*steady("a", 1), request(0, tenant="b")], 120_000)
    assert found.largest_gap == pytest.approx(20 * 60, abs=30)
    assert found.jain == pytest.approx(0.5)


def test_service_counts_as_it_comes() -> None:
    """100 tokens of prompt at 10 s, 2 × 100 of answer until 110 s: of it 2 × 50 by 60 s; half an answer was made."""
    waiting = [request(0, tenant=tenant) for tenant in "ab"]
    for served in (request(0, 10, 110, prompt=100, answer=100), request(0, 10, prompt=100, answer=999, made=110)):
        assert fairness([*waiting, served], 120_000, step_ms=60_000).largest_gap == pytest.approx(200, abs=1)


@given(
    st.lists(
        st.tuples(st.floats(0, 90), st.floats(0, 90), st.floats(0, 60), st.sampled_from("abc")), min_size=1, max_size=30
    )
)
def test_no_gap_exceeds_all_that_was_served(found: list[tuple[float, float, float, str]]) -> None:
    requests = [request(came, came + wait, came + wait + takes, tenant=who) for came, wait, takes, who in found]
    measured = fairness(requests, 1000 * max(came + wait + takes for came, wait, takes, _ in found))
    assert 0 <= measured.largest_gap <= 50 * len(requests) + 1e-6
    assert 1 / 3 - 1e-9 <= measured.jain <= 1 + 1e-9


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_jains_index_lies_between_one_part_and_one(shares: list[float]) -> None:
    assert 1 / len(shares) - 1e-9 <= jain(shares) <= 1 + 1e-9


# --- intervals --------------------------------------------------------------------------------------------------------


def test_the_interval_of_five_seeds_is_students() -> None:
    found = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.mean == 3.0
    assert found.half == pytest.approx(2.776 * math.sqrt(2.5) / math.sqrt(5))


def test_where_there_is_no_interval_none_is_claimed() -> None:
    assert math.isnan(estimate([1.0]).half)
    late = estimate([1.0, math.inf])
    assert late.mean == math.inf
    assert math.isnan(late.half)
    assert math.isnan(estimate([]).mean)
    assert 0 < estimate([float(n) for n in range(100)]).half < 7
