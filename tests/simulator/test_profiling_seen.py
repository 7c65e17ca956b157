"""What is concluded from the times at which tokens came, and from a metrics page."""

from __future__ import annotations

import pytest

from dispatcher.simulator.profiling.asking import Answer
from dispatcher.simulator.profiling.page import Cache, cache_on
from dispatcher.simulator.profiling.seen import decode_of, reading_of, side_by_side


def answer(begin_ms: float, tokens: int, gap_ms: float = 10.0, *, prompt: int = 30, sent_ms: float = 0.0) -> Answer:
    times = tuple((begin_ms + n * gap_ms, 1.0) for n in range(tokens))
    return Answer(sent_ms, times, prompt, tokens)


def test_a_step_is_measured_only_while_all_streams_run() -> None:
    slow = Answer(0.0, (*((10.0 * n, 1.0) for n in range(10)), *((100.0 + 30 * n, 1.0) for n in range(10))), 30, 20)
    found = decode_of([slow, answer(95, 100, 30)])
    assert found is not None
    assert found.step_ms == pytest.approx(30)
    assert found.streams == 2


def test_events_of_several_tokens_count_as_so_many() -> None:
    pairs = Answer(0.0, tuple((20.0 * n, 2.0) for n in range(10)), 30, 20)
    found = decode_of([pairs])
    assert found is not None
    assert found.step_ms == pytest.approx(10)


def test_streams_that_hardly_meet_tell_nothing() -> None:
    assert decode_of([answer(0, 20), answer(180, 20)]) is None


def test_streams_whose_tokens_come_in_one_heap_tell_nothing() -> None:
    assert decode_of([answer(5, 20, gap_ms=0.0)]) is None
    assert side_by_side([answer(5, 20, gap_ms=0.0), answer(9, 20, gap_ms=0.0)]) == 1


def test_the_cache_that_streams_hold_is_prompt_and_answer() -> None:
    found = decode_of([answer(0, 41, prompt=100)])
    assert found is not None
    assert found.kv == 120


def test_slots_are_those_that_run_side_by_side_but_for_moments() -> None:
    first, second = [answer(0, 50)] * 4, [answer(495, 50)] * 4  # the second four begin as the first end
    assert side_by_side([*first, *second, answer(480, 3)]) == 4


def test_the_gaps_of_a_stream_are_cut_out_while_prompts_are_read() -> None:
    times = [0, 10, 20, 30, 130, 230, 240, 250]
    stream = Answer(0.0, tuple((float(at), 1.0) for at in times), 30, 8)
    found = reading_of(stream, [answer(229.0, 5, prompt=900, sent_ms=25.0)])
    assert found is not None
    assert found.gaps_ms == (10, 100, 100)
    assert found.first_ms == 204


def test_a_stream_that_ended_too_soon_tells_nothing() -> None:
    assert reading_of(answer(0, 5), [answer(400, 5, sent_ms=25.0)]) is None


def test_the_cache_is_read_from_the_page() -> None:
    vllm = b'# TYPE x gauge\nvllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="851"} 1.0\n'
    assert cache_on(vllm) == Cache(13_616, 16)
    assert cache_on(b'sglang:max_total_num_tokens{model="m"} 4096.0\n') == Cache(4096)
    assert cache_on(b'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0\n') is None
    assert cache_on(b"up 1\n") is None
    for digits in (b"9" * 20, b"9" * 6000):
        assert cache_on(b'vllm:cache_config_info{block_size="16",num_gpu_blocks="' + digits + b'"} 1.0\n') is None
    for value in (b"+Inf", b"NaN", b"1e308"):
        assert cache_on(b"sglang:max_total_num_tokens " + value + b"\n") is None
