"""The learner of a backend's capacity in virtual time: production policy against the timing model.

Each run is paired with a direct flood: the same jobs, all sent to the engine at once. FAIRLANE_TEST_SEEDS=20 runs all
seeds; `python -m benchmarks.capacity` prints every figure.
"""

from __future__ import annotations

import pytest

from tests.virtual.floods import full_within_ms, long_jobs, paired, speed_of, tiny_jobs

MAY_WAIT = {8: 3, 64: 3, 256: 6}
SLOTS = list(MAY_WAIT)


@pytest.mark.parametrize("slots", SLOTS)
def test_long_jobs_flow_as_in_a_direct_flood_and_hardly_any_wait(slots: int) -> None:
    run = paired(speed_of(slots), long_jobs)
    assert run.share >= 0.99
    assert run.waiting_p999 <= MAY_WAIT[slots]
    assert run.over <= 0, "leases never exceed the limit at a send"


@pytest.mark.parametrize("slots", SLOTS)
def test_the_capacity_that_is_learned_is_the_number_of_slots(slots: int) -> None:
    assert paired(speed_of(slots), long_jobs).right >= 0.99


@pytest.mark.parametrize("slots", SLOTS)
def test_twenty_dispatchers_do_as_one(slots: int) -> None:
    one, twenty = (paired(speed_of(slots), long_jobs, dispatchers=n) for n in (1, 20))
    assert twenty.share == pytest.approx(one.share, abs=0.01)
    assert twenty.waiting_p999 == pytest.approx(one.waiting_p999, abs=1)
    assert twenty.over <= 0, "leases never exceed the limit at a send"


@pytest.mark.parametrize("slots", SLOTS)
def test_jobs_of_a_few_tokens_flow_nearly_as_in_a_direct_flood(slots: int) -> None:
    assert paired(speed_of(slots), tiny_jobs, end_ms=16_000).share >= 0.97


def test_256_slots_are_full_within_two_seconds() -> None:
    assert full_within_ms(256) <= 2_000


def test_a_backend_that_is_short_of_cache_is_filled_as_far_as_it_goes() -> None:
    assert paired(speed_of(256, kv_tokens=16_000), long_jobs).share >= 0.985


@pytest.mark.parametrize("slots", SLOTS)
def test_with_only_the_lowest_tier_at_work_next_to_nothing_is_lost(slots: int) -> None:
    run = paired(speed_of(slots), long_jobs, tier=3)
    assert run.share >= 0.97
    assert run.waiting_p999 <= MAY_WAIT[slots]
