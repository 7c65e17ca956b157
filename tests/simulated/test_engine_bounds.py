"""The timing model keeps within its slots and its cache, whoever comes and goes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.backends.sequences import ByPriority, Order, Sequence
from dispatcher.backends.timing import Engine, Speed

SPEEDS = st.builds(
    Speed,
    slots=st.integers(1, 6),
    kv_tokens=st.integers(20, 200),
    step_tokens=st.integers(1, 64),
)
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 80), st.integers(1, 40), st.integers(0, 3)),
        st.tuples(st.just("abort"), st.integers(0, 30)),
        st.tuples(st.just("step"), st.integers(1, 9)),
    ),
    max_size=40,
)


def _held(engine: Engine) -> int:
    return sum(sequence.held for sequence in engine.running)


@settings(max_examples=150, deadline=None)
@given(speed=SPEEDS, by_priority=st.booleans(), acts=ACTS)
def test_slots_and_cache_are_never_exceeded_and_everyone_is_served(
    speed: Speed, by_priority: bool, acts: list[tuple[str, int, int, int]]
) -> None:
    engine = Engine(speed, ByPriority() if by_priority else Order())
    added: list[Sequence] = []
    ended: list[Sequence] = []

    def step() -> None:
        ended.extend(engine.step().finished)
        assert len(engine.running) <= speed.slots
        assert len(engine.running) == 1 or _held(engine) <= speed.kv_tokens
        assert engine.kv == _held(engine) / speed.kv_tokens
        priorities = [sequence.priority for sequence in engine.waiting]
        assert not by_priority or priorities == sorted(priorities)

    for act, *numbers in acts:
        if act == "add":
            prompt, answer, priority = numbers
            added.append(Sequence(prompt, answer, priority))
            engine.add(added[-1])
        elif act == "abort" and added:
            gone = added.pop(numbers[0] % len(added))
            engine.abort(gone)
            assert gone not in engine.running
            assert gone not in engine.waiting
        for _ in range(numbers[0] if act == "step" and not engine.idle else 0):
            if not engine.idle:
                step()
    while not engine.idle:
        step()
    assert engine.kv == 0
    assert all(sequence.made == sequence.answer for sequence in ended)
    assert {id(sequence) for sequence in added} <= {id(sequence) for sequence in ended}


def test_only_who_has_run_can_be_preempted() -> None:
    """A sequence that waits while there is no room for it is not counted as preempted over and over."""
    engine = Engine(Speed(slots=2, kv_tokens=100))
    for _ in range(2):
        engine.add(Sequence(prompt=50, answer=40))
    while not engine.idle:
        engine.step()
    assert engine.preemptions == 0


def test_the_highest_priority_number_is_preempted_first() -> None:
    engine = Engine(Speed(slots=2, kv_tokens=60), ByPriority())
    low, high = Sequence(prompt=20, answer=30, priority=5), Sequence(prompt=20, answer=30, priority=1)
    engine.add(low)
    engine.step()
    engine.add(high)
    while not engine.preemptions:
        engine.step()
    assert list(engine.waiting) == [low]
    assert engine.running == [high]
