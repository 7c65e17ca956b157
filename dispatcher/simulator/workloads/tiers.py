"""Which request is in which tier: mixes, and how one mix is cut into more or fewer tiers."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from dispatcher.simulator.request import Arrival
from fairlane.errors import InvalidRequest
from fairlane.model import DEFAULT_TIERS

Mix = Sequence[float]  # each tier's share of the requests, the highest tier first

MIXES: Final[Mapping[str, Mix]] = {
    "enterprise": (0.10, 0.15, 0.15, 0.60),
    "normal": (0.058, 0.258, 0.426, 0.258),
    "uniform": (0.25, 0.25, 0.25, 0.25),
}


def parse_mix(text: str) -> Mix:
    """One of MIXES by its name, or shares as `0.2,0.3,0.5`. Raises InvalidRequest."""
    if text in MIXES:
        return MIXES[text]
    try:
        mix = tuple(float(share) for share in text.split(","))
    except ValueError:
        mix = ()
    if not mix or not all(0 <= share <= 1 for share in mix) or not math.isclose(sum(mix), 1, abs_tol=1e-6):
        raise InvalidRequest(f"{text} is no mix: say {', '.join(MIXES)}, or shares that add up to 1, as 0.2,0.3,0.5.")
    return mix


def tier_names(tiers: int) -> tuple[str, ...]:
    """Fairlane's own four, or `tier-1` (the highest) to `tier-10`."""
    return DEFAULT_TIERS if tiers == len(DEFAULT_TIERS) else tuple(f"tier-{n + 1}" for n in range(tiers))


def cuts(mix: Mix, tiers: int) -> list[float]:
    """Up to which rank in [0, 1) the requests of each tier go, if the mix is spread over so many tiers.

    With as many tiers as the mix has shares, these are its shares. Otherwise the highest tier keeps the mix's first
    share, so that from two tiers on it holds the very same requests and can be compared; the lower ones divide the rest
    evenly along the mix, where a share that is divided is taken to be uniform: enterprise (.10 .15 .15 .60) becomes
    .10 .90 for two tiers, .10 .225 .675 for three, .10 .05 .05 .05 .05 .05 .05 .20 .20 .20 for ten.
    """
    if tiers == 1:
        return [1.0]
    sums = list(accumulate(mix))
    if tiers != len(mix):
        sums = [_along(sums, (len(mix) - 1) * n / (tiers - 1)) for n in range(tiers)]
    return [*sums[:-1], 1.0]


def with_tiers(arrivals: Sequence[Arrival], tiers: Sequence[str], mix: Mix, seed: int) -> list[Arrival]:
    """The same arrivals, each in a tier. `tiers`: the highest first.

    A request's rank depends on the seed and on its place alone. So the tiers of a second list, made with other tiers
    from the same arrivals, name the class of each request in a run of the first (by `Request.number`).
    """
    bounds, dice = cuts(mix, len(tiers)), random.Random(f"{seed} tiers")
    return [replace(one, tier=tiers[bisect_right(bounds, dice.random())]) for one in arrivals]


def _along(sums: Sequence[float], place: float) -> float:
    """The sum at a place between two of them."""
    below = min(math.floor(place), len(sums) - 1)
    above = min(below + 1, len(sums) - 1)
    return sums[below] + (place - below) * (sums[above] - sums[below])
