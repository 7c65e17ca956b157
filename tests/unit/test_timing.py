"""The engine model keeps its books right through admissions, preemptions, aborts and ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.backends.sequences import Sequence
from dispatcher.backends.timing import Engine, Speed

arrivals = st.lists(st.tuples(st.integers(1, 120), st.integers(1, 40)), max_size=4)


@given(st.lists(st.tuples(arrivals, st.none() | st.integers(0, 50)), max_size=60), st.integers(150, 600))
def test_the_cache_in_use_is_what_the_running_sequences_hold(
    life: list[tuple[list[tuple[int, int]], int | None]], kv_tokens: int
) -> None:
    engine, sent = Engine(Speed(slots=4, kv_tokens=kv_tokens, step_tokens=64)), list[Sequence]()
    for arriving, aborted in life:
        for prompt, answer in arriving:
            sent.append(Sequence(prompt, answer))
            engine.add(sent[-1])
        if aborted is not None and aborted < len(sent):
            engine.abort(sent[aborted])
        if not engine.idle:
            step = engine.step()
            assert (step.running, step.waiting) == (len(engine.running), len(engine.waiting))
        held = sum(sequence.held for sequence in engine.running)
        assert engine.kv == held / kv_tokens
        assert held <= kv_tokens or len(engine.running) <= 1


def test_a_request_that_arrives_during_a_step_is_not_in_what_that_step_shows() -> None:
    engine = Engine(Speed(slots=1))
    for _ in range(2):
        engine.add(Sequence(10, 3))
    step = engine.step()
    engine.add(Sequence(10, 3))
    assert (step.running, step.waiting) == (1, 1)
    assert len(engine.waiting) == 2
