"""What a profile's load showed: the observations from which a speed is fitted. Times in ms, sizes in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final

from dispatcher.simulator.profiling.asking import Answer

FEWEST_TOKENS: Final = 4  # from one edge of a window to the other
LASTING: Final = 0.1  # share of a wave for which so many must have run side by side to count


@dataclass(frozen=True, slots=True)
class Decode:
    """`streams` made their tokens side by side, holding `kv` in all: a step took `step_ms`, in the mean."""

    streams: int
    kv: float
    step_ms: float


@dataclass(frozen=True, slots=True)
class Prefill:
    """A prompt of so many tokens on an idle backend: its first token came after `first_ms`."""

    prompt: int
    first_ms: float


@dataclass(frozen=True, slots=True)
class Reading:
    """`prompts` came at once while one stream made tokens, whose `gaps_ms` are from then until all were read.

    `first_ms`: until the last of them had its first token. `answer`: tokens that the shortest of their answers had.
    """

    prompts: tuple[int, ...]
    gaps_ms: tuple[float, ...]
    first_ms: float
    answer: int


@dataclass(frozen=True, slots=True)
class Flood:
    """More at once than there are slots, all alike: until the last one was answered."""

    requests: int
    prompt: int
    answer: int
    all_ms: float


@dataclass(frozen=True, slots=True)
class Seen:
    """All of it. `slots`: at least so many run at once; `limited`: and no more than that.

    `kv_tokens`, `block_tokens`: None where the backend does not say. `foreign`: other people's requests, at the most,
    None where that cannot be seen. `own_cpu`: the share of one core that the profiling itself needed, at the most.
    """

    decodes: Sequence[Decode] = ()
    prefills: Sequence[Prefill] = ()
    readings: Sequence[Reading] = ()
    floods: Sequence[Flood] = ()
    slots: int = 1
    limited: bool = False
    kv_tokens: int | None = None
    block_tokens: int | None = None
    foreign: int | None = None
    own_cpu: float = 0.0
    exact: bool = True


@dataclass(slots=True)
class Notes:
    """The observations while they are made."""

    decodes: list[Decode] = field(default_factory=lambda: list[Decode]())
    prefills: list[Prefill] = field(default_factory=lambda: list[Prefill]())
    readings: list[Reading] = field(default_factory=lambda: list[Reading]())
    floods: list[Flood] = field(default_factory=lambda: list[Flood]())


def decode_of(answers: Sequence[Answer]) -> Decode | None:
    """From when the last one had begun until the first one was done; None if that was too short to tell anything.

    So it is where tokens come in heaps: no time lies between them.
    """
    begin, end = max(one.first_ms for one in answers), min(one.last_ms for one in answers)
    steps: list[float] = []
    held = 0.0
    for one in answers:
        within = [(at, count) for at, count in one.tokens if begin <= at <= end]
        made = sum(count for _, count in within[1:])
        if made < FEWEST_TOKENS or within[-1][0] <= within[0][0]:
            return None
        steps.append((within[-1][0] - within[0][0]) / made)
        held += one.prompt + sum(count for at, count in one.tokens if at < begin) + made / 2
    return Decode(len(answers), held, median(steps))


def side_by_side(answers: Sequence[Answer]) -> int:
    """How many made tokens at the same time, at the most: but for moments."""
    edges = sorted([(one.first_ms, 1) for one in answers] + [(one.last_ms, -1) for one in answers])
    lasted: dict[int, float] = {}
    running, before = 0, edges[0][0]
    for at, change in edges:
        lasted[running] = lasted.get(running, 0.0) + at - before
        running, before = running + change, at
    least = LASTING * (edges[-1][0] - edges[0][0])
    return max(1, *(count for count, ms in lasted.items() if ms >= least))


def reading_of(metronome: Answer, others: Sequence[Answer]) -> Reading | None:
    """The gaps of one stream while the prompts of others were read; None if it did not go on for so long."""
    sent, read = min(one.sent_ms for one in others), max(one.first_ms for one in others)
    times = [at for at, _ in metronome.tokens]
    before = max((at for at in times if at <= sent), default=None)
    after = [at for at in times if at > sent]
    if before is None or not after or after[-1] < read:
        return None
    until = next(n for n, at in enumerate(after) if at >= read)
    line = [before, *after[: until + 1]]
    gaps = tuple(later - earlier for earlier, later in pairwise(line))
    return Reading(tuple(one.prompt for one in others), gaps, read - sent, min(one.answer for one in others))
