"""ServeGen's clients (arXiv 2505.09999): real tenants, each with its rate and burstiness over time and its lengths.

The file is JSON: `quantile_levels_percent`, `window_s.trace` (the length of a window of arrivals), and `clients`, each
with `id`, `arrival_windows` ([start_s, rate, cv, distribution, shape, scale]) and `lengths` ({start_s: {input_tokens,
output_tokens: {q: quantiles}}}). What is not in the file: how a prompt's length and its answer's go together. They are
drawn independently.
"""

from __future__ import annotations

import json
import math
import random
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final, cast

from dispatcher.simulator.request import Arrival
from dispatcher.simulator.workloads.trace import MOST_TOKENS
from fairlane.errors import InvalidRequest
from fairlane.model import TENANT_PATTERN

# of one gap between arrivals, by the distribution's shape; the scale follows from the number of arrivals
_GAPS: Final[Mapping[str, Callable[[random.Random, float], float]]] = {
    "Gamma": lambda dice, shape: dice.gammavariate(shape, 1.0),
    "Weibull": lambda dice, shape: dice.weibullvariate(1.0, shape),
}

_LEAST_SHAPE: Final = 0.01  # below, gaps overflow


@dataclass(frozen=True, slots=True)
class Window:
    """`rate_per_s` × `length_s` arrivals from `start_s` on, with gaps of that distribution and shape."""

    start_s: float
    length_s: float
    rate_per_s: float
    distribution: str
    shape: float

    def times_s(self, dice: random.Random, share: float) -> list[float]:
        """As many arrivals as the original had (times `share`): gaps are drawn and stretched to fill the window.

        A renewal process that begins anew with each window would have too many, where the gaps vary much.
        """
        count = math.floor(self.rate_per_s * self.length_s * share + dice.random())
        draw = _GAPS[self.distribution]
        sums = list(accumulate(draw(dice, self.shape) for _ in range(count + 1)))
        stretch = self.length_s / sums[-1] if sums[-1] > 0 else 0.0
        last_s = self.length_s - 1e-6  # gaps can be so small that they vanish: still before the end
        return [self.start_s + min(stretch * sum_, last_s) for sum_ in sums[:-1]]


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A distribution of lengths by its quantiles at the given levels (0 to 1), geometric in between.

    Straight lines in between would make the mean of ServeGen's language clients 15 % too long, geometric ones 6 %.
    """

    levels: Sequence[float]
    tokens: Sequence[float]

    def draw(self, dice: random.Random) -> int:
        level = dice.random()
        above = min(bisect_right(self.levels, level), len(self.levels) - 1)
        low, high = (max(1.0, self.tokens[place]) for place in (above - 1, above))
        part = (level - self.levels[above - 1]) / (self.levels[above] - self.levels[above - 1])
        return round(low * (high / low) ** part)


@dataclass(frozen=True, slots=True)
class Lengths:
    """From `start_s` on."""

    start_s: float
    prompt: Quantiles
    answer: Quantiles


@dataclass(frozen=True, slots=True)
class Client:
    """One tenant. `lengths` may be empty: ServeGen has published none for some."""

    name: str
    windows: Sequence[Window]
    lengths: Sequence[Lengths]

    def lengths_at(self, s: float) -> Lengths:
        """Those that hold then; before the first ones, these."""
        return self.lengths[max(0, bisect_right(self.lengths, s, key=lambda one: one.start_s) - 1)]


def read_clients(path: str | Path) -> list[Client]:
    """The clients of a ServeGen file. Raises InvalidRequest, which says what is wrong with it."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        levels = [float(level) / 100 for level in found["quantile_levels_percent"]]
        if levels[0] != 0 or levels[-1] != 1 or any(a >= b for a, b in pairwise(levels)):
            raise ValueError("quantile_levels_percent does not rise from 0 to 100")
        length_s = float(found["window_s"]["trace"])
        clients = [_client(one, levels, length_s) for one in found["clients"]]
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise InvalidRequest(f"{path} is no file of ServeGen clients: {type(error).__name__}: {error}.") from None
    if not any(client.lengths for client in clients):
        raise InvalidRequest(f"{path} has no client with lengths.")
    return clients


def generate(
    clients: Sequence[Client], seed: int, *, from_s: float = 0.0, length_s: float = 3600.0, share: float = 1.0
) -> list[Arrival]:
    """What the clients send in [`from_s`, `from_s` + `length_s`), in times from its start. Without tiers.

    `share` is the part of every client's rate: a smaller load with the same tenants, where `load.scaled` would stretch
    its bursts. A client without lengths takes each request's from another one, drawn evenly among those that have some.
    Each window has dice of its own: two cuts that overlap have the same arrivals there.
    """
    lenders = [client for client in clients if client.lengths]
    arrivals: list[Arrival] = []
    for client in clients:
        for window in client.windows:
            if window.start_s + window.length_s <= from_s or window.start_s >= from_s + length_s:
                continue
            dice = random.Random(f"{seed} client {client.name} at {window.start_s:g}")
            for s in window.times_s(dice, share):
                lengths = (client if client.lengths else dice.choice(lenders)).lengths_at(s)
                prompt, answer = lengths.prompt.draw(dice), lengths.answer.draw(dice)
                if from_s <= s < from_s + length_s:
                    arrivals.append(Arrival(1000 * (s - from_s), client.name, "", prompt, answer))
    return sorted(arrivals, key=lambda one: one.at_ms)


def _client(found: Mapping[str, Any], levels: Sequence[float], length_s: float) -> Client:
    lengths = [
        Lengths(float(start_s), _quantiles(levels, one["input_tokens"]), _quantiles(levels, one["output_tokens"]))
        for start_s, one in found["lengths"].items()
    ]
    lengths.sort(key=lambda one: one.start_s)
    windows = [_window(one, length_s) for one in found["arrival_windows"]]
    name = f"client-{found['id']}"
    if not re.fullmatch(TENANT_PATTERN, name):
        raise ValueError(f"the client {name[:40]!r} has no name of the form {TENANT_PATTERN}")
    return Client(name, windows, lengths)


def _window(found: Sequence[Any], length_s: float) -> Window:
    start_s, rate, _cv, distribution, shape, _scale = found
    if distribution not in _GAPS:
        raise ValueError(f"the distribution {distribution!r} is none of {', '.join(_GAPS)}")
    window = Window(float(start_s), length_s, float(rate), distribution, float(shape))
    if not (0 <= window.start_s < math.inf and 0 < length_s < math.inf):
        raise ValueError(f"the window {found} has no beginning, or no length")
    if not (0 <= window.rate_per_s < math.inf and _LEAST_SHAPE <= window.shape < math.inf):
        raise ValueError(f"the window {found} has no rate from 0 on or no shape from {_LEAST_SHAPE} on")
    return window


def _quantiles(levels: Sequence[float], found: Mapping[str, Any]) -> Quantiles:
    tokens = [float(value) for value in cast("Sequence[Any]", found["q"])]
    if len(tokens) != len(levels) or tokens != sorted(tokens):
        raise ValueError(f"{len(tokens)} quantiles for {len(levels)} levels, or they do not rise")
    if not all(0 <= value <= MOST_TOKENS for value in tokens):
        raise ValueError(f"a quantile is not from 0 to {MOST_TOKENS} tokens")
    return Quantiles(levels, tokens)
