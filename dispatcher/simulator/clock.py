"""Virtual time: what is to happen when, in ms."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

Act = Callable[[], None]


class Clock:
    """Of acts that are due at the same moment the one that was planned first comes first."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Act]] = []
        self._planned = 0

    def at(self, ms: float, act: Act) -> None:
        """At that time, or now if it has passed."""
        self._planned += 1
        heapq.heappush(self._due, (max(ms, self.now), self._planned, act))

    def after(self, ms: float, act: Act) -> None:
        self.at(self.now + ms, act)

    @property
    def next_ms(self) -> float:
        """When the next act is due; infinite if none is planned."""
        return self._due[0][0] if self._due else math.inf

    def run(self, until_ms: float) -> None:
        """All that is due up to `until_ms`, which is then the time."""
        while self._due and self._due[0][0] <= until_ms:
            self.now, _, act = heapq.heappop(self._due)
            act()
        self.now = until_ms
