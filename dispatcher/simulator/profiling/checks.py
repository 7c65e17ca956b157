"""How well a fitted profile explains what was seen: by its terms, and by running the engine model itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, TypeVar

from dispatcher.backends.sequences import Sequence as Running
from dispatcher.backends.timing import Engine, Speed
from dispatcher.simulator.profile import Profile
from dispatcher.simulator.profiling.seen import Decode, Flood, Seen

SAME: Final = 1.5  # times the size up to which two loads count as one kind
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Check:
    """What was seen, in the median, beside what the model says, ms. `fitted`: the model was fitted to just this."""

    what: str
    seen_ms: float
    model_ms: float
    fitted: bool = True

    @property
    def error(self) -> float:
        return self.model_ms / self.seen_ms - 1 if self.seen_ms else math.inf


def checks_of(seen: Seen, profile: Profile) -> list[Check]:
    """One for each kind of load that was seen."""
    speed, overhead_ms = profile.speed, profile.overhead_ms
    checks: list[Check] = []

    def step_ms(one: Decode) -> float:
        return speed.step_ms + speed.sequence_ms * one.streams + speed.kv_token_ms * one.kv

    for group in _alike(seen.decodes, lambda one: (one.streams, one.kv / one.streams)):
        kv = median(one.kv / one.streams for one in group)
        what = f"step, {_counted(group[0].streams, 'stream')} of {kv:.0f} tokens"
        checks.append(_check(what, [one.step_ms for one in group], [step_ms(one) for one in group]))
    for prefills in _alike(seen.prefills, lambda one: (1, one.prompt)):
        model = [overhead_ms + first_and_last_ms(speed, [(one.prompt, 1)])[0] for one in prefills]
        what = f"first token, prompt of {prefills[0].prompt} tokens"
        checks.append(_check(what, [one.first_ms for one in prefills], model))
    for readings in _alike(seen.readings, lambda one: (len(one.prompts), 1.0)):
        model = [overhead_ms + first_and_last_ms(speed, [(n, 1) for n in one.prompts])[0] for one in readings]
        what = f"all first tokens, {_counted(len(readings[0].prompts), 'long prompt')} at once"
        checks.append(_check(what, [one.first_ms for one in readings], model, fitted=False))
    for flood in seen.floods:
        what = f"whole, {flood.requests} requests at once"
        checks += [_check(what, [flood.all_ms], [_flood_ms(flood, profile)], fitted=False)]
    return checks


def _check(what: str, seen: Sequence[float], model: Sequence[float], *, fitted: bool = True) -> Check:
    return Check(what, median(seen), median(model), fitted)


def _alike(all_of: Iterable[T], key: Callable[[T], tuple[int, float]]) -> list[list[T]]:
    """Groups of the same number whose sizes are about the same."""
    groups: list[list[T]] = []
    for one in sorted(all_of, key=key):
        number, size = key(one)
        if groups and key(groups[-1][0])[0] == number and size <= SAME * key(groups[-1][0])[1]:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _flood_ms(flood: Flood, profile: Profile) -> float:
    alike = [(flood.prompt, flood.answer)] * flood.requests
    return profile.overhead_ms + first_and_last_ms(profile.speed, alike)[1]


def first_and_last_ms(speed: Speed, lengths: Iterable[tuple[int, int]]) -> tuple[float, float]:
    """Requests of these (prompt, answer) come at once: when all have their first token, and when all are answered."""
    engine = Engine(speed)
    running = [Running(prompt, answer) for prompt, answer in lengths]
    for one in running:
        engine.add(one)
    now = first = 0.0
    while not engine.idle:
        begun = all(one.made for one in running)
        now += engine.step().ms
        if not begun:
            first = now
    return first, now


def _counted(number: int, one: str) -> str:
    return f"{number} {one}" + ("s" if number != 1 else "")
