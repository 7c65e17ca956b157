"""Orders within an engine: who is served first, who must go, and when."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dispatcher.backends.sequences import Sequence
from dispatcher.backends.timing import Engine, Speed
from dispatcher.simulator.orders import ORDERS
from dispatcher.simulator.orders.uniboost import UniBoost, next_gamma

ONE_SLOT = Speed(slots=1, step_tokens=100_000)


def served(order: str, *sequences: Sequence) -> list[int]:
    """In which order these, all there at once, are finished by an engine with one slot."""
    engine = Engine(ONE_SLOT, ORDERS[order]())
    for one in sequences:
        engine.add(one)
    done = list[Sequence]()
    while not engine.idle:
        engine.begin(1_000)
        done += engine.end().finished
    return [sequences.index(one) for one in done]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("fcfs", [0, 1, 2]),
        ("priority", [1, 0, 2]),
        ("sjf", [1, 2, 0]),
        ("srpt", [1, 2, 0]),
        ("sjf-prompt", [2, 0, 1]),
        ("uniboost", [2, 0, 1]),
        ("uniboost-fixed", [2, 0, 1]),
    ],
)
def test_each_order_serves_by_what_it_knows(order: str, expected: list[int]) -> None:
    requests = Sequence(400, 200, priority=1), Sequence(900, 10), Sequence(100, 100, priority=1)
    assert served(order, *requests) == expected


def test_every_order_has_its_name() -> None:
    names = "fcfs priority sjf srpt sjf-prompt uniboost uniboost-fixed uniboost-low uniboost-unguarded"
    assert set(ORDERS) == set(names.split())


def test_cached_tokens_are_no_work() -> None:
    assert served("sjf-prompt", Sequence(500, 5), Sequence(900, 5, cached=800)) == [1, 0]


def started(order: str, first: Sequence, second: Sequence, *, steps: int = 10) -> Engine:
    """An engine with one slot in which `first` has run for some steps when `second` comes."""
    engine = Engine(ONE_SLOT, ORDERS[order]())
    engine.add(first)
    for _ in range(steps):
        engine.step()
    engine.add(second)
    engine.step()
    return engine


def test_sjf_lets_whoever_runs_go_on_and_srpt_does_not() -> None:
    long, short = Sequence(100, 1_000), Sequence(100, 10)
    assert started("sjf", long, short).running == [long]
    long, short = Sequence(100, 1_000), Sequence(100, 10)
    assert started("srpt", long, short).running == [short]


def test_srpt_counts_what_is_left_and_not_what_was() -> None:
    almost_done, short = Sequence(100, 1_000), Sequence(100, 50)
    assert started("srpt", almost_done, short, steps=990).running == [almost_done]


# --- UniBoost ---------------------------------------------------------------------------------------------------------


def boost_ms(work_ms: float, gamma: float = 10.0) -> float:
    return 1_000 / gamma * math.log(1 / (1 - math.exp(-gamma * work_ms / 1_000)))


def test_phi_is_the_arrival_less_a_boost_by_uncached_prompt_tokens() -> None:
    one = Sequence(3_000, 50, cached=1_000, arrived_ms=777.0)
    assert UniBoost().key(one) == pytest.approx(777.0 - boost_ms(0.064 * 2_000))


def test_what_was_made_counts_at_thresholds_only() -> None:
    order, one = UniBoost(), Sequence(1_000, 5_000)
    keys = list[float]()
    for one.made in (0, 255, 256, 511, 512, 1_023, 1_024):
        keys.append(order.key(one))
    assert keys == sorted(keys)
    assert keys[0] == keys[1] < keys[2] == keys[3] < keys[4] == keys[5] < keys[6]
    assert keys[2] == pytest.approx(-boost_ms(64.0 + 0.6 * 256))


def victim_and(order: str) -> tuple[Engine, Sequence]:
    """A long request runs; one that comes before it, by the boost of a short prompt, waits for its place."""
    victim = Sequence(2_000, 3_000, arrived_ms=0.0)
    engine = started(order, victim, Sequence(10, 5, arrived_ms=20.0))
    return engine, victim


def preempted_at(engine: Engine, victim: Sequence) -> int:
    while engine.waiting and not victim.preempted:
        engine.begin(1_000)
        engine.end()
    return victim.again


def test_the_guard_lets_nobody_take_a_place_before_a_threshold() -> None:
    assert preempted_at(*victim_and("uniboost")) == 256


def test_without_the_guard_a_place_is_taken_at_once() -> None:
    assert preempted_at(*victim_and("uniboost-unguarded")) == 10


def test_one_that_lost_its_place_keeps_the_next_one_until_the_next_threshold() -> None:
    engine, victim = victim_and("uniboost")
    preempted_at(engine, victim)
    engine.speed = replace(engine.speed, step_tokens=512)  # it takes more than one step to read all again
    while victim not in engine.running:
        engine.step()
    engine.add(Sequence(10, 5, arrived_ms=20.0))
    victim.preempted = 0
    assert preempted_at(engine, victim) == 512


def test_nobody_takes_the_place_of_one_that_comes_before() -> None:
    engine = started("uniboost", Sequence(2_000, 600, arrived_ms=0.0), Sequence(10, 5, arrived_ms=60_000.0))
    while engine.waiting:
        engine.begin(1_000)
        engine.end()
    assert engine.preemptions == 0


def test_when_the_cache_overflows_the_one_with_the_largest_phi_goes_at_any_step() -> None:
    engine = Engine(Speed(slots=4, kv_tokens=300, step_tokens=1_000), UniBoost())
    boosted, other = Sequence(20, 200, arrived_ms=20.0), Sequence(180, 200, arrived_ms=0.0)
    for one in (other, boosted):
        engine.add(one)
    while not engine.preemptions:
        engine.step()
    assert (boosted.preempted, other.preempted) == (0, 1)
    assert 0 < other.made < 256


# --- γ-Ada ------------------------------------------------------------------------------------------------------------


def after(order: UniBoost, count: int, took_ms: float, *, every_ms: float = 100.0, long_ms: float = 0.0) -> UniBoost:
    """So many answers ended, one every `every_ms`; of a hundred two took `long_ms` more."""
    for n in range(1, count + 1):
        now_ms = n * every_ms
        more = long_ms if n % 50 == 0 else 0.0
        order.ended(Sequence(10, 10, arrived_ms=now_ms - took_ms - more), now_ms)
    return order


def test_gamma_goes_three_tenths_of_the_way_to_its_target_and_stays_within_1_and_200() -> None:
    assert next_gamma(10.0, 1.0) == pytest.approx(0.7 * 10 + 0.3 * 200)
    assert next_gamma(10.0, 2.0) == pytest.approx(0.7 * 10 + 0.3 * 200 / 5)
    assert next_gamma(10.0, 0.5) == next_gamma(10.0, 1.0)
    assert next_gamma(1.0, 1e9) == 1.0
    assert next_gamma(200.0, 1.0) == 200.0


def test_with_fewer_than_200_samples_gamma_stays() -> None:
    assert after(UniBoost(), 199, 500.0).gamma == 10.0
    assert after(UniBoost(), 200, 500.0).gamma == next_gamma(10.0, 1.0)


def test_a_heavy_tail_pulls_gamma_down_and_an_even_load_up() -> None:
    assert after(UniBoost(), 2_000, 500.0).gamma > 190
    heavy = after(UniBoost(), 20_000, 500.0, long_ms=20_000.0)
    assert heavy.gamma == pytest.approx(200 / (1 + 4 * (20_500 / 500 - 1)), rel=0.01)


def test_gamma_steps_every_five_seconds() -> None:
    order, values = UniBoost(), set[float]()
    for n in range(1, 401):
        now_ms = n * 100.0
        order.ended(Sequence(10, 10, arrived_ms=now_ms - 300), now_ms)
        values.add(order.gamma)
    assert len(values) == 1 + (40_000 - 20_000) // 5_000 + 1  # at 20, 25, 30, 35 and 40 s


def test_gamma_forgets_all_but_the_last_2000() -> None:
    order = after(UniBoost(), 1_000, 500.0, long_ms=50_000.0)
    for n in range(3_000):
        now_ms = 200_000.0 + 100 * n
        order.ended(Sequence(10, 10, arrived_ms=now_ms - 500), now_ms)
    assert order.gamma > 190


def test_a_boost_is_by_the_gamma_that_was_in_force_at_the_arrival() -> None:
    order = UniBoost()
    early = Sequence(1_000, 10, arrived_ms=1_000.0)
    before = order.key(early)
    after(order, 400, 300.0)
    late = Sequence(1_000, 10, arrived_ms=50_000.0)
    assert order.key(early) == before
    assert order.key(late) == pytest.approx(50_000.0 - boost_ms(64.0, order.gamma))


def test_a_fixed_gamma_stays() -> None:
    fixed = ORDERS["uniboost-fixed"]()
    assert isinstance(fixed, UniBoost)
    assert after(fixed, 1_000, 500.0).gamma == 10.0
