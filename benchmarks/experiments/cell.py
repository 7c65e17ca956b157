"""One cell of an experiment's grid, and what its runs came to: the row of its CSV."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from dispatcher.simulator.profile import DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run. `rho`: the load, as a share of what the backends can do of these requests, first come, first served.

    `tiers`: how many the requests are divided into, by `mix`. `scrape_ms`: how often ours reads metrics.
    """

    workload: str
    way: str
    rho: float
    requests: int
    profile: str = DEFAULT
    backends: int = 1
    mix: str = "enterprise"
    tiers: int = 4
    scrape_ms: int = 200
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """A cell and its measures, by name (see measuring.MEASURES)."""

    cell: Cell
    values: Mapping[str, float]


TEXTS: Final = ("workload", "way", "profile", "mix")
DIGITS: Final[Mapping[str, int]] = {
    "rho": 2, "requests": 0, "backends": 0, "tiers": 0, "scrape_ms": 0, "seed": 0,
}  # fmt: skip
KEYS: Final = ("workload", "profile", "backends", "mix", "tiers", "rho", "requests", "scrape_ms", "way", "seed")


def seeds(cell: Cell, count: int) -> list[Cell]:
    """The same cell with seeds from 0 on."""
    return [replace(cell, seed=seed) for seed in range(count)]
