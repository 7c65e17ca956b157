"""How fast a batch goes, and how long it will take, from how it looked before."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from producer.client.records import Batch, Progress

WINDOW_S: Final = 60.0  # the rate is that of so long a time


class Meter:
    """Keeps the lines done at each look, for as long as WINDOW_S. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def saw(self, batch: Batch, place: int | None = None) -> Progress:
        """Notes how the batch looks now."""
        now, progress = self._clock(), Progress(batch)
        done = progress.done
        while len(self._seen) > 1 and self._seen[1][0] <= now - WINDOW_S:
            self._seen.popleft()
        rate = None
        if self._seen and now > self._seen[0][0]:
            rate = (done - self._seen[0][1]) / (now - self._seen[0][0])
        self._seen.append((now, done))
        left_s = 0.0 if batch.finished else (progress.total - done) / rate if rate else None
        return Progress(batch, rate, left_s, place)
