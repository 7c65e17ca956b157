"""When a delivery is tried again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.webhooks.schedule import JITTER, MOST_RETRY_AFTER_S, delay_ms

SCHEDULE = (0.0, 5.0, 300.0, 1800.0, 7200.0)
schedules = st.lists(st.floats(0, 1e6), min_size=1, max_size=20)
dice = st.floats(0, 1, exclude_max=True)
asked = st.none() | st.floats(-1e9, 1e9)


def test_each_failure_waits_for_the_next_entry_and_the_last_for_nothing() -> None:
    middle = [delay_ms(SCHEDULE, n, 0.5) for n in range(1, 7)]
    assert middle == [5_000, 300_000, 1_800_000, 7_200_000, None, None]


@given(schedules, st.integers(1, 25), dice, asked)
def test_there_are_as_many_attempts_as_the_schedule_has(
    schedule: list[float], n: int, u: float, after_s: float | None
) -> None:
    assert (delay_ms(schedule, n, u, after_s) is None) == (n >= len(schedule))


@given(schedules, st.integers(1, 25), dice)
def test_the_jitter_is_a_fifth_either_way(schedule: list[float], n: int, u: float) -> None:
    delay = delay_ms(schedule, n, u)
    if delay is not None:
        assert 1000 * schedule[n] * (1 - JITTER) - 1 <= delay <= 1000 * schedule[n] * (1 + JITTER) + 1


def test_the_whole_of_the_jitter_is_used() -> None:
    assert delay_ms(SCHEDULE, 1, 0.0) == 4_000
    assert delay_ms(SCHEDULE, 1, 0.999_999) == 6_000


@given(st.integers(1, 4), dice, st.floats(-1e9, 1e9))
def test_what_the_receiver_asks_for_is_obeyed_within_bounds(n: int, u: float, after_s: float) -> None:
    delay, without = delay_ms(SCHEDULE, n, u, after_s), delay_ms(SCHEDULE, n, u)
    assert delay is not None
    assert without is not None
    assert delay == max(without, round(1000 * min(max(after_s, 0), MOST_RETRY_AFTER_S)))
