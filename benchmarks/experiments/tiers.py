"""Many tiers: what multi-tier scheduling claims, as published and by Fairlane, and the curve over the tiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.experiments.cell import Cell
from benchmarks.experiments.experiment import Experiment
from benchmarks.experiments.results import Results
from benchmarks.experiments.shapes import FCFS, WORDS, Shown, number, shown, table, verdict
from dispatcher.simulator.confidence import Estimate, estimate
from dispatcher.simulator.plots import Series, bars, lines
from dispatcher.simulator.tables import Column, Table
from fairlane.model import DEFAULT_TIERS

MAIN: Final = ("a10-7b", 1)  # profile and backends
SETUPS: Final = (("a10-7b", 1), ("a10-7b", 4), ("a100-7b", 1))
LONGER: Final = "conversation, longer parts"  # of all seeds together nearly the whole trace
SHORTER: Final = "conversation"
CURVE: Final = tuple(range(1, 11))  # tiers
LOADS: Final = (0.85, 0.95)
HIGH: Final = LOADS[1:]  # of the curve and the other set-ups
MANY: Final = ("multi-tier", "ours")  # those that can have any number of tiers
RESERVES: Final = ("ours", "ours-half-rooms", "ours-no-rooms")  # how much room is kept
OTHERS: Final = (FCFS, "engine-priority", "strict-priority", "llumnix")
WANTED: Final = 3.13  # × better than FCFS, the paper's best
HIGHEST, LOWEST = DEFAULT_TIERS[0], DEFAULT_TIERS[-1]


def cells(requests: int) -> list[Cell]:
    """In the main set-up, at the highest load, over K; in the others with two tiers and four. Then longer parts."""
    found: list[Cell] = []
    for profile, backends in SETUPS:
        for rho in LOADS if (profile, backends) == MAIN else HIGH:
            one = Cell(
                workload=SHORTER,
                way=FCFS,
                rho=rho,
                requests=requests // 2,
                scrape_ms=500,
                profile=profile,
                backends=backends,
            )
            found += [replace(one, way=way) for way in OTHERS]
            many = CURVE if (profile, backends) == MAIN and rho in HIGH else (2, 4)
            found += [replace(one, way=way, tiers=tiers) for way in MANY for tiers in many]
            if (profile, backends) == MAIN:
                found += [replace(one, way=way) for way in RESERVES[1:]]
    in_main = [one for one in found if (one.profile, one.backends) == MAIN and one.tiers in (2, 4)]
    found += [replace(one, workload=LONGER, requests=requests * 19 // 15) for one in in_main]
    return found + [replace(one, scrape_ms=200) for one in in_main if one.way == "ours" and one.tiers == 4]


def _at(rho: float, setup: tuple[str, int] = MAIN, workload: str = SHORTER) -> dict[str, object]:
    return {"profile": setup[0], "backends": setup[1], "rho": rho, "workload": workload, "scrape_ms": 500}


def _times_better(results: Results, of: str, keys: Mapping[str, object], what: str = "e2e p99") -> Estimate:
    ratios = results.ratios(f"{of} {what}", {"way": FCFS, "tiers": 4}, **keys)
    return estimate([1 / one for one in ratios])


def _throughput(results: Results, keys: Mapping[str, object]) -> Estimate:
    return estimate(results.ratios("tokens/s", {"way": FCFS, "tiers": 4}, **keys))


def _to_strict(results: Results, keys: Mapping[str, object]) -> Estimate:
    return estimate(results.ratios(f"{LOWEST} e2e p99", {"way": "strict-priority", "tiers": 4}, **keys))


def _columns(results: Results) -> list[Shown]:
    return [
        shown(results, f"{HIGHEST} e2e p99", "highest tier: e2e P99"),
        Shown(
            Column("times better than FCFS", "×", 2, spread=True),
            lambda keys: _times_better(results, HIGHEST, keys),
        ),
        shown(results, f"{HIGHEST} ttft p99", "highest tier: TTFT P99"),
        Shown(
            Column("times better (TTFT)", "×", 2, spread=True),
            lambda keys: _times_better(results, HIGHEST, keys, "ttft p99"),
        ),
        shown(results, f"{LOWEST} e2e p99", "lowest tier: e2e P99"),
        shown(results, "all e2e p99", "all: e2e P99"),
        Shown(Column("tokens/s to FCFS's", "×", 3, spread=True), lambda keys: _throughput(results, keys)),
        shown(results, "preemptions", digits=0),
    ]


def _rows(
    results: Results, where: Mapping[str, object], many: Sequence[int] = (2, 4)
) -> list[tuple[str, dict[str, object]]]:
    """The others, and those with any number of tiers with two and with four."""
    found = [(WORDS[way], {**where, "way": way, "tiers": 4}) for way in OTHERS]
    return found + [
        (f"{WORDS[way]}, K = {tiers}", {**where, "way": way, "tiers": tiers}) for way in MANY for tiers in many
    ]


def _main(rho: float, setup: tuple[str, int] = MAIN, workload: str = SHORTER):
    def made(results: Results) -> Table:
        return table(Column("way"), _rows(results, _at(rho, setup, workload)), _columns(results))

    return made


def _reserves(results: Results) -> Table:
    """What breathing room gives to the highest tier, and costs the lowest and all."""
    columns = [
        Shown(
            Column("highest: times better than FCFS", "×", 2, spread=True),
            lambda keys: _times_better(results, HIGHEST, keys),
        ),
        shown(results, f"{HIGHEST} ttft p99", "highest: TTFT P99"),
        Shown(Column("lowest: to strict priority's", "×", 2, spread=True), lambda keys: _to_strict(results, keys)),
        Shown(Column("tokens/s to FCFS's", "×", 3, spread=True), lambda keys: _throughput(results, keys)),
    ]
    rows = [
        (f"ρ = {rho}, {requests}", WORDS[way], {**_at(rho, workload=workload), "way": way, "tiers": 4})
        for rho in LOADS
        for workload in (SHORTER, LONGER)
        for requests in results.distinct("requests", workload=workload)
        for way in RESERVES
    ]
    cells = [[load, head, *(one.cell(keys) for one in columns)] for load, head, keys in rows]
    return Table([Column("load, requests"), Column("way"), *(one.column for one in columns)], cells)


def _scrapes(results: Results) -> Table:
    """What it costs to know backends less well."""
    every = [
        shown(results, f"{of} e2e p99", f"{name}: e2e P99") for of, name in ((HIGHEST, "highest"), (LOWEST, "lowest"))
    ]
    columns = [*every, shown(results, f"{HIGHEST} ttft p99", "highest: TTFT P99"), shown(results, "tokens/s", digits=0)]
    keys = {"way": "ours", "tiers": 4}
    rows = [(f"ρ = {rho}, every {ms} ms", {**_at(rho), **keys, "scrape_ms": ms}) for rho in LOADS for ms in (200, 500)]
    return table(Column("metrics read"), rows, columns)


def _classes(results: Results) -> Table:
    """P50 and P99 of every class, K = 4."""
    columns = [
        shown(results, f"{tier} {what} {percent}", f"{tier}: {what} {percent}", 1)
        for what in ("ttft", "e2e")
        for tier in DEFAULT_TIERS
        for percent in ("p50", "p99")
    ]
    rows = [(f"{rho:.2f}", row) for rho in LOADS for row in _rows(results, _at(rho), (4,))]
    cells = [[load, head, *(one.cell(keys) for one in columns)] for load, (head, keys) in rows]
    return Table([Column("ρ"), Column("way"), *(one.column for one in columns)], cells)


def _curve(rho: float):
    def made(results: Results) -> Table:
        where = _at(rho)
        columns = [
            Shown(
                replace(one.column, name=f"{WORDS[way].replace('*', '')}: {one.column.name}"),
                lambda keys, one=one, way=way: one.cell({**keys, "way": way}),
            )
            for way in MANY
            for one in (
                shown(results, f"{HIGHEST} e2e p99", "highest"),
                shown(results, f"{LOWEST} e2e p99", "lowest"),
                shown(results, "all e2e p99", "all"),
            )
        ]
        rows = [(float(tiers), {**where, "tiers": tiers}) for tiers in sorted(results.distinct("tiers", **where))]
        return table(Column("K", "", 0), rows, columns)

    return made


def _draw_curve(rho: float):
    def plot(results: Results, path: Path) -> None:
        where = _at(rho)
        series = [
            Series(
                f"{WORDS[way].replace('*', '')}: {name}",
                [
                    (tiers, results.estimate(f"{of} e2e p99", **where, way=way, tiers=tiers))
                    for tiers in sorted(results.distinct("tiers", **where))
                ],
            )
            for way in MANY
            for of, name in ((HIGHEST, "highest class"), (LOWEST, "lowest class"), ("all", "all"))
        ]
        lines(path, f"End-to-end P99 over the number of tiers, ρ = {rho}", "tiers (K)", "s", series, log_y=True)

    return plot


def _draw_ways(results: Results, path: Path) -> None:
    where = _at(LOADS[-1])
    rows = _rows(results, where)
    series = {
        name: [results.estimate(f"{of} e2e p99", **keys) for _, keys in rows]
        for of, name in ((HIGHEST, "highest tier"), (LOWEST, "lowest tier"), ("all", "all"))
    }
    names = [head.replace("*", "").replace("`", "").replace(", ", ",\n").replace(": ", ":\n") for head, _ in rows]
    bars(path, f"End-to-end P99, ρ = {LOADS[-1]}", "s", names, series, log_y=True)


def _facts(results: Results) -> dict[str, str]:
    found: dict[str, str] = {"main-profile": MAIN[0], "main-backends": str(MAIN[1]), "wanted": f"{WANTED:.2f}"}
    for workload, name in ((SHORTER, "requests"), (LONGER, "longer-requests")):
        found[name] = str(results.distinct("requests", workload=workload)[0])
        for rho in LOADS:
            found |= _verdicts(results, rho, workload, "longer-" if workload == LONGER else "")
    for rho in LOADS:
        highest = {
            way: {
                tiers: results.estimate(f"{HIGHEST} e2e p99", **_at(rho), way=way, tiers=tiers).mean
                for tiers in results.distinct("tiers", **_at(rho), way=way)
            }
            for way in MANY
        }
        found |= {f"{way}@{rho}:best-k": str(min(curve, key=curve.__getitem__)) for way, curve in highest.items()}
    return found


def _verdicts(results: Results, rho: float, workload: str, prefix: str) -> dict[str, str]:
    """What each way with four tiers makes of one load."""
    found: dict[str, str] = {}
    for way in (*MANY, *RESERVES[1:], "llumnix", "strict-priority"):
        keys = {**_at(rho, workload=workload), "way": way, "tiers": 4}
        better, through = _times_better(results, HIGHEST, keys), _throughput(results, keys)
        lowest = _to_strict(results, keys)
        name = f"{prefix}{way}@{rho}"
        found |= {
            f"{name}:better": number(better),
            f"{name}:better-ttft": number(_times_better(results, HIGHEST, keys, "ttft p99")),
            f"{name}:tokens": number(through, 3),
            f"{name}:lowest-to-strict": number(lowest),
            f"{name}:all": number(_times_better(results, "all", keys)),
            f"{name}:holds-better": verdict(better.mean >= WANTED),
            f"{name}:holds-tokens": verdict(abs(through.mean - 1) <= 0.03),
            f"{name}:holds-lowest": verdict(lowest.mean < 1),
        }
    return found


EXPERIMENT: Final = Experiment(
    "tiers",
    cells,
    {
        **{f"main@{rho}": _main(rho) for rho in LOADS},
        **{f"longer@{rho}": _main(rho, workload=LONGER) for rho in LOADS},
        "reserves": _reserves,
        "scrapes": _scrapes,
        **{f"curve@{rho}": _curve(rho) for rho in HIGH},
        **{f"{setup[0]}×{setup[1]}@{rho}": _main(rho, setup) for setup in SETUPS for rho in HIGH},
        "classes": _classes,
    },
    _facts,
    {**{f"curve-{rho}": _draw_curve(rho) for rho in HIGH}, "ways": _draw_ways},
)
