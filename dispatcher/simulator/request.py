"""A request: as the workload has it, and what becomes of it in one run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dispatcher.backends.sequences import Sequence


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a workload: when it comes (ms from the start), from whom, in which tier, and its tokens."""

    at_ms: float
    tenant: str
    tier: str
    prompt: int
    answer: int


@dataclass(slots=True, eq=False, kw_only=True)
class Request(Sequence):
    """The same in one run. `number` is its place in the workload; times in ms from the start, nan: it did not happen.

    `sent_ms`: it was handed to a backend (to the last one, if it was moved). `first_ms`: its first token was there.
    """

    number: int
    tenant: str
    tier: str
    sent_ms: float = math.nan
    first_ms: float = math.nan
    done_ms: float = math.nan
    backend: str = ""

    @property
    def is_done(self) -> bool:
        return not math.isnan(self.done_ms)
