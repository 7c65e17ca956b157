"""Backends that keep failing are left alone, and tried again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.policy.ejection import Counters, Health, judge, pause_ms

LOOK_MS = 200
PAUSES_S = [10, 20, 40, 80, 160, 300, 300]


@dataclass
class Backend:
    """Its counters, looked at five times a second."""

    now_ms: int = 1_000_000
    faults: int = 0
    answered: int = 0
    blamers: int = 0
    excused: int = 0
    health: Health = field(default_factory=Health)

    def look(
        self,
        *,
        bad: int = 0,
        good: int = 0,
        live: int = 0,
        after_ms: int = LOOK_MS,
        alone: bool = False,
        excused: bool = False,
    ) -> Health:
        """Unless `alone`, each fault is of another tenant's job. `excused`: and others were just answered well."""
        self.now_ms += after_ms
        self.excused += bad if excused else 0
        self.blamers += 0 if alone else bad
        self.faults += bad
        self.answered += good
        counters = Counters(self.faults, self.answered, self.blamers, live, self.excused)
        self.health = judge(self.health, self.now_ms, counters)
        return self.health

    def rest(self) -> Health:
        """To the end of its pause."""
        return self.look(after_ms=self.health.until_ms - self.now_ms)


@pytest.fixture
def backend() -> Backend:
    seen = Backend()
    seen.look()
    return seen


@pytest.fixture
def ejected(backend: Backend) -> Backend:
    assert backend.look(bad=5).ejected
    return backend


def test_five_faults_in_a_row_eject_it_whether_they_come_at_once_or_one_by_one(backend: Backend) -> None:
    assert [backend.look(bad=1).ejected for _ in range(5)] == [False] * 4 + [True]
    assert backend.health.most == 0
    other = Backend()
    other.look()
    assert other.look(bad=5).ejected


def test_a_good_answer_ends_a_run_of_faults(backend: Backend) -> None:
    for _ in range(20):
        assert backend.look(bad=4).most is None
        assert backend.look(good=1).most is None


def test_of_one_look_some_run_of_faults_was_long_enough_if_there_are_few_good_answers(backend: Backend) -> None:
    assert not backend.look(bad=8, good=1).ejected  # perhaps 4, a good one, 4
    assert backend.look(bad=9, good=1).ejected


def test_it_is_half_open_after_the_pause_and_a_good_answer_readmits_it(ejected: Backend) -> None:
    assert ejected.look(after_ms=9_000).ejected
    probing = ejected.rest()
    assert (probing.ejected, probing.probing, probing.most) == (False, True, 1)
    assert ejected.look(live=1).probing, "the probe runs"
    back = ejected.look(good=1)
    assert (back.ejected, back.probing, back.most) == (False, False, None)


def test_an_error_of_a_probe_ejects_it_again_for_longer_up_to_five_minutes(ejected: Backend) -> None:
    pauses = list[float]()
    for _ in PAUSES_S:
        pauses.append((ejected.health.until_ms - ejected.now_ms) / 1000)
        assert ejected.rest().probing
        assert ejected.look(bad=1).ejected
    assert pauses == PAUSES_S


def test_eight_that_fail_together_are_one_ejection_whenever_they_fail(backend: Backend) -> None:
    assert backend.look(bad=5, live=3).level == 1
    backend.look(bad=2, live=1)  # in the pause
    backend.now_ms = backend.health.until_ms
    assert backend.look(live=1).most == 2, "a probe beside the one that still hangs there"
    assert backend.look(bad=1, live=1).probing, "it fails now, and says nothing new"
    assert backend.health.level == 1
    assert backend.look(bad=1).level == 2, "the probe's error does"


def test_a_straggler_that_was_handed_back_forgives_no_probe(backend: Backend) -> None:
    backend.look(bad=5, live=8)
    backend.look(live=0)
    backend.rest()
    assert backend.look(bad=1).level == 2


def test_a_good_straggler_readmits_it_only_after_the_pause(backend: Backend) -> None:
    backend.look(bad=5, live=2)
    assert backend.look(good=1, live=1).ejected
    backend.now_ms = backend.health.until_ms
    assert backend.look(live=1).probing
    assert backend.look(good=1).most is None


def test_the_pauses_go_on_growing_if_it_fails_soon_after_its_readmission(ejected: Backend) -> None:
    ejected.rest()
    ejected.look(good=1)
    assert ejected.look(bad=5, after_ms=299_000).level == 2
    ejected.rest()
    ejected.look(good=1)
    assert ejected.look(bad=5, after_ms=300_000).level == 1


def test_one_tenants_faults_alone_make_short_pauses_that_do_not_grow(backend: Backend) -> None:
    """Its jobs may be what is wrong: others must not wait for minutes because of them."""
    backend.blamers += 1
    assert backend.look(bad=5, alone=True).ejected, "another tenant's was the last fault, long ago"
    for _ in range(10):
        assert backend.health.until_ms - backend.now_ms == 1_000
        assert backend.rest().probing
        assert backend.look(bad=1, alone=True).ejected
    backend.rest()
    assert backend.look(good=1).most is None, "whoever else comes readmits it"


def test_once_two_tenants_fail_it_is_the_backend(backend: Backend) -> None:
    backend.look(bad=5, alone=True)
    backend.rest()
    backend.look(bad=1)
    backend.rest()
    assert backend.look(bad=1).level == 1
    assert backend.health.until_ms - backend.now_ms == 10_000


@pytest.mark.parametrize("good", [0, 1, 3])
def test_one_tenants_faults_never_eject_what_answers_the_others_well(backend: Backend, good: int) -> None:
    backend.blamers += 1
    for n in range(50):
        assert backend.look(bad=200, good=good if n % 5 else 0, alone=True, excused=True).most is None


def test_faults_that_were_excused_and_then_were_not_are_counted_from_there(backend: Backend) -> None:
    """The others went, and nobody knows any more whose fault it is."""
    backend.look(bad=100, alone=True, excused=True)
    assert backend.look(bad=4, alone=True).most is None
    assert backend.look(bad=1, alone=True).ejected
    assert backend.health.until_ms - backend.now_ms == 1_000


def test_what_fails_everybody_is_ejected_although_it_was_good_a_moment_ago(backend: Backend) -> None:
    backend.look(good=100)
    assert [backend.look(bad=1, excused=True).ejected for _ in range(5)] == [False] * 4 + [True]
    assert backend.health.level == 1


def test_an_excused_fault_of_a_probe_does_not_eject_it_again(backend: Backend) -> None:
    assert backend.look(bad=5, alone=True).ejected
    backend.rest()
    for _ in range(3):
        assert backend.look(bad=1, alone=True, excused=True).probing
    assert backend.look(good=1).most is None


def test_what_happened_before_the_first_look_is_not_held_against_it() -> None:
    old = Backend(faults=1_000, answered=3)
    assert old.look().most is None
    assert old.look(bad=4).most is None


def test_counters_that_fell_are_only_noted(backend: Backend) -> None:
    backend.look(bad=3, good=9)
    backend.faults = backend.answered = backend.blamers = backend.excused = 0
    assert backend.look().most is None
    assert backend.look(bad=5).ejected


@pytest.mark.parametrize("jump_ms", [-900_000, -5_000])
def test_after_a_jump_back_of_the_clock_the_pause_lasts_no_longer(ejected: Backend, jump_ms: int) -> None:
    ejected.look(after_ms=4_000)
    ejected.now_ms += jump_ms
    ejected.look(after_ms=0)
    assert ejected.health.ejected
    assert ejected.health.until_ms - ejected.now_ms == 6_000


def test_a_jump_ahead_brings_a_probe_and_nothing_else(ejected: Backend) -> None:
    assert ejected.look(after_ms=10**10).most == 1


def test_pauses_are_bounded_at_any_level() -> None:
    assert [pause_ms(level) // 1000 for level in range(1, 8)] == PAUSES_S
    assert pause_ms(10**6) == 300_000


looks = st.lists(
    st.tuples(
        st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.sampled_from([-50_000, 0, 200, 9_000, 400_000])
    ),
    max_size=30,
)


@given(looks)
def test_whatever_happens_it_gets_a_probe_within_five_minutes(history: list[tuple[int, int, int, int]]) -> None:
    backend = Backend()
    for bad, good, live, after_ms in history:
        health = backend.look(bad=bad, good=good, live=live, after_ms=max(after_ms, -backend.now_ms))
        assert not (health.ejected and health.probing)
        assert health.until_ms - backend.now_ms <= 300_000
    assert backend.look(after_ms=300_000).most != 0


@given(looks)
def test_a_backend_that_never_fails_five_times_is_never_ejected(history: list[tuple[int, int, int, int]]) -> None:
    backend = Backend()
    for bad, good, live, _ in history:
        assert backend.look(bad=min(bad, 4), good=good + 1, live=live).most is None


@given(looks)
def test_its_state_survives_json(history: list[tuple[int, int, int, int]]) -> None:
    backend = Backend()
    for bad, good, live, _ in history:
        health = backend.look(bad=bad, good=good, live=live)
        assert Health(**json.loads(json.dumps(asdict(health)))) == health
