"""Backends that lose capacity, restart, hang, are shared or go unseen: what the fleet sends then, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dispatcher.backends.timing import Speed
from tests.virtual import faults
from tests.virtual.faults import drop, half_of_the_cache, half_of_the_slots
from tests.virtual.floods import p999, speed_of


@pytest.mark.parametrize("dispatchers", [1, 20])
@pytest.mark.parametrize("slots", [8, 64, 256])
@pytest.mark.parametrize("halved", [half_of_the_slots, half_of_the_cache])
def test_after_a_drop_there_are_no_net_sends_from_the_second_scrape_on(
    halved: Callable[[Speed], Speed], slots: int, dispatchers: int
) -> None:
    speed = speed_of(slots, kv_tokens=330 * slots)
    assert drop(speed, halved, dispatchers=dispatchers).net_sends <= 0


@pytest.mark.parametrize("slots", [8, 64, 256])
def test_after_a_drop_hardly_any_wait_again(slots: int) -> None:
    after = drop(speed_of(slots), half_of_the_slots)
    assert after.settled_ms <= 3_000
    assert p999(after.waiting) <= 3


@pytest.mark.parametrize("dispatchers", [1, 20])
@pytest.mark.parametrize("slots", [8, 64, 256])
def test_a_restart_fails_what_was_in_flight_and_hardly_more(slots: int, dispatchers: int) -> None:
    after = faults.restart(slots, 3_000, dispatchers=dispatchers)
    assert after.failed_beyond <= 16
    assert after.full_ms <= 2_000, "it ramps to what it had"
    assert after.waiting <= 6


@pytest.mark.parametrize("slots", [8, 64, 256])
def test_nothing_is_sent_to_a_backend_that_hangs(slots: int) -> None:
    assert faults.sends_while_it_hangs(slots) == 0


@pytest.mark.parametrize("slots", [8, 64, 256])
def test_the_backend_stays_full_while_observers_die(slots: int) -> None:
    run = faults.observer_dies(slots)
    assert run.share >= 0.97
    assert p999(run.waiting) <= 6


@pytest.mark.parametrize("slots", [8, 64, 256])
def test_a_page_that_stands_still_never_raises_what_is_in_flight(slots: int) -> None:
    assert faults.frozen_page(slots) <= 0


@pytest.mark.parametrize("slots", [8, 64, 256])
def test_who_shares_the_backend_leaves_no_slot_empty_and_no_job_waiting(slots: int) -> None:
    run = faults.neighbours(slots, slots // 2)
    assert run.share >= 0.97
    assert p999(run.waiting) <= 6
