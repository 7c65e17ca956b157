"""The fit of a profile finds the speed that made what was seen, through noise and outliers, and says when it fails."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dispatcher.backends.sequences import Sequence
from dispatcher.backends.timing import Engine, Speed
from dispatcher.simulator.profiling import regression
from dispatcher.simulator.profiling.checks import first_and_last_ms
from dispatcher.simulator.profiling.fit import Fit, fit, tokens_of_a_step
from dispatcher.simulator.profiling.seen import Decode, Flood, Prefill, Reading, Seen

SPEED = Speed(8, 50_000, 2048, 8.0, 0.4, 0.05, 0.0004, 16)
LONG = 1500


def step_ms(speed: Speed, streams: int, kv: float) -> float:
    return speed.step_ms + speed.sequence_ms * streams + speed.kv_token_ms * kv


def reading(speed: Speed, prompts: tuple[int, ...]) -> Reading:
    """What a stream sees while these prompts are read."""
    engine, others = Engine(speed), [Sequence(prompt, 10) for prompt in prompts]
    for sequence in (Sequence(1, 10_000), *others):
        engine.add(sequence)
    gaps: list[float] = []
    while not all(one.made for one in others):
        gaps.append(engine.step().ms)
    return Reading(prompts, tuple(gaps), sum(gaps), 10)


def seen_of(speed: Speed, overhead_ms: float = 5.0, noisy: Callable[[float], float] = lambda ms: ms) -> Seen:
    """What a course of three rounds would have seen of it."""
    decodes: list[Decode] = []
    prefills: list[Prefill] = []
    for _ in range(3):
        for streams, each in ((1, 60), (2, 60), (4, 60), (8, 60), (1, LONG), (6, LONG)):
            decodes.append(Decode(streams, streams * each, noisy(step_ms(speed, streams, streams * each))))
        for prompt in (32, 375, 750, LONG):
            first_ms = first_and_last_ms(speed, [(prompt, 1)])[0]
            prefills.append(Prefill(prompt, noisy(overhead_ms + first_ms)))
    flood = Flood(16, 40, 48, overhead_ms + first_and_last_ms(speed, [(40, 48)] * 16)[1])
    return Seen(
        decodes, prefills, [reading(speed, (LONG,) * 7)], [flood], speed.slots, True, speed.kv_tokens, 16, foreign=0
    )  # fmt: skip


def close(found: Fit, speed: Speed, share: float) -> bool:
    """Whether the fitted one says about the same of steps and prompts."""
    mine = found.profile.speed
    steps = [step_ms(mine, n, kv) / step_ms(speed, n, kv) - 1 for n, kv in ((1, 60), (8, 500), (8, 9000))]
    prompts = [first_and_last_ms(mine, [(n, 1)])[0] / first_and_last_ms(speed, [(n, 1)])[0] - 1 for n in (750, 6000)]
    return all(abs(error) <= share for error in (*steps, *prompts))


def test_without_noise_the_speed_is_found_exactly() -> None:
    found = fit(seen_of(SPEED), "m").profile
    assert found.speed == replace(
        SPEED,
        step_ms=pytest.approx(8.0),
        sequence_ms=pytest.approx(0.4),
        prompt_token_ms=pytest.approx(0.05),
        kv_token_ms=pytest.approx(0.0004),
        step_tokens=pytest.approx(2048, rel=0.01),
    )
    assert found.overhead_ms == pytest.approx(5.0)


def test_one_load_in_ten_that_was_held_up_does_not_matter() -> None:
    dice = random.Random(1)

    def noisy(ms: float) -> float:
        return ms * dice.uniform(0.98, 1.02) * (3.0 if dice.random() < 0.1 else 1.0)

    assert close(fit(seen_of(SPEED, noisy=noisy), "m"), SPEED, 0.05)


@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.generate))  # to shrink takes minutes
@given(
    step_ms=st.floats(2, 50),
    sequence_ms=st.floats(0.02, 2),
    prompt_token_ms=st.floats(0.02, 1),
    step_tokens=st.sampled_from((512, 1024, 2048, 4096)),
    overhead_ms=st.floats(0, 30),
)
def test_any_speed_is_found(
    step_ms: float, sequence_ms: float, prompt_token_ms: float, step_tokens: int, overhead_ms: float
) -> None:
    speed = Speed(8, 50_000, step_tokens, step_ms, sequence_ms, prompt_token_ms, 0.0, 16)
    assert close(fit(seen_of(speed, overhead_ms), "m"), speed, 0.02)


def test_a_good_fit_has_no_warnings_and_every_load_is_checked() -> None:
    found = fit(seen_of(SPEED), "m")
    assert not found.warnings
    assert max(abs(check.error) for check in found.checks if check.fitted) < 0.001
    assert {check.fitted for check in found.checks} == {True, False}


def test_what_the_model_has_no_term_for_is_told() -> None:
    seen = seen_of(SPEED)
    curved = [Prefill(one.prompt, one.first_ms + (one.prompt / 300) ** 3) for one in seen.prefills]
    assert any("first token, prompt" in words for words in fit(replace(seen, prefills=curved), "m").warnings)


def test_other_peoples_requests_are_told() -> None:
    assert any("Others" in words for words in fit(replace(seen_of(SPEED), foreign=3), "m").warnings)


def test_a_profiler_that_was_busy_itself_is_told() -> None:
    assert any("core" in words for words in fit(replace(seen_of(SPEED), own_cpu=0.95), "m").warnings)


def test_what_could_not_be_seen_is_told() -> None:
    hidden = replace(seen_of(SPEED), limited=False, kv_tokens=None, foreign=None, readings=(), exact=False)
    notes = fit(hidden, "m").notes
    assert [words.split()[0] for words in notes] == ["slots:", "kv_tokens:", "step_tokens:", "No", "The"]


def test_steps_that_read_all_there_was_do_not_tell_how_much_a_step_reads() -> None:
    assert tokens_of_a_step([reading(SPEED, (500, 500))], SPEED) == (pytest.approx(1000, rel=0.01), False)


def test_a_coefficient_is_never_negative() -> None:
    values = [3.0, 2.9, 2.8]
    assert regression.fit([[1, 1], [1, 2], [1, 3]], values) == [pytest.approx(2.9, rel=0.02), 0.0]


def test_a_column_that_tells_nothing_new_gets_nothing() -> None:
    values = [5.0, 7.0, 11.0]
    assert regression.fit([[1, 2, 4], [1, 3, 6], [1, 5, 10]], values) == pytest.approx([1.0, 2.0, 0.0])
