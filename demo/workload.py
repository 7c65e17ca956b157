"""Requests whose arrivals and lengths have the shape of a published trace; generated, none of the trace is copied.

The shape: Azure's conversation trace of 2023 (AzurePublicDataset, CC-BY 4.0; Patel et al., "Splitwise", ISCA 2024).
Fitted to it: prompts log-normal with μ = 6.63, σ = 0.985 (median 760 tokens), answers log-normal with μ = 5.02,
σ = 0.859 (median 151 tokens), and gamma-distributed gaps between arrivals with a coefficient of variation of 1.09.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

SEED: Final = 2023
PROMPT: Final = (6.63, 0.985, 4000)  # μ, σ of the logarithm; at most
ANSWER: Final = (5.02, 0.859, 1000)
GAP_CV: Final = 1.09


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: when it comes (seconds from the start), whose it is, and how long it is (tokens)."""

    at_s: float
    tenant: str
    tier: str
    prompt_tokens: int
    answer_tokens: int

    def body(self, model: str) -> dict[str, Any]:
        """About `prompt_tokens` words; the backend makes exactly `answer_tokens`."""
        return {
            "model": model,
            "messages": [{"role": "user", "content": "word " * self.prompt_tokens}],
            "max_tokens": self.answer_tokens,
            "ignore_eos": True,
        }


@dataclass(frozen=True, slots=True)
class Stream:
    """A tenant's requests: `at_once` of them at `begin_s`, then `per_s` on average until `end_s`."""

    tenant: str
    tier: str
    per_s: float
    begin_s: float = 0.0
    end_s: float = 10.0
    at_once: int = 0


STREAMS: Final = (
    Stream("heavy", "default", per_s=0.0, begin_s=1.0, at_once=130),
    Stream("ann", "priority", per_s=0.8),
    Stream("bob", "default", per_s=0.8),
    Stream("cleo", "default", per_s=0.8),
    Stream("dan", "default", per_s=0.8),
)


def workload(streams: tuple[Stream, ...] = STREAMS, seed: int = SEED, scale: float = 1.0) -> list[Arrival]:
    """All arrivals in order; the same seed gives the same, to the token. `scale` shortens the flood and the time."""
    dice = random.Random(seed)
    scaled = [replace(s, end_s=s.end_s * scale, at_once=round(s.at_once * scale)) for s in streams]
    return sorted((arrival for stream in scaled for arrival in _of(stream, dice)), key=lambda one: one.at_s)


def _of(stream: Stream, dice: random.Random) -> Iterator[Arrival]:
    for _ in range(stream.at_once):
        yield _arrival(stream, stream.begin_s, dice)
    if stream.per_s <= 0:
        return
    shape = 1 / GAP_CV**2
    at_s = stream.begin_s
    while (at_s := at_s + dice.gammavariate(shape, 1 / (stream.per_s * shape))) < stream.end_s:
        yield _arrival(stream, at_s, dice)


def _arrival(stream: Stream, at_s: float, dice: random.Random) -> Arrival:
    return Arrival(at_s, stream.tenant, stream.tier, _length(dice, *PROMPT), _length(dice, *ANSWER))


def _length(dice: random.Random, mu: float, sigma: float, most: int) -> int:
    return max(1, min(most, math.floor(dice.lognormvariate(mu, sigma))))
