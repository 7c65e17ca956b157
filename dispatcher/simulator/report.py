"""What ways came to, as tables: over all requests, by tier, by tenant, and each SLO; and these as files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from dispatcher.simulator.measures import Group, Measures, goodput, measure, ttft_ms
from dispatcher.simulator.plots import bars, cdf
from dispatcher.simulator.request import Request
from dispatcher.simulator.slo import Target, bounds
from dispatcher.simulator.tables import Cell, Column, Table
from dispatcher.simulator.world import Run

_S: Final = partial(Column, digits=3)
_WHOLE: Final = partial(Column, digits=0)
TIMES: Final = tuple(
    _S(f"{metric}_{percentile}_s") for metric in ("ttft", "e2e") for percentile in ("p50", "p95", "p99")
)
GROUP: Final = (_WHOLE("requests"), _WHOLE("done"), *TIMES, _S("goodput"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One way's run, and what was measured of it."""

    way: str
    run: Run
    measures: Measures
    targets: Sequence[Target] = ()

    @property
    def good_per_s(self) -> float:
        """Requests a second that met their SLO, or have none and were answered; nan if nobody has one."""
        return goodput(self.run, bounds(self.targets)).per_s if self.targets else math.nan

    def good(self, key: Callable[[Request], str]) -> dict[str, float]:
        """By that key the share of requests that met their tier's SLO; a key without any that has one is left out."""
        slos = bounds(self.targets)
        met: dict[str, list[bool]] = {}
        for one in self.run.requests:
            if slo := slos.get(one.tier):
                met.setdefault(key(one), []).append(slo.met(one))
        return {name: fmean(theirs) for name, theirs in met.items()}


def outcome(way: str, run: Run, tiers: Sequence[str], targets: Sequence[Target] = ()) -> Outcome:
    return Outcome(way, run, measure(run, tiers=tiers), targets)


# --- tables -----------------------------------------------------------------------------------------------------------


def total_table(outcomes: Sequence[Outcome]) -> Table:
    columns = (
        Column("way"),
        *GROUP,
        *map(_S, ("goodput_per_s", "requests_per_s")),
        *(Column(name, digits=1) for name in ("prompt_tokens_per_s", "answer_tokens_per_s")),
        _S("utilisation"),
        _WHOLE("largest_gap_tokens"),
        _S("jain"),
        _WHOLE("preemptions"),
        _WHOLE("wasted_tokens"),
    )
    return Table(columns, [_total(one) for one in outcomes])


def tier_table(outcomes: Sequence[Outcome]) -> Table:
    rows = [row for one in outcomes for row in _rows(one, one.measures.tiers, attrgetter("tier"))]
    return Table((Column("way"), Column("tier"), *GROUP), rows)


def tenant_table(outcomes: Sequence[Outcome]) -> Table:
    rows = [row for one in outcomes for row in _rows(one, one.measures.tenants, attrgetter("tenant"))]
    return Table((Column("way"), Column("tenant"), *GROUP), rows)


def slo_table(outcomes: Sequence[Outcome]) -> Table:
    columns = (Column("way"), Column("slo"), _S("bound_s"), _S("seen_s"), Column("met"))
    rows = [(one.way, *slo_cells(target, one.run)) for one in outcomes for target in one.targets]
    return Table(columns, rows)


def slo_cells(target: Target, run: Run) -> tuple[Cell, ...]:
    seen_ms = target.seen_ms(run.requests)
    return target.what, target.bound_ms / 1000, seen_ms / 1000, "yes" if target.allows(seen_ms) else "no"


def cells(group: Group) -> tuple[Cell, ...]:
    """As the columns of GROUP have them, without the last."""
    times = [getattr(each, name) / 1000 for each in (group.ttft, group.e2e) for name in ("p50", "p95", "p99")]
    return group.n, group.done, *times


def _rows(one: Outcome, groups: Mapping[str, Group], key: Callable[[Request], str]) -> Iterable[tuple[Cell, ...]]:
    good = one.good(key)
    return ((one.way, name, *cells(group), good.get(name, math.nan)) for name, group in groups.items())


def _total(one: Outcome) -> tuple[Cell, ...]:
    found = one.measures
    return (
        one.way,
        *cells(found.all),
        one.good(lambda _: "").get("", math.nan),
        one.good_per_s,
        found.requests_per_s,
        found.prompt_tokens_per_s,
        found.answer_tokens_per_s,
        found.utilisation,
        found.fairness.largest_gap,
        found.fairness.jain,
        found.preemptions,
        found.wasted_tokens,
    )


# --- files ------------------------------------------------------------------------------------------------------------


def facts(tables: Mapping[str, Table], **about: Any) -> dict[str, Any]:
    """All as one JSON object: `about`, and under each table's name its rows."""
    return {**about, **{name: json.loads(table.json()) for name, table in tables.items()}}


def write_tables(folder: Path, title: str, tables: Mapping[str, Table], **about: Any) -> None:
    """`NAME.csv` for each table, all of them in one .json and one .md, which are called `title`."""
    for name, table in tables.items():
        (folder / f"{name}.csv").write_text(table.csv(), encoding="utf-8")
    whole = json.dumps(facts(tables, **about), indent=2) + "\n"
    (folder / f"{title}.json").write_text(whole, encoding="utf-8")
    pages = [f"# {title}\n", *(f"## {name}\n\n{table.markdown()}" for name, table in tables.items() if table.rows)]
    (folder / f"{title}.md").write_text("\n".join(pages), encoding="utf-8")


def draw(folder: Path, outcomes: Sequence[Outcome]) -> None:
    """Each tier's P99 by way, and the distribution of times to the first token. Raises ModuleNotFoundError."""
    tiers = list(dict.fromkeys(tier for one in outcomes for tier in one.measures.tiers))
    for metric, name in (("ttft", "time to the first token"), ("e2e", "time to the end")):
        p99 = attrgetter(f"{metric}.p99")
        heights = {one.way: [p99(one.measures.tiers[tier]) / 1000 for tier in tiers] for one in outcomes}
        bars(folder / f"{metric}.svg", f"P99 of the {name}", "s", tiers, heights, log_y=True)
    times = {one.way: [ttft_ms(request) / 1000 for request in one.run.requests] for one in outcomes}
    cdf(folder / "ttft-cdf.svg", "Time to the first token", "s", times, log_x=True)
