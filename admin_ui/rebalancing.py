"""Runs in words: what is chosen, what becomes of it, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from admin_ui.showing import NONE, duration
from fairlane.rebalance import Filter, Plan, Run, Shift, Target
from fairlane.rebalance.forecast import SAME_S
from fairlane.rebalance.values import REASONS, Forecast, RunState

MINUS: Final = "\u2212"
HELD: Final = "held"  # in place of a wait
SAYS: Final[Mapping[RunState, str]] = {
    "counting": "The jobs are being chosen.",
    "weighing": "What it does to each tenant's wait is being computed.",
    "ready": "Nothing was moved yet. Apply it, or leave it: it is forgotten after an hour.",
    "applying": "It is under way.",
    "stopping": "It stops after the jobs that are on their way.",
    "done": "It is done.",
    "aborted": "It was aborted; what it moved by then stays where it is.",
    "undoing": "What still waits goes back.",
    "undone": "It was undone: what still waited is back at its old place.",
}


def choice(where: Filter) -> str:
    """Which jobs."""
    words = "all waiting jobs" if where.most is None else f"up to {where.most:,} waiting jobs"
    if where.tenant:
        words += f" of {where.tenant}"
    words += f" in {where.pool}"
    if where.tier:
        words += f", tier {where.tier}"
    if where.older_than_s:
        words += f", older than {where.older_than_s} s"
    return words


def target(to: Target) -> str:
    """What becomes of them."""
    if to.purge:
        return "cancelled"
    if to.tier is not None:
        return f"to the tier {to.tier}"
    return f"to the pool {to.pools[0]}" if len(to.pools) == 1 else f"spread over {', '.join(to.pools)}"


def plan(of: Plan) -> str:
    """Both, as a title."""
    words = choice(of.filter)
    return f"{words[0].upper()}{words[1:]}: {target(of.target)}"


def verb(run: Run) -> str:
    """What was done to jobs."""
    return "cancelled" if run.plan.target.purge else "moved"


def reasons(counts: Mapping[str, int]) -> list[tuple[int, str]]:
    """How many jobs were left where they are, and why; the most first."""
    return sorted(((n, REASONS.get(why, why)) for why, n in counts.items()), reverse=True)


def wait(wait_s: float | None, jobs: int) -> str:
    """An estimated wait; a dash where nothing waits, 'held' where nothing starts: paused, or no backend takes it."""
    if not jobs:
        return NONE
    return HELD if wait_s is None else duration(1000 * wait_s)


def holds(of: Forecast) -> bool:
    """Whether a line of it is held, before or after."""
    return any(HELD in (wait(one.wait_s, one.jobs), wait(one.wait_after_s, one.jobs_after)) for one in of.shifts)


def change(shift: Shift) -> str:
    """How much longer or less long it waits then."""
    known = (shift.wait_s is not None or not shift.jobs) and (shift.wait_after_s is not None or not shift.jobs_after)
    if not known:
        return NONE
    if abs(shift.change_s) <= SAME_S:
        return "as before"
    return f"{'+' if shift.change_s > 0 else MINUS}{duration(1000 * abs(shift.change_s))}"
