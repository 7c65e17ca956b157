"""A backend that keeps failing is left alone for a while, then tried with one job at a time.

A circuit breaker (M. Nygard, "Release It!", 2007) with Envoy's rule for outliers: so many errors of its own in a row
(5xx, timeouts, resets; never the caller's fault, never 429) eject it, for a pause that doubles with each time. After
the pause it is half open: a good answer readmits it, an error ejects it again for longer.

- Jobs that were in flight when it was ejected may fail later. They were sent before, so they say nothing new: as many
  faults as there were leases then are forgiven. Eight that fail together are one ejection, whenever they fail.
- Of one look only counts are known, not their order. Good answers among the faults end a run, unless there are so few
  that some run of faults must have been long enough: `bad` faults and `good` answers hold one of ⌈bad/(good + 1)⌉.
- Faults of one tenant's jobs alone may be those jobs' own. While the backend answers others well they are excused, and
  count for nothing. Else its pauses are short and do not grow, so that whoever else comes is served within a probe or
  two. So one tenant cannot shut a pool to the others by what it sends.
- The only backend of a pool is ejected like any other: its jobs wait instead of using up their attempts on it, and each
  pause ends in a probe, at the latest after five minutes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

ERRORS_MOST: Final = 5
FIRST_PAUSE_MS: Final = 10_000
LONGEST_PAUSE_MS: Final = 300_000
ALONE_PAUSE_MS: Final = 1_000  # if all faults are of one tenant's jobs
FORGET_MS: Final = 300_000  # ejected again within this time of its readmission, the pauses go on growing


@dataclass(frozen=True, slots=True)
class Counters:
    """What was counted of one backend, ever; and `live`, the leases that it carries.

    `faults` are its own errors, `answered` good answers and those that were the caller's fault, `blamers` how often a
    fault was of another tenant's job than the fault before, `excused` the faults of one tenant's jobs while another had
    just been answered well.
    """

    faults: int
    answered: int
    blamers: int
    live: int = 0
    excused: int = 0


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of one backend's errors. A new one, or one that was restarted, is well: `Health()`.

    Only numbers, to be kept as JSON. Times are Redis's, in ms; 0 is never.
    """

    errors: int = 0  # faults in a row, for sure
    level: int = 0  # ejections in a row
    until_ms: int = 0  # when the pause ends; 0: it is in service
    stragglers: int = 0  # leases of before the ejection that may still end
    back_ms: int = 0  # when it was readmitted
    seen_ms: int = 0  # the last look, and the counters then; -1: none yet
    faults: int = -1
    answered: int = -1
    blamers: int = -1
    excused: int = -1
    turns: int = 0  # of the faults in a row: how often one was of another tenant's job than the one before
    pardons: int = 0  # how many of the faults in a row were excused

    @property
    def ejected(self) -> bool:
        """Nothing may be sent there."""
        return self.until_ms > 0 and self.seen_ms < self.until_ms

    @property
    def probing(self) -> bool:
        """Half open: one job at a time."""
        return self.until_ms > 0 and not self.ejected

    @property
    def most(self) -> int | None:
        """How many leases it may carry; None: this does not bound it."""
        if self.ejected:
            return 0
        return 1 + self.stragglers if self.probing else None


def judge(known: Health, now_ms: int, counters: Counters, errors_most: int = ERRORS_MOST) -> Health:
    """The backend's health after one look at its counters. Those that fell (it was added anew) are only noted."""
    known = _on_this_clock(known, now_ms)
    was_ejected, live = known.ejected, counters.live
    bad, good = counters.faults - known.faults, counters.answered - known.answered
    noted = replace(
        known,
        seen_ms=now_ms,
        faults=counters.faults,
        answered=counters.answered,
        blamers=counters.blamers,
        excused=counters.excused,
        turns=known.turns + max(0, counters.blamers - known.blamers) if known.blamers >= 0 else 0,
    )
    pardons = max(0, counters.excused - known.excused) if known.excused >= 0 else 0
    if known.faults < 0 or bad < 0 or good < 0:
        return noted
    if known.until_ms == 0:
        return _in_service(noted, bad, good, pardons, live, errors_most)
    if was_ejected:  # no probe was sent yet
        return replace(noted, stragglers=_left(known.stragglers - bad - good, live))
    return _half_open(noted, bad, good, pardons, live)


def _on_this_clock(known: Health, now_ms: int) -> Health:
    """After a jump back the rest of a pause is as long as it was. A jump ahead only brings a probe early."""
    back = known.seen_ms - now_ms
    if back <= 0:
        return known
    until_ms = max(1, known.until_ms - back) if known.until_ms else 0
    return replace(known, until_ms=until_ms, back_ms=max(0, known.back_ms - back), seen_ms=now_ms)


def _in_service(known: Health, bad: int, good: int, pardons: int, live: int, errors_most: int) -> Health:
    before = Health() if good else known
    errors, pardons = before.errors + bad, before.pardons + pardons
    against_it = errors - (0 if _of_several(known) else pardons)
    if bad and -(-against_it // (good + 1)) >= errors_most:
        recently = known.level > 0 and known.seen_ms - known.back_ms < FORGET_MS
        return _ejected(known, known.level if recently else 0, live)
    if good:
        return replace(known, errors=0, pardons=0, turns=0)
    return replace(known, errors=errors, pardons=pardons)


def _half_open(known: Health, bad: int, good: int, pardons: int, live: int) -> Health:
    if good:
        return replace(known, errors=0, pardons=0, turns=0, until_ms=0, stragglers=0, back_ms=known.seen_ms)
    if bad - (0 if _of_several(known) else pardons) > known.stragglers:
        return _ejected(known, known.level, live)
    return replace(known, stragglers=_left(known.stragglers - bad, live))


def _ejected(known: Health, level: int, live: int) -> Health:
    """Once more than the `level` times before."""
    level += _of_several(known)
    pause = pause_ms(level) if _of_several(known) else ALONE_PAUSE_MS
    return replace(known, errors=0, pardons=0, level=level, until_ms=known.seen_ms + pause, stragglers=live)


def _of_several(known: Health) -> bool:
    """Whether the faults in a row are of more than one tenant's jobs: two turns are two tenants for sure, while one may
    be from an older fault."""
    return known.turns >= 2


def _left(stragglers: int, live: int) -> int:
    return max(0, min(stragglers, live))


def pause_ms(level: int) -> int:
    """How long the `level`-th ejection in a row (from 1) lasts: min(5 min, 10 s · 2^(level - 1))."""
    return min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** min(level - 1, 16))
