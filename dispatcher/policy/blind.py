"""What may be sent to a backend whose metrics cannot be read: by what went wrong, and by what is known of it."""

from __future__ import annotations

from typing import Final

from dispatcher.backends.scrape import Reason

UNKNOWN_SLOTS: Final = 8  # at once to a backend that never showed anything, unless it is said how many it takes
SHOWS_NOTHING: Final[frozenset[Reason]] = frozenset({"unknown", "missing"})
NOT_FOUND: Final = 404


def slots_without_metrics(
    reason: Reason, answered: int | None, *, slots: int | None, learned: int | None
) -> int | None:
    """How many leases it may carry; None: its last limits hold until they are stale.

    `answered` is the status, if it was not 200; `slots` what an operator says; `learned` the capacity of one that was
    read before. A backend that answers with nothing to learn from, now and probably always, is bounded only by that.
    """
    if reason == "unreachable" or (reason == "timeout" and slots is None):
        return None
    shows_nothing = reason in SHOWS_NOTHING or answered == NOT_FOUND
    if not shows_nothing and learned is not None and slots is None:
        return None  # it did better before
    return slots if slots is not None else max(UNKNOWN_SLOTS, learned or 0)
