"""SLOs as they are typed."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.simulator.measures import Slo
from dispatcher.simulator.request import Request
from dispatcher.simulator.slo import (
    METRICS,
    PERCENTS,
    UNITS_MS,
    Target,
    bounds,
    parse_ms,
    parse_targets,
    shown,
    written,
)
from fairlane.errors import InvalidRequest, UnknownTier

TIERS = ("priority", "default", "batch")


def request(tier: str, ttft_s: float, e2e_s: float = math.nan) -> Request:
    return Request(
        prompt=10, answer=20, number=0, tenant="a", tier=tier,
        arrived_ms=5000.0, first_ms=5000 + 1000 * ttft_s, done_ms=5000 + 1000 * e2e_s,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "ms"), [("250ms", 250), ("2s", 2000), ("1.5s", 1500), ("90s", 90_000), ("2m", 120_000), ("1h", 3_600_000)]
)
def test_times_have_a_unit(text: str, ms: float) -> None:
    assert parse_ms(text) == ms


@given(
    st.builds(
        Target,
        st.sampled_from(TIERS),
        st.sampled_from(list(METRICS)),
        st.sampled_from(PERCENTS),
        st.integers(1, 100_000).flatmap(lambda n: st.sampled_from([float(n * size) for size in UNITS_MS.values()])),
    )
)
def test_what_is_written_is_read_back(target: Target) -> None:
    assert parse_targets(str(target), TIERS) == (target,)


def test_several_are_read_in_their_order() -> None:
    first, second = parse_targets("default:ttft_p99=2s, batch:e2e_p50=1h", TIERS)
    assert (first.what, first.bound_ms) == ("default:ttft_p99", 2000)
    assert (second.what, second.bound_ms) == ("batch:e2e_p50", 3_600_000)
    assert parse_targets(None, TIERS) == ()


@pytest.mark.parametrize(
    "wrong",
    ["2s", "default", "default:ttft=2s", "default:ttft_p98=2s", "default:wait_p99=2s", "default:ttft_p99:2s",
     "a:b:c=1s", "default:ttft_p99=2s,", ",", "default:ttft_p99="],
)  # fmt: skip
def test_a_malformed_one_is_quoted_and_the_form_is_shown(wrong: str) -> None:
    with pytest.raises(InvalidRequest, match=r"is no SLO\. Say TIER:METRIC_PNN=TIME.*default:ttft_p99=2s"):
        parse_targets(wrong, TIERS)


@pytest.mark.parametrize("time", ["2", "s", "-2s", "0s", "2 s", "2d", "infs", "1e3s", "nan"])
def test_a_time_without_sense_is_quoted(time: str) -> None:
    with pytest.raises(InvalidRequest, match="is no time: say a number above 0 and ms, s, m or h"):
        parse_targets(f"default:ttft_p99={time}", TIERS)


def test_an_unknown_tier_is_told_with_those_that_are() -> None:
    with pytest.raises(UnknownTier, match=r"no tier gold\. There are: priority, default, batch"):
        parse_targets("gold:ttft_p99=2s", TIERS)


def test_the_same_twice_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="default:ttft_p99 is there twice"):
        parse_targets("default:ttft_p99=2s,default:ttft_p99=3s", TIERS)
    assert len(parse_targets("default:ttft_p99=2s,default:ttft_p50=1s,default:e2e_p99=1m", TIERS)) == 3


def test_it_is_met_by_nearest_rank_and_not_by_those_who_wait_for_ever() -> None:
    (median,) = parse_targets("default:ttft_p50=2s", TIERS)
    answered = [request("default", 1.0), request("default", 2.0), request("default", 9.0), request("batch", 99.0)]
    assert median.seen_ms(answered) == 2000
    assert median.allows(2000)
    assert not median.allows(2000.1)
    waiting = [request("default", math.nan) for _ in range(4)]
    assert median.seen_ms(answered + waiting) == math.inf
    assert not median.allows(math.inf)


def test_a_tier_without_requests_disappoints_nobody() -> None:
    (target,) = parse_targets("priority:ttft_p99=1ms", TIERS)
    assert target.allows(target.seen_ms([request("batch", 9.0)]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("default:ttft_p99=2s,default:ttft_p50=1s", {"default": Slo(ttft_ms=2000)}),
        ("default:ttft_p50=1s,default:e2e_p95=1m", {"default": Slo(ttft_ms=1000, e2e_ms=60_000)}),
    ],
)
def test_one_request_is_held_to_the_highest_percentile_of_each_metric(text: str, expected: Mapping[str, Slo]) -> None:
    assert bounds(parse_targets(text, TIERS)) == expected


def test_times_are_shown_to_be_read() -> None:
    times = (0.4, 42, 1240, 59_900, 150_000, 7_200_000, math.inf, math.nan)
    assert [shown(ms) for ms in times] == ["0 ms", "42 ms", "1.24 s", "59.9 s", "2.5 min", "2 h", "never", "-"]
    assert [written(ms) for ms in (1500, 90_000, 120_000)] == ["1500ms", "90s", "2m"]
