"""How long prompts and answers are: distributions to draw from, and the kinds of load made of them."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from dispatcher.simulator.request import Arrival


class Tokens(Protocol):
    """A distribution of lengths in tokens, at least 1."""

    def draw(self, dice: random.Random) -> int: ...


class Lengths(Protocol):
    """A distribution of requests: tokens of prompt and of answer."""

    def draw(self, dice: random.Random) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class LogNormal:
    """`median` · e^(`sigma`·z) with z standard normal, cut at `most`."""

    median: float
    sigma: float
    most: int

    def draw(self, dice: random.Random) -> int:
        return max(1, min(self.most, round(self.median * math.exp(self.sigma * dice.gauss(0.0, 1.0)))))


@dataclass(frozen=True, slots=True)
class Pareto:
    """P(more than x) = (`least` / x)^`alpha`, cut at `most`: the smaller `alpha`, the heavier the tail."""

    least: float
    alpha: float
    most: int

    def draw(self, dice: random.Random) -> int:
        return max(1, min(self.most, round(self.least * dice.paretovariate(self.alpha))))


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request; the lengths of prompt and answer have nothing to do with each other."""

    prompt: Tokens
    answer: Tokens

    def draw(self, dice: random.Random) -> tuple[int, int]:
        return self.prompt.draw(dice), self.answer.draw(dice)


@dataclass(frozen=True, slots=True)
class Mixed:
    """Of each kind the given share (shares need not add up to 1)."""

    parts: Sequence[tuple[float, Lengths]]

    def draw(self, dice: random.Random) -> tuple[int, int]:
        (kind,) = dice.choices([kind for _, kind in self.parts], [share for share, _ in self.parts])
        return kind.draw(dice)


# Chat: median and spread of the logarithms of the Azure 2023 conversation trace (Splitwise, ISCA 2024). Its own tail is
# shorter than a log-normal's: cut near its longest.
CHAT: Final = Kind(LogNormal(1020, 0.985, 14_000), LogNormal(129, 0.86, 1_000))
# Reasoning: median, and for answers the 99th percentile (13,000), of ServeGen's deepseek-r1 clients, by their rates.
REASONING: Final = Kind(LogNormal(260, 1.8, 32_768), LogNormal(740, 1.24, 32_768))
# Code completion: the same of the Azure 2023 code trace. Nearly all of the work is to read prompts.
CODE: Final = Kind(LogNormal(1470, 1.36, 7_400), LogNormal(13, 0.85, 2_000))
KINDS: Final[Mapping[str, Lengths]] = {
    "chat": CHAT,
    "code": CODE,
    "reasoning": REASONING,
    "mixed": Mixed(((0.5, CHAT), (0.5, REASONING))),
}


def poisson(rate_per_s: float, length_s: float, lengths: Lengths, seed: int) -> list[Arrival]:
    """Requests that come independently of each other, `rate_per_s` on average. Without tenants and tiers."""
    dice = random.Random(f"{seed} arrivals")
    times: list[float] = []
    at_ms = 1000 * dice.expovariate(rate_per_s)
    while at_ms < 1000 * length_s:
        times.append(at_ms)
        at_ms += 1000 * dice.expovariate(rate_per_s)
    return with_lengths([Arrival(at_ms, "", "", 1, 1) for at_ms in times], lengths, seed)


def with_lengths(arrivals: Sequence[Arrival], lengths: Lengths, seed: int) -> list[Arrival]:
    """The same arrivals with lengths drawn anew: a trace's bursts with another kind of load."""
    dice = random.Random(f"{seed} lengths")
    drawn = [lengths.draw(dice) for _ in arrivals]
    return [replace(one, prompt=prompt, answer=answer) for one, (prompt, answer) in zip(arrivals, drawn, strict=True)]
