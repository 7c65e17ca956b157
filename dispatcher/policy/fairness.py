"""How fairly the tenants of a pool were served lately, from what each got while it waited.

Time is cut into rounds. In a round, the tenants of one tier that had waiting work all through it were owed the same
service per weight: the mean of what they got. Who had nothing to send for a moment was owed nothing, whatever it got.

- A tenant's share is what it got, over what it was owed, in all rounds. Jain's index of the shares of n tenants,
  (Σx)² / (n·Σx²), is 1 if all are equal and 1/n if one has everything (R. Jain, D. Chiu, W. Hawe, "A Quantitative
  Measure of Fairness and Discrimination", DEC-TR-301, 1984).
- A tenant's lead is what it got, less what it was owed. The gap of a tier is its largest lead less its smallest; of two
  tenants that both wait all the time it is the difference of their service, which VTC bounds (Y. Sheng et al.,
  "Fairness in Serving Large Language Models", OSDI 2024).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Span = tuple[int, int]  # from, to, in ms
Round = Mapping[str, Mapping[str, float]]  # tier → tenant that waited all through → its service per weight


@dataclass(frozen=True, slots=True)
class Fairness:
    """`jain` is in (0, 1], `gap` in the unit of the services; `tenants` are those compared, each in its tier."""

    jain: float = 1.0
    gap: float = 0.0
    tenants: int = 0


@dataclass(frozen=True, slots=True)
class Due:
    """What one tenant got of one tier while it waited, and what it was owed."""

    got: float
    owed: float

    @property
    def lead(self) -> float:
        return self.got - self.owed


def fairness(rounds: Iterable[Round]) -> Fairness:
    """Over all the rounds. Perfectly fair where no two tenants of a tier waited at a time."""
    found = dues(rounds)
    shares = [due.got / due.owed for of in found.values() for due in of.values()]
    leads = [[due.lead for due in of.values()] for of in found.values()]
    gap = max((max(of) - min(of) for of in leads), default=0.0)
    return Fairness(jain(shares), gap, len(shares))


def dues(rounds: Iterable[Round]) -> Mapping[str, Mapping[str, Due]]:
    """By tier and tenant, over all the rounds; of those that were owed anything."""
    got: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    owed: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for tier, services in (entry for one in rounds for entry in one.items()):
        mean = sum(services.values()) / len(services) if len(services) > 1 else 0.0
        if mean > 0:  # else the tier was not served: nobody was owed anything
            for tenant, service in services.items():
                got[tier][tenant] += service
                owed[tier][tenant] += mean
    return {tier: {tenant: Due(got[tier][tenant], fair) for tenant, fair in of.items()} for tier, of in owed.items()}


def jain(shares: Sequence[float]) -> float:
    """Jain's index of non-negative shares; 1 if there are none, or nothing was shared out."""
    squares = math.fsum(share * share for share in shares)
    return math.fsum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def covers(spans: Iterable[Span], start_ms: int, end_ms: int) -> bool:
    """Whether the spans together leave no gap from `start_ms` to `end_ms`."""
    reached = start_ms
    for begins, ends in sorted(spans):
        if begins > reached:
            break
        reached = max(reached, ends)
    return reached >= end_ms


def top(amounts: Mapping[str, float], most: int) -> tuple[list[tuple[str, float]], float]:
    """The `most` largest amounts, the largest first, equal ones by name; and the sum of the others."""
    ranked = sorted(amounts.items(), key=lambda entry: (-entry[1], entry[0]))
    return ranked[:most], math.fsum(amount for _, amount in ranked[most:])
