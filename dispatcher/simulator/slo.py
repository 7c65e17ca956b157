"""What is promised to a tier, as it is typed: `default:ttft_p99=2s,batch:e2e_p99=1h`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dispatcher.simulator.measures import Slo, e2e_ms, percentile, ttft_ms
from dispatcher.simulator.request import Request
from fairlane.errors import InvalidRequest, UnknownTier

PERCENTS: Final = (50, 90, 95, 99)
METRICS: Final[Mapping[str, Callable[[Request], float]]] = {"ttft": ttft_ms, "e2e": e2e_ms}
UNITS_MS: Final[Mapping[str, int]] = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
FORM: Final = (
    "Say TIER:METRIC_PNN=TIME, with commas between several, as in default:ttft_p99=2s,batch:e2e_p99=1h. "
    "METRIC is ttft (to the first token) or e2e (to the end of the answer); PNN is "
    f"{', '.join(f'p{percent}' for percent in PERCENTS)}; TIME is a number and ms, s, m or h."
)
_TARGET: Final = re.compile(
    rf"(?P<tier>[^:=]+):(?P<metric>{'|'.join(METRICS)})_p(?P<percent>{'|'.join(map(str, PERCENTS))})=(?P<time>.+)"
)
_TIME: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class Target:
    """Of the tier's requests, so many percent have at most `bound_ms` from their arrival; by nearest rank."""

    tier: str
    metric: str
    percent: int
    bound_ms: float

    @property
    def what(self) -> str:
        return f"{self.tier}:{self.metric}_p{self.percent}"

    def __str__(self) -> str:
        return f"{self.what}={written(self.bound_ms)}"

    def seen_ms(self, requests: Iterable[Request]) -> float:
        """What a run came to; nan if the tier has no requests, infinite if too many were not answered."""
        return self.of(METRICS[self.metric](one) for one in requests if one.tier == self.tier)

    def of(self, times_ms: Iterable[float]) -> float:
        """Its percentile of these times."""
        return percentile(sorted(times_ms), self.percent)

    def allows(self, ms: float) -> bool:
        """Nobody is disappointed where nobody is served: nan is allowed."""
        return math.isnan(ms) or ms <= self.bound_ms


def parse_targets(text: str | None, tiers: Sequence[str]) -> tuple[Target, ...]:
    """As after --slo; None or "" are none. Raises InvalidRequest, which shows the form, and UnknownTier."""
    targets = tuple(_target(part.strip(), tiers) for part in text.split(",")) if text else ()
    for place, one in enumerate(targets):
        if one.what in [other.what for other in targets[:place]]:
            raise InvalidRequest(f"{one.what} is there twice. Say it once.", param="slo")
    return targets


def bounds(targets: Iterable[Target]) -> dict[str, Slo]:
    """What one request of each tier may take to count as good: the bound of the highest percentile of each metric."""
    found: dict[str, dict[str, float]] = {}
    for one in sorted(targets, key=lambda one: one.percent):
        found.setdefault(one.tier, {})[f"{one.metric}_ms"] = one.bound_ms
    return {tier: Slo(**given) for tier, given in found.items()}


def parse_ms(text: str) -> float:
    """`250ms`, `2s`, `1.5m`, `1h`. Raises ValueError."""
    match = _TIME.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise ValueError(f"{text[:40]!r} is no time: say a number above 0 and ms, s, m or h")
    return float(match[1]) * UNITS_MS[match[2]]


def written(ms: float) -> str:
    """As `parse_ms` reads it, in the largest unit that makes it whole."""
    unit = next((unit for unit, size in UNITS_MS.items() if ms % size == 0), "ms")
    return f"{ms / UNITS_MS[unit]:g}{unit}"


def shown(ms: float) -> str:
    """To read: `42 ms`, `1.24 s`, `2.5 min`; `never` for what did not come, `-` where there was nobody."""
    if not math.isfinite(ms):
        return "-" if math.isnan(ms) else "never"
    for size, name in ((3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if ms >= 2 * size or (ms >= size and name == "s"):
            return f"{ms / size:.3g} {name}"
    return f"{ms:.0f} ms"


def _target(text: str, tiers: Sequence[str]) -> Target:
    match = _TARGET.fullmatch(text)
    if match is None:
        raise InvalidRequest(f"{text[:80]!r} is no SLO. {FORM}", param="slo")
    if match["tier"] not in tiers:
        there = f"there is no tier {match['tier'][:40]}. There are: {', '.join(tiers)}"
        raise UnknownTier(f"{text[:80]}: {there}.", param="slo")
    try:
        return Target(match["tier"], match["metric"], int(match["percent"]), parse_ms(match["time"]))
    except ValueError as error:
        raise InvalidRequest(f"{text[:80]}: {error}.", param="slo") from None
