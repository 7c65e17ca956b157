"""A plan to read: the answer in sentences, its tables, its plot."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from dispatcher.simulator.planning import AS_IT_IS, Plan, Question, Trial
from dispatcher.simulator.plots import Series, lines
from dispatcher.simulator.report import GROUP, cells
from dispatcher.simulator.slo import Target, shown
from dispatcher.simulator.tables import Column, Table

_S: Final = partial(Column, digits=3)
_TRIAL: Final = (Column("growth", digits=2), Column("backends", digits=0))


def sentences(plan: Plan, question: Question) -> list[str]:
    """The answer first; then what one fewer and one more would do, and what growth asks for."""
    answer = plan.backends
    what = "backend" if answer == 1 else "backends"
    meets = "meets every SLO" if answer == 1 else "meet every SLO"
    words = [f"{answer} {what} ({question.profile.name}) {meets}{_with(plan.trial(answer))}"]
    if fewer := plan.trial(answer - 1):
        words.append(f"One fewer does not{_with(fewer, fewer.missed)}")
    if more := plan.trial(answer + 1):
        words.append(f"One more makes it{_with(more).removeprefix(':')}")
    for need in plan.needs:
        here = plan.trial(answer, need.growth)
        grown = f"With {_growth(need.growth)} load"
        if need.backends == answer:
            words.append(f"{grown} {answer} still {'does' if answer == 1 else 'do'}{_with(here)}")
        else:
            wanted = f"more than {question.most}" if need.backends is None else f"{need.backends}"
            then = f"; with {answer}{_with(here, here.missed).removeprefix(':')}" if here else "."
            words.append(f"{grown} it takes {wanted}{then}")
    return words


def chosen(plan: Plan) -> list[Trial]:
    """Of all that was tried: at this load the answer and its neighbours; at growth, it and what is needed."""
    grown = [plan.trial(n, one.growth) for one in plan.needs for n in dict.fromkeys((plan.backends, one.backends)) if n]
    return [*plan.around, *(one for one in grown if one)]


def trial_table(plan: Plan) -> Table:
    """What each tier sees, of what is chosen."""
    rows = [
        (one.growth, one.backends, tier, *cells(group), one.measures.utilisation)
        for one in chosen(plan)
        for tier, group in one.measures.tiers.items()
    ]
    return Table((*_TRIAL, Column("tier"), *GROUP[:-1], _S("utilisation")), rows)


def slo_table(plan: Plan) -> Table:
    """All that was tried."""
    columns = (*_TRIAL, Column("slo"), _S("bound_s"), _S("seen_s"), Column("met"))
    rows = [
        (
            one.growth, one.backends, target.what, target.bound_ms / 1000, ms / 1000,
            "yes" if target.allows(ms) else "no",
        )
        for one in _in_order(plan.trials)
        for target, ms in one.seen_ms.items()
    ]  # fmt: skip
    return Table(columns, rows)


def need_table(plan: Plan) -> Table:
    """How many backends at how many times the load; none if more than were allowed."""
    needs = [(AS_IT_IS, plan.backends), *((one.growth, one.backends) for one in plan.needs)]
    return Table(_TRIAL, [(growth, float("nan") if n is None else n) for growth, n in needs])


def draw(path: Path, plan: Plan, question: Question) -> None:
    """Each SLO's share of its bound over the number of backends: up to 1 it is met. Raises ModuleNotFoundError."""
    tried = [one for one in _in_order(plan.trials) if one.growth == AS_IT_IS]
    series = [
        Series(str(target), [(one.backends, one.seen_ms[target] / target.bound_ms) for one in tried])
        for target in question.targets
    ]
    limit = Series("met up to here", [(tried[0].backends, 1.0), (tried[-1].backends, 1.0)])
    lines(path, f"{question.load.source}: what was seen ÷ SLO", "backends", "", [*series, limit], log_y=True)


def _in_order(trials: Sequence[Trial]) -> list[Trial]:
    return sorted(trials, key=lambda one: (one.growth, one.backends))


def _with(trial: Trial | None, targets: Sequence[Target] | None = None) -> str:
    """`: default:ttft_p99 is 1.2 s`, … of these targets, or all."""
    if trial is None:
        return "."
    told = list(trial.seen_ms) if targets is None else targets
    return ": " + ", ".join(f"{one.what} is {shown(trial.seen_ms[one])}" for one in told) + "."


def _growth(factor: float) -> str:
    return f"{factor:g} times the" if factor >= 2 else f"{factor - 1:.0%} more"
