"""The mean over some seeds, and how far it may be off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Final

# Student's t for 97.5 % and 1 to 30 degrees of freedom
_T: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """`mean` ± `half`: half the width of the 95 % confidence interval; nan where there is none."""

    mean: float
    half: float


def estimate(values: Sequence[float]) -> Estimate:
    """Of independent values, one for each seed. One alone has no interval, nor have values that are not all finite.

    With more than 31 values the interval is a little too wide: t is that of 30 degrees of freedom.
    """
    mean = fmean(values) if values else math.nan
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return Estimate(mean, math.nan)
    t = _T[min(len(values) - 1, len(_T)) - 1]
    return Estimate(mean, t * stdev(values) / math.sqrt(len(values)))
