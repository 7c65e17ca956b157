"""A pool's numbers over time: the points that its observer leaves, and who was served in the last minute.

The history is kept in three steps, each with so many points that it stays small: a point of a coarser step holds what
the points of a finer one add up to, or their largest. Waits are counted in classes, each √2 times as long as the one
before: the counts of any points add up, and a percentile read from the sum is off by a fifth at the most.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TypeAlias, cast

Span: TypeAlias = Literal["15m", "6h", "7d"]


@dataclass(frozen=True, slots=True)
class Step:
    """How long a point stands for, and how many are kept."""

    s: int
    kept: int


STEPS: Final[Mapping[Span, Step]] = {"15m": Step(5, 180), "6h": Step(120, 180), "7d": Step(1800, 336)}
LONGEST_CLASS: Final = 63  # waits of 35 days and more

_WORD: Final = re.compile(r"([^\s+^=]+)[+^=](\S+)")  # what record.lua adds up, keeps the largest of, or replaces


@dataclass(frozen=True, slots=True)
class TierPoint:
    """One tier: the most that waited, the longest that its oldest had waited, the most that ran; the jobs that came and
    that ended, the tokens that those used, and how many of them had waited how long (class → jobs)."""

    depth: int = 0
    oldest_ms: int = 0
    inflight: int = 0
    came: int = 0
    ended: int = 0
    tokens: int = 0
    waits: Mapping[int, int] = field(default_factory=dict[int, int])


@dataclass(frozen=True, slots=True)
class Point:
    """A pool over one step, which began at `at_ms`.

    What came and ended is known of `took_s` of it. `slots` is the capacity, `busy` its share in use on average, `gamma`
    the boost's γ per second; None: not known.
    """

    at_ms: int
    took_s: float
    tiers: Mapping[str, TierPoint]
    slots: int | None = None
    busy: float | None = None
    gamma: float | None = None
    replicas: int | None = None

    def per_s(self, n: int) -> float | None:
        """What came or ended, per second."""
        return n / self.took_s if self.took_s else None


# --- waits ------------------------------------------------------------------------------------------------------------


def class_of(wait_ms: float) -> int:
    """The class of a wait: class k begins at 2^(k/2) ms, the first one at 0."""
    return 0 if wait_ms < 1 else min(LONGEST_CLASS, math.floor(2 * math.log2(wait_ms)))


def percentile(waits: Mapping[int, int], share: float) -> float | None:
    """The wait (ms) that this share of the jobs did not exceed; None if there were none."""
    total = sum(waits.values())
    if not total:
        return None
    left = share * total
    for k, jobs in sorted(waits.items()):
        if left <= jobs:
            begins = 0.0 if k == 0 else 2 ** (k / 2)
            return begins + (2 ** ((k + 1) / 2) - begins) * left / jobs
        left -= jobs
    return 2 ** ((max(waits) + 1) / 2)


def together(tiers: Iterable[TierPoint]) -> TierPoint:
    """Several tiers, or several points of one, as one: all that add up, and the largest of the others."""
    found = tuple(tiers)
    waits: Counter[int] = Counter()
    for tier in found:
        waits.update(tier.waits)
    return TierPoint(
        depth=max((tier.depth for tier in found), default=0),
        oldest_ms=max((tier.oldest_ms for tier in found), default=0),
        inflight=max((tier.inflight for tier in found), default=0),
        came=sum(tier.came for tier in found),
        ended=sum(tier.ended for tier in found),
        tokens=sum(tier.tokens for tier in found),
        waits=waits,
    )


# --- as record.lua keeps them -----------------------------------------------------------------------------------------


def packed(point: Point) -> str:
    """The point's words. A number that is 0 or not known takes no place."""
    return " ".join(f"{word}{value:.10g}" for word, value in _words(point) if value)


def _words(point: Point) -> Iterator[tuple[str, float]]:
    yield "took+", point.took_s
    yield "busy+", (point.busy or 0.0) * point.took_s
    yield "slots^", point.slots or 0
    yield "gamma=", point.gamma or 0.0
    yield "replicas=", point.replicas or 0
    for name, tier in point.tiers.items():
        yield f"depth:{name}^", tier.depth
        yield f"oldest:{name}^", tier.oldest_ms
        yield f"inflight:{name}^", tier.inflight
        yield f"came:{name}+", tier.came
        yield f"ended:{name}+", tier.ended
        yield f"tokens:{name}+", tier.tokens
        for k, jobs in tier.waits.items():
            yield f"wait:{name}:{k}+", jobs


def unpacked(at_ms: int, words: str) -> Point:
    """The inverse of `packed`."""
    numbers: dict[str, float] = {}
    tiers: dict[str, dict[str, Any]] = {}
    waits: dict[str, dict[int, int]] = {}
    for name, value in _WORD.findall(words):
        what, _, rest = name.partition(":")
        if not rest:
            numbers[name] = float(value)
        elif what == "wait":
            tier, _, k = rest.partition(":")
            waits.setdefault(tier, {})[int(k)] = int(float(value))
        else:
            tiers.setdefault(rest, {})["oldest_ms" if what == "oldest" else what] = int(float(value))
    took_s, slots, replicas = (numbers.get(name, 0.0) for name in ("took", "slots", "replicas"))
    return Point(
        at_ms,
        took_s,
        {name: TierPoint(**tiers.get(name, {}), waits=waits.get(name, {})) for name in tiers | waits},
        slots=int(slots) or None,
        busy=numbers.get("busy", 0.0) / took_s if took_s and slots else None,
        gamma=numbers.get("gamma"),
        replicas=int(replicas) or None,
    )


# --- who was served ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServedTenant:
    """One tenant in the last minute: its jobs that ended, the tokens they used, and, of the time that it had waiting
    work, the service per weight that it got and that it was owed (both 0 if it never waited all through a round)."""

    tenant: str
    jobs: int
    tokens: int
    got: float
    owed: float


@dataclass(frozen=True, slots=True)
class ServiceGap:
    """Of two tenants of one tier that waited: how much more service per weight the one got than the other."""

    tier: str
    gap: float
    most: str
    least: str


@dataclass(frozen=True, slots=True)
class Served:
    """Who was served in the `took_s` before `at_ms`, those with the most service first; `jobs` and `tokens` are
    everybody's. `by`: service is counted in requests or in tokens."""

    at_ms: int
    took_s: float
    by: str
    jobs: int
    tokens: int
    tenants: tuple[ServedTenant, ...]
    gaps: tuple[ServiceGap, ...]


def served_json(served: Served) -> str:
    return json.dumps(asdict(served), separators=(",", ":"), allow_nan=False)


def served_of(text: str) -> Served:
    """The inverse of `served_json`."""
    fields = cast("dict[str, Any]", json.loads(text))
    tenants = tuple(ServedTenant(**each) for each in fields.pop("tenants"))
    return Served(tenants=tenants, gaps=tuple(ServiceGap(**each) for each in fields.pop("gaps")), **fields)
