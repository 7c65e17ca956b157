"""A load to try the boost with: short and long requests of many tenants that arrive in bursts, and a backend for it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dispatcher.backends.timing import Speed

SPEED: Final = Speed(slots=8, step_ms=20, sequence_ms=0)
THETA: Final = 3
RHO: Final = 0.8
BURST: Final = 6.0  # requests, on average
PROMPT: Final = 50
KINDS: Final[Mapping[str, tuple[float, int, int]]] = {  # share, mean answer, max_tokens
    "short": (0.75, 20, 64),
    "long": (0.25, 240, 1024),
}
TENANTS: Final = 100


@dataclass(frozen=True)
class Job:
    """One request of the load: when it arrives, and what it will take."""

    at_ms: float
    kind: str
    tenant: str
    answer: int


@dataclass(frozen=True)
class Outcome:
    """One answered request. Times in ms."""

    kind: str
    sojourn_ms: float


def load(seed: int, minutes: float, tenants: int = TENANTS) -> list[Job]:
    """Bursts of geometrically many requests at Poisson times, by any tenant; answers exponentially long, cut off."""
    dice = random.Random(seed)
    per_job = sum(share * mean for share, mean, _ in KINDS.values()) * SPEED.step_ms / SPEED.slots
    jobs, at_ms = list[Job](), 0.0
    while (at_ms := at_ms + dice.expovariate(RHO / per_job / BURST)) < 60_000 * minutes:
        size = 1
        while dice.random() > 1 / BURST:
            size += 1
        for kind in dice.choices(list(KINDS), [share for share, _, _ in KINDS.values()], k=size):
            _, mean, most = KINDS[kind]
            answer = max(1, min(most, round(dice.expovariate(1 / mean))))
            jobs.append(Job(at_ms, kind, f"t{dice.randrange(tenants)}", answer))
    return jobs
