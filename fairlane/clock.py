"""Where the time comes from: Redis's own clock, or one that a test or the simulator turns by hand."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Says what `now` a script gets as its first argument."""

    def now_ms(self) -> int | None:
        """Milliseconds since the Unix epoch, or None to let the script ask Redis `TIME`."""
        ...


class RedisClock:
    """The clock of production: every script asks Redis, so that no worker's wrong clock can matter."""

    def now_ms(self) -> int | None:
        return None


class ManualClock:
    """A clock that only moves when it is told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Moves the clock by `ms` milliseconds; backwards if negative, as a corrected system clock may."""
        self._now_ms += ms
