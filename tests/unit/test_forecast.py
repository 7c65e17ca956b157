"""What a rebalancing does to each tenant's wait: turns by weight, tier after tier, as fast as backends work."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model import BackendCounts, Limits, Policy, TierGate
from fairlane.queue.pools import Pool
from fairlane.rebalance.forecast import SHIFTS_MOST, Key, Line, Scene, forecast, turns, waits
from fairlane.rebalance.values import Forecast, Shift
from fairlane.standing import BackendView, PoolLoad, TierLoad

TIERS = ("default", "flex", "batch")
NOW_MS = 1_000_000
POOL = Pool("llama", "aaaa", "fl:{aaaa}:", Policy(tiers=TIERS))


def backend(status: str = "up", places: int = 4) -> BackendView:
    gates = {tier: TierGate(places, places) for tier in TIERS}
    return BackendView(
        "b1", status, BackendCounts(0, 0, 0), 0, 0, 0, 0, 0, 0, False, None, NOW_MS, gates, {}, {}, "{}", None
    )  # fmt: skip


def load(lines: list[Line], status: str = "up") -> PoolLoad:
    """Four places, two seconds a job: two jobs start in a second."""
    waiting = {tier: round(sum(line.jobs for line in lines if line.tier == tier)) for tier in TIERS}
    tiers = tuple(TierLoad(tier, n, NOW_MS if n else None, 0) for tier, n in waiting.items())
    return PoolLoad(tiers, (backend(status),), NOW_MS, 0, json.dumps({"service_s": 2.0}))


def scene(lines: list[Line], shifts: Mapping[Key, float], status: str = "up") -> Scene:
    return Scene(POOL, load(lines, status), lines, shifts)


def found(of: Forecast) -> dict[Key, Shift]:
    return {(shift.tier, shift.tenant): shift for shift in of.shifts}


def test_tenants_take_turns_until_their_lines_are_through() -> None:
    lines = [Line("default", "ann", 10), Line("default", "bob", 2), Line("default", "cho", 2)]
    assert turns(lines) == {"bob": 6, "cho": 6, "ann": 14}


def test_a_weight_is_worth_as_many_turns() -> None:
    lines = [Line("default", "ann", 9, Limits(weight=3)), Line("default", "bob", 5)]
    assert turns(lines) == {"ann": 12, "bob": 14}


@given(st.lists(st.tuples(st.integers(1, 30), st.sampled_from([1.0, 2.0])), min_size=1, max_size=8))
def test_turns_are_those_of_a_round_robin(jobs: list[tuple[int, float]]) -> None:
    """Beside a count of the rounds that takes nothing for granted."""
    lines = [Line("default", f"t{n}", count, Limits(weight=weight)) for n, (count, weight) in enumerate(jobs)]
    for line, through in zip(lines, [turns(lines)[line.tenant] for line in lines], strict=True):
        rounds = line.jobs / line.limits.weight
        assert through == pytest.approx(sum(min(other.jobs, rounds * other.limits.weight) for other in lines))


def test_a_paused_tenant_takes_no_turn_and_nobody_knows_its_wait() -> None:
    lines = [Line("default", "ann", 10, paused=True), Line("default", "bob", 4)]
    assert waits(POOL, load(lines), lines) == {("default", "ann"): None, ("default", "bob"): 2.0}


def test_higher_tiers_come_first() -> None:
    lines = [Line("default", "ann", 10), Line("flex", "bob", 4)]
    assert waits(POOL, load(lines), lines) == {("default", "ann"): 5.0, ("flex", "bob"): 7.0}


def test_a_tenants_own_limits_may_take_longer() -> None:
    lines = [
        Line("default", "ann", 10, Limits(requests_per_minute=6)),
        Line("default", "bob", 6, Limits(max_inflight=1)),
    ]
    assert waits(POOL, load(lines), lines) == {("default", "ann"): 100.0, ("default", "bob"): 12.0}


def test_without_a_backend_nobody_knows() -> None:
    lines = [Line("default", "ann", 10)]
    assert waits(POOL, load(lines, "down"), lines) == {("default", "ann"): None}


def test_who_floods_is_moved_down_and_the_others_wait_less() -> None:
    lines = [Line("default", "flood", 100), Line("default", "bob", 40), Line("batch", "cho", 1)]
    said = forecast([scene(lines, {("default", "flood"): -100, ("batch", "flood"): 100})])
    shifts = found(said)
    assert (shifts["default", "bob"].wait_s, shifts["default", "bob"].wait_after_s) == (40.0, 20.0)
    assert (shifts["default", "flood"].jobs, shifts["default", "flood"].jobs_after) == (100, 0)
    assert shifts["default", "flood"].wait_after_s is None
    assert (shifts["batch", "flood"].jobs, shifts["batch", "flood"].jobs_after) == (0, 100)
    assert shifts["batch", "flood"].wait_after_s == 70.5
    assert said.shifts[0].change_s == 70.5, "the largest change first"
    assert said.longer + said.less + said.same == 4


def test_a_line_that_comes_to_be_is_bound_as_its_tenants_others_are() -> None:
    lines = [Line("default", "ann", 10, Limits(requests_per_minute=60))]
    said = found(forecast([scene(lines, {("default", "ann"): -5, ("batch", "ann"): 5})]))
    assert said["batch", "ann"].wait_after_s == 5.0


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(TIERS), st.sampled_from("abcde")), st.integers(1, 500), min_size=1, max_size=12
    ),
    st.integers(0, 100),
)
def test_nobody_whose_own_jobs_stay_waits_longer_when_others_go_to_another_pool(
    jobs: dict[tuple[str, str], int], percent: int
) -> None:
    lines = [Line(tier, tenant, n) for (tier, tenant), n in jobs.items()]
    gone = min(jobs)
    said = forecast([scene(lines, {gone: -jobs[gone] * percent / 100})])
    for shift in said.shifts:
        assert shift.jobs_after <= shift.jobs
        assert shift.change_s <= 1.0  # jobs are whole


def test_what_is_kept_of_a_forecast_is_bounded_and_can_be_read_again() -> None:
    lines = [Line("default", f"t{n}", n + 1) for n in range(1000)]
    said = forecast([scene(lines, {("default", "t999"): -1000})])
    assert len(said.shifts) == SHIFTS_MOST
    assert said.longer + said.less + said.same == 1000
    assert Forecast.unpacked(said.packed()) == said


def test_ten_thousand_tenants_are_weighed_in_seconds() -> None:
    lines = [Line(tier, f"t{n}", 1 + n % 50) for n in range(10_000) for tier in TIERS]
    began = time.process_time()
    forecast([scene(lines, {("default", "t49"): -50, ("batch", "t49"): 50})])
    assert time.process_time() - began < 5
