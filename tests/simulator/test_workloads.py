"""Workloads: what a trace may look like, that a seed says it all, and that one purpose's dice are not another's."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.simulator.request import Arrival
from dispatcher.simulator.workloads.lengths import CHAT, KINDS, Kind, LogNormal, Mixed, Pareto, poisson, with_lengths
from dispatcher.simulator.workloads.load import at_load, rate_per_s, repeated, scaled, windowed
from dispatcher.simulator.workloads.tenants import even, heavy, on_off, with_tenants, zipf
from dispatcher.simulator.workloads.tiers import MIXES, cuts, parse_mix, tier_names, with_tiers
from dispatcher.simulator.workloads.trace import dump_trace, read_trace
from fairlane.errors import InvalidRequest

HEADER = "arrival_s,input_tokens,output_tokens\n"
MIX = st.lists(st.floats(0.01, 1), min_size=1, max_size=10).map(lambda found: [each / sum(found) for each in found])


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def some(count: int = 2_000, seed: int = 1) -> list[Arrival]:
    return poisson(10.0, count / 10, CHAT, seed)


# --- traces -----------------------------------------------------------------------------------------------------------


def test_a_trace_is_read_from_its_first_arrival_on(tmp_path: Path) -> None:
    found = read_trace(written(tmp_path, HEADER + "1700000004.5,374,44\n1700000003.5,9,8\n"))
    assert found == [Arrival(0.0, "", "", 9, 8), Arrival(1000.0, "", "", 374, 44)]


def test_columns_may_stand_in_any_order(tmp_path: Path) -> None:
    text = "\ufefftier, output_tokens,tenant,arrival_s,input_tokens\n\nbatch,5,acme,0, 7\n"
    assert read_trace(written(tmp_path, text)) == [Arrival(0.0, "acme", "batch", 7, 5)]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "no column arrival_s"),
        ("arrival_s,input_tokens\n", 1, "no column output_tokens"),
        ("arrival_s,input_tokens,output_tokens,tennant\n", 1, "'tennant' is unknown"),
        ("arrival_s,input_tokens,output_tokens,arrival_s\n", 1, "twice"),
        (HEADER + "0,1,1\n1,2\n", 3, "2 values for 3 columns"),
        (HEADER + "soon,1,1\n", 2, "arrival_s is 'soon'"),
        (HEADER + "nan,1,1\n", 2, "arrival_s is 'nan'"),
        (HEADER + "1e308,1,1\n", 2, "arrival_s"),
        (HEADER + "-1,1,1\n", 2, "arrival_s"),
        (HEADER + "0,1.5,1\n", 2, "input_tokens is '1.5'"),
        (HEADER + "0,1,1\n\n0,1,0\n", 4, "output_tokens is '0'"),
        (HEADER + f"0,1,{10**400}\n", 2, "output_tokens"),
        (HEADER + '0,1,"1\n', 2, "unexpected end"),
        ("tenant," + HEADER + ",0,1,1\n", 2, "tenant is empty"),
        (
            "tenant," + HEADER + "ann,0,1,1\nAnn Smith,0,1,1\n",
            3,
            "tenant is 'Ann Smith'; Fairlane takes names of the form",
        ),
        ("tenant," + HEADER + "a\0b,0,1,1\n", 2, r"tenant is 'a\x00b'"),
        ("tenant," + HEADER + "\x1b[31m,0,1,1\n", 2, r"tenant is '\x1b[31m'"),
        ("tenant," + HEADER + f"{'x' * 129},0,1,1\n", 2, "tenant is 'xxx"),
        ("tier," + HEADER + "Gold,0,1,1\n", 2, "tier is 'Gold'"),
        (f"{'x' * 1000}," + HEADER, 1, f"the column '{'x' * 40}' is unknown"),
        (HEADER + "0,1,1\n" + "x" * 20_000, 2, "more than 10,000 characters"),
    ],
)
def test_what_is_wrong_with_a_trace_is_told_with_its_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidRequest) as told:
        read_trace(path)
    assert f"{path}, line {line}: " in told.value.message
    assert what in told.value.message


def test_a_file_that_is_no_trace_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_trace(tmp_path / "missing.csv")
    with pytest.raises(InvalidRequest, match="no requests"):
        read_trace(written(tmp_path, HEADER))
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidRequest, match="line 1"):
        read_trace(tmp_path / "binary.csv")


@pytest.mark.parametrize("named", [True, False])
def test_a_trace_that_was_written_is_read_as_it_was(tmp_path: Path, named: bool) -> None:
    arrivals = windowed(some(50), some(50)[0].at_ms, 5_000)
    if named:
        arrivals = with_tiers(with_tenants(arrivals, even(3), 1), tier_names(4), MIXES["uniform"], 1)
    again = read_trace(written(tmp_path, dump_trace(arrivals)))
    assert [one.at_ms for one in again] == pytest.approx([one.at_ms for one in arrivals], abs=0.001)
    assert [(one.tenant, one.tier, one.prompt) for one in again] == [(a.tenant, a.tier, a.prompt) for a in arrivals]


# --- drawn workloads --------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_workload() -> None:
    assert some(seed=3) == some(seed=3) != some(seed=4)


def test_what_is_drawn_for_one_purpose_does_not_change_another() -> None:
    plain = some()
    longer = with_lengths(plain, KINDS["reasoning"], 1)
    assert [one.at_ms for one in longer] == [one.at_ms for one in plain]
    tenants = [one.tenant for one in with_tenants(plain, zipf(7), 1)]
    mixed = with_tenants(with_tiers(longer, tier_names(2), MIXES["normal"], 1), zipf(7), 1)
    assert [one.tenant for one in mixed] == tenants
    assert poisson(10.0, 200, KINDS["reasoning"], 1) == longer


def test_poisson_arrivals_have_their_rate_and_vary_like_it() -> None:
    times = [one.at_ms for one in poisson(20.0, 400, CHAT, 1)]
    assert len(times) == pytest.approx(8_000, rel=0.03)
    seconds = Counter(int(ms // 1000) for ms in times)
    mean = fmean(seconds[n] for n in range(400))
    assert fmean((seconds[n] - mean) ** 2 for n in range(400)) == pytest.approx(mean, rel=0.2)


def test_lengths_have_their_median_and_a_heavy_tail() -> None:
    drawn = with_lengths([Arrival(0, "", "", 1, 1)] * 4_000, Kind(LogNormal(100, 1.0, 5_000), Pareto(10, 1.2, 900)), 1)
    assert median(one.prompt for one in drawn) == pytest.approx(100, rel=0.1)
    assert median(one.answer for one in drawn) == pytest.approx(10 * 2 ** (1 / 1.2), rel=0.1)
    assert fmean(one.prompt for one in drawn) > 1.5 * 100
    assert max(one.answer for one in drawn) == 900


def test_a_mixed_load_has_of_each_kind_its_share() -> None:
    one, other = (Kind(LogNormal(n, 0.0, n), LogNormal(n, 0.0, n)) for n in (1, 2))
    drawn = with_lengths([Arrival(0, "", "", 1, 1)] * 4_000, Mixed(((3, one), (1, other))), 1)
    assert fmean(each.prompt == 1 for each in drawn) == pytest.approx(0.75, abs=0.03)


@given(st.floats(0.1, 1e5), st.floats(0, 5), st.integers(1, 10_000), st.integers(0, 9))
def test_no_length_is_out_of_bounds(median_: float, sigma: float, most: int, seed: int) -> None:
    kind = Kind(LogNormal(median_, sigma, most), Pareto(median_, 0.1 + sigma, most))
    (one,) = with_lengths([Arrival(0, "", "", 1, 1)], kind, seed)
    assert 1 <= one.prompt <= most
    assert 1 <= one.answer <= most


# --- tiers ------------------------------------------------------------------------------------------------------------


def test_each_tier_has_its_share_of_the_mix() -> None:
    found = Counter(one.tier for one in with_tiers(some(5_000), tier_names(4), MIXES["enterprise"], 1))
    shares = [found[tier] / found.total() for tier in tier_names(4)]
    assert shares == pytest.approx(MIXES["enterprise"], abs=0.02)


def test_the_highest_tier_holds_the_same_requests_however_many_tiers_there_are() -> None:
    plain = some(500)
    highest = [
        {
            n
            for n, one in enumerate(with_tiers(plain, tier_names(k), MIXES["normal"], 1))
            if one.tier == tier_names(k)[0]
        }
        for k in range(2, 11)
    ]
    assert highest[0]
    assert all(each == highest[0] for each in highest)


def test_a_mix_is_cut_into_fewer_and_more_tiers_along_its_shares() -> None:
    assert cuts(MIXES["enterprise"], 1) == [1.0]
    assert cuts(MIXES["enterprise"], 2) == pytest.approx([0.1, 1.0])
    assert cuts(MIXES["enterprise"], 3) == pytest.approx([0.1, 0.325, 1.0])
    assert cuts(MIXES["enterprise"], 10) == pytest.approx([0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.6, 0.8, 1.0])


@given(MIX, st.integers(1, 10))
def test_any_mix_can_be_cut_into_any_number_of_tiers(mix: list[float], tiers: int) -> None:
    found = cuts(mix, tiers)
    assert len(found) == tiers
    assert found == sorted(found)
    assert found[-1] == 1.0
    assert tiers == 1 or len(mix) == 1 or found[0] == pytest.approx(mix[0])


def test_a_mix_is_known_by_name_or_by_its_shares() -> None:
    assert parse_mix("uniform") == MIXES["uniform"]
    assert parse_mix("0.2,0.3,0.5") == (0.2, 0.3, 0.5)
    for text in ("", "even", "0.5,0.6", "1.5,-0.5", "nan,1"):
        with pytest.raises(InvalidRequest, match="is no mix"):
            parse_mix(text)


# --- tenants ----------------------------------------------------------------------------------------------------------


def test_a_heavy_tenant_sends_so_many_times_what_each_of_the_others_sends() -> None:
    found = Counter(one.tenant for one in with_tenants(some(10_000), heavy(9), 1))
    others = [found[name] for name in found if name != "heavy"]
    assert len(others) == 9
    assert found["heavy"] / fmean(others) == pytest.approx(10, rel=0.1)


def test_shares_by_zipf_fall_with_the_rank() -> None:
    shares = zipf(43)
    assert next(iter(shares)) == "tenant-01"
    assert shares["tenant-01"] == pytest.approx(10 * shares["tenant-10"])
    assert len(set(even(5).values())) == 1


def test_an_on_off_tenant_is_silent_and_loses_nothing() -> None:
    plain = with_tenants(some(6_000), even(2), 1)
    found = on_off(plain, 20, 40, 1)
    assert Counter(one.tenant for one in found) == Counter(one.tenant for one in plain)
    assert [one.at_ms for one in found] == sorted(one.at_ms for one in found)
    for tenant in ("tenant-1", "tenant-2"):
        times = [one.at_ms for one in found if one.tenant == tenant]
        before = [one.at_ms for one in plain if one.tenant == tenant]
        assert all(0 <= after - ms <= 40_000 for ms, after in zip(before, times, strict=True))
        gaps = [later - ms for ms, later in pairwise(times) if later - ms > 30_000]
        assert len(gaps) == pytest.approx(600 / 60, abs=1)
        assert gaps == pytest.approx([40_000] * len(gaps), abs=3_000)


# --- load -------------------------------------------------------------------------------------------------------------


def test_the_density_follows_from_the_wanted_load() -> None:
    arrivals = at_load(some(), 0.85, 40.0)
    assert rate_per_s(arrivals) == pytest.approx(0.85 * 40.0)
    assert rate_per_s(scaled(arrivals, 2)) == pytest.approx(2 * rate_per_s(arrivals))
    with pytest.raises(ValueError, match="two requests"):
        rate_per_s([Arrival(0, "", "", 1, 1)])


@given(st.lists(st.integers(0, 100), min_size=2), st.integers(0, 100), st.integers(0, 100))
def test_a_window_holds_what_comes_in_it(times: list[int], first: int, length: int) -> None:
    arrivals = [Arrival(float(ms), "", "", 1, 1) for ms in sorted(times)]
    found = windowed(arrivals, first, length)
    assert [one.at_ms + first for one in found] == [ms for ms in sorted(times) if first <= ms < first + length]


def test_a_repeated_workload_goes_on_at_its_rate() -> None:
    arrivals = some(500)
    found = repeated(arrivals, 3)
    assert len(found) == 3 * len(arrivals)
    assert [one.at_ms for one in found] == sorted(one.at_ms for one in found)
    assert rate_per_s(found) == pytest.approx(rate_per_s(arrivals))
