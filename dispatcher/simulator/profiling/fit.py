"""Fits a speed to what a profile's load showed, and says how well it explains it.

Every time that was seen is a sum of the model's terms (dispatcher/backends/timing.py), each times how often it counts:
a system of equations, solved by robust regression. First steps that read no prompt, which need nothing else; then
how much a step reads, since that decides in how many steps a prompt is read; then prompts.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import median
from typing import Final

from dispatcher.backends.timing import Speed
from dispatcher.simulator.profile import LEAST_STEP_MS, Profile
from dispatcher.simulator.profiling import regression
from dispatcher.simulator.profiling.checks import Check, checks_of
from dispatcher.simulator.profiling.remarks import notes_on, warnings_of
from dispatcher.simulator.profiling.seen import Decode, Prefill, Reading, Seen

ROUNDS: Final = 40  # in which who makes tokens, and how much is read, come to agree
LEAST_MORE: Final = 0.05  # of a reading's time, by which its steps must be longer than usual to tell anything
LONGER: Final = 2.0  # times the cache of the shortest streams that others must hold for its cost to be told
PLATEAU: Final = 0.75  # of the largest step: those that read less were not full, since not all prompts were there yet
LEFT: Final = 0.2  # of a step that must have been left for the next one to call it full


@dataclass(frozen=True, slots=True)
class Fit:
    """The profile, how well it explains what was seen, and what to know before it is used."""

    profile: Profile
    checks: Sequence[Check]
    notes: Sequence[str]
    warnings: Sequence[str]


def fit(seen: Seen, name: str) -> Fit:
    """`seen` holds decodes of two sizes at least, or of one slot, and prefills of two lengths."""
    speed = Speed(slots=seen.slots, kv_tokens=seen.kv_tokens or Speed().kv_tokens, block_tokens=seen.block_tokens or 1)
    speed = _with_steps(speed, seen.decodes)
    step_tokens, full = tokens_of_a_step(seen.readings, speed)
    speed = replace(speed, step_tokens=step_tokens if full else max(step_tokens, speed.step_tokens))
    speed, overhead_ms = _with_prompts(speed, seen.prefills)
    profile = Profile(name, speed, overhead_ms)
    checks = checks_of(seen, profile)
    return Fit(profile, checks, notes_on(seen, full, speed), warnings_of(seen, checks))


def _with_steps(speed: Speed, decodes: Sequence[Decode]) -> Speed:
    """What a step takes in which no prompt is read."""
    each = [one.kv / one.streams for one in decodes]
    kv = 1.0 if each and max(each) > LONGER * min(each) else 0.0
    step_ms, sequence_ms, kv_token_ms = regression.fit(
        [[1.0, one.streams, kv * one.kv] for one in decodes], [one.step_ms for one in decodes]
    )
    step_ms = max(step_ms, LEAST_STEP_MS)
    return replace(speed, step_ms=step_ms, sequence_ms=sequence_ms, kv_token_ms=kv_token_ms)


def _with_prompts(speed: Speed, prefills: Sequence[Prefill]) -> tuple[Speed, float]:
    """What a prompt takes beside its steps, and the overhead (ms) of a request."""
    known_ms = [math.ceil(one.prompt / speed.step_tokens) * speed.step_ms + speed.sequence_ms for one in prefills]
    prompt_token_ms, overhead_ms = regression.fit(
        [[one.prompt, 1.0] for one in prefills], [one.first_ms for one in prefills], known_ms
    )
    return replace(speed, prompt_token_ms=prompt_token_ms), overhead_ms


def tokens_of_a_step(readings: Iterable[Reading], speed: Speed) -> tuple[int, bool]:
    """The most prompt tokens that one step read, and whether it was full: whether it left some for the next one.

    While prompts are read, each gap of the stream beside them is one step: how much longer it took than usual tells
    which share of the prompts was read in it.
    """
    full: list[float] = []
    most = 0.0
    for reading in readings:
        left = float(sum(reading.prompts))
        for read in _read(reading, speed):
            left -= read
            most = max(most, read)
            if left > LEFT * read > 0:
                full.append(read)
    plateau = [read for read in full if read >= PLATEAU * most]
    return (max(1, round(median(plateau))), True) if plateau else (round(most), False)


def _read(reading: Reading, speed: Speed) -> list[float]:
    """How many prompt tokens each step read. Each prompt whose end was read makes its answer's tokens from then on."""
    ends = [0, *accumulate(reading.prompts)]
    read = [ends[-1] / len(reading.gaps_ms) for _ in reading.gaps_ms]
    for _ in range(ROUNDS):
        done = [bisect_right(ends, so_far + 1) - 1 for so_far in accumulate(read)]
        gone = [0] * reading.answer + done  # those that were done so many steps before
        more_ms: list[float] = []
        for gap_ms, here, left in zip(reading.gaps_ms, done, gone, strict=False):
            held = ends[here] - ends[left]
            usual_ms = speed.step_ms + speed.sequence_ms * (1 + here - left) + speed.kv_token_ms * held
            more_ms.append(max(0.0, gap_ms - usual_ms))
        all_ms = sum(more_ms)
        if all_ms < LEAST_MORE * sum(reading.gaps_ms):
            return []
        read = [ends[-1] * ms / all_ms for ms in more_ms]
    return read


def terms(fitted: Fit, seen: Seen) -> list[tuple[str, str, str]]:
    """Each value of the profile, and where it comes from."""
    speed = fitted.profile.speed
    streams = sorted({one.streams for one in seen.decodes})
    steps = f"steps of {streams[0]} to {streams[-1]} streams" if streams else "not seen"
    most = max((one.prompt for one in seen.prefills), default=0)
    firsts = f"first tokens of prompts up to {most:,} tokens"
    _, full = tokens_of_a_step(seen.readings, speed)
    return [
        ("slots", f"{speed.slots:,}", "more had to wait" if seen.limited else "so many at least: none had to wait"),
        ("kv_tokens", f"{speed.kv_tokens:,}", "the metrics page" if seen.kv_tokens else "not visible"),
        ("step_tokens", f"{speed.step_tokens:,}", "the longest steps that read prompts" if full else "not visible"),
        ("step_ms", f"{speed.step_ms:.3f}", steps),
        ("sequence_ms", f"{speed.sequence_ms:.4f}", steps),
        ("kv_token_ms", f"{speed.kv_token_ms:.6f}", "steps of streams with long and with short prompts"),
        ("prompt_token_ms", f"{speed.prompt_token_ms:.4f}", firsts),
        ("overhead_ms", f"{fitted.profile.overhead_ms:.2f}", firsts),
    ]
