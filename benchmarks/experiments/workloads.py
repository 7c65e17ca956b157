"""The workloads of the experiments by name: where requests come from, and whose they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Final

from dispatcher.simulator.request import Arrival
from dispatcher.simulator.workloads.lengths import KINDS, poisson
from dispatcher.simulator.workloads.load import at_load, repeated
from dispatcher.simulator.workloads.tenants import Shares, even, heavy, on_off, with_tenants
from dispatcher.simulator.workloads.trace import read_trace

CONVERSATION: Final = Path("azure2023/conv_norm.csv")
CODE: Final = Path("azure2023/code_norm.csv")
WINDOWS: Final = 5  # parts of a trace, one for each seed; further seeds use them again, with other dice
LIGHT: Final = 9  # tenants beside the heavy one: it has 10 of 19 requests

MANY_LIGHT: Final = 19  # … and 10 of 29

# The first requests of a seed, in the time of their source: (traces, how many, seed)
Source = Callable[[Path, int, int], list[Arrival]]


@dataclass(frozen=True, slots=True)
class Workload:
    """`on_off_s`: each tenant is busy and silent for so long, over and over. Tiers are the experiment's.

    `dice` is added to the seed wherever dice are thrown: who sends what in which tier, and when who is silent.
    """

    source: Source
    tenants: Shares = field(default_factory=partial(even, 1))
    on_off_s: tuple[float, float] | None = None
    dice: int = 0

    def base(self, traces: Path, requests: int, seed: int) -> list[Arrival]:
        """Times and lengths, at no particular load."""
        return with_tenants(self.source(traces, requests, seed), self.tenants, seed + self.dice)

    def at(self, base: list[Arrival], rho: float, capacity_per_s: float, seed: int) -> list[Arrival]:
        """Those requests at that load."""
        loaded = at_load(base, rho, capacity_per_s)
        return on_off(loaded, *self.on_off_s, seed + self.dice) if self.on_off_s else loaded


def part(trace: Path, *, after: bool = False) -> Source:
    """Another part of a trace for each seed; they overlap if they are longer than a fifth of it.

    `after`: the part that follows that one, or, of the last, the one before it.
    """

    def source(traces: Path, requests: int, seed: int) -> list[Arrival]:
        arrivals = _read(traces / trace)
        first = seed % WINDOWS * ((len(arrivals) - requests) // (WINDOWS - 1))
        if requests > len(arrivals):
            raise ValueError(f"{trace} has no {requests} requests")
        if after:
            first += requests if first + 2 * requests <= len(arrivals) else -requests
        begin_ms = arrivals[first].at_ms
        return [replace(one, at_ms=one.at_ms - begin_ms) for one in arrivals[first : first + requests]]

    return source


def all_of(trace: Path) -> Source:
    """From its beginning, and again from its beginning after its end."""

    def source(traces: Path, requests: int, _seed: int) -> list[Arrival]:
        arrivals = _read(traces / trace)
        return repeated(arrivals, 1 + requests // len(arrivals))[:requests]

    return source


def drawn(kind: str) -> Source:
    """Poisson arrivals with lengths of that kind."""

    def source(_traces: Path, requests: int, seed: int) -> list[Arrival]:
        return poisson(1.0, 1.2 * requests + 100, KINDS[kind], seed)[:requests]

    return source


_read = cache(read_trace)

WORKLOADS: Final[Mapping[str, Workload]] = {
    "conversation": Workload(part(CONVERSATION)),
    "conversation, heavy tenant": Workload(part(CONVERSATION), heavy(LIGHT)),
    "conversation, longer parts": Workload(part(CONVERSATION)),
    "conversation, on-off tenants": Workload(part(CONVERSATION), even(LIGHT + 1), (60.0, 60.0)),
    "conversation, bursts of a heavy tenant": Workload(part(CONVERSATION), heavy(MANY_LIGHT), (60.0, 120.0)),
    "conversation, bursts of a heavy tenant, elsewhere": Workload(
        part(CONVERSATION, after=True), heavy(MANY_LIGHT), (60.0, 120.0), dice=100
    ),
    "conversation, an hour": Workload(all_of(CONVERSATION), heavy(LIGHT)),
    "code": Workload(part(CODE)),
    **{kind: Workload(drawn(kind)) for kind in KINDS},
}
