"""Everything at once: tiers and tenants over five loads, one score for each way, and what each of our parts earns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.experiments.cell import Cell
from benchmarks.experiments.experiment import Experiment
from benchmarks.experiments.results import Results, mean_ratio, ratio
from benchmarks.experiments.shapes import FCFS, WORDS, Shown, by_way, number, table, verdict
from dispatcher.simulator.confidence import estimate
from dispatcher.simulator.ours import OURS
from dispatcher.simulator.plots import Series, lines
from dispatcher.simulator.tables import Column, Table
from fairlane.model import DEFAULT_TIERS

# Tenants come in bursts, so that at half of its load somebody waits already; else all ways would be alike.
SETUP: Final = Cell(workload="conversation, bursts of a heavy tenant", scrape_ms=500, way=FCFS, rho=0.0, requests=0)
# Parts of the trace, and dice, that nothing was chosen or mended by
ELSEWHERE: Final = "conversation, bursts of a heavy tenant, elsewhere"
LOADS: Final = (0.5, 0.7, 0.85, 0.95, 1.05)
HIGH_LOADS: Final = LOADS[2:]  # those of the ablation: with less, parts have little to do
WHOLE: Final = ("ours", "ours-tokens")
SINGLE: Final = (
    "tenant-round-robin", "vtc", "hrrn", "strict-priority", "engine-priority", "llumnix", "multi-tier",
    "engine-uniboost",
)  # fmt: skip
HIGHEST, LOWEST = DEFAULT_TIERS[0], DEFAULT_TIERS[-1]
MOST: Final = 1.1  # of each ratio, but
MOST_LOWEST: Final = 2.0
PARTS: Final = ("highest tier: TTFT P99", "lowest tier: e2e P99", "largest service gap", "1 ÷ throughput")


def cells(requests: int) -> list[Cell]:
    one = replace(SETUP, requests=requests // 2)
    found = [
        replace(one, rho=rho, way=way)
        for rho in LOADS
        for way in (FCFS, *SINGLE, *(OURS if rho in HIGH_LOADS else WHOLE))
    ]
    fresh = replace(one, workload=ELSEWHERE)
    return found + [replace(fresh, rho=rho, way=way) for rho in LOADS for way in (FCFS, *SINGLE, "ours")]


def parts(results: Results, **where: object) -> list[list[float]]:
    """The four ratios to FCFS, run by run: the smaller, the better.

    A gap smaller than the largest request counts as that: whoever serves whole requests cannot do better. The workload
    is that of the set-up if `where` does not say.
    """
    to, keys = {"way": FCFS}, {"workload": SETUP.workload, **where}
    gaps = [
        list(map(max, results.values("gap", **where), results.values("largest", **where)))
        for where in (keys, keys | to)
    ]
    return [
        results.ratios(f"{HIGHEST} ttft p99", to, **keys),
        results.ratios(f"{LOWEST} e2e p99", to, **keys),
        [ratio(*pair) for pair in zip(*gaps, strict=True)],
        [1 / one for one in results.ratios("tokens/s", to, **keys)],
    ]


def scores(results: Results, **keys: object) -> list[float]:
    """The geometric mean of the four, run by run."""
    return [mean_ratio(four) for four in zip(*parts(results, **keys), strict=True)]


def _score(results: Results, way: str, rho: float, workload: str = SETUP.workload) -> float:
    return estimate(scores(results, way=way, rho=rho, workload=workload)).mean


def _over(results: Results, loads: Sequence[float], **where: object) -> list[float]:
    """The geometric mean over the loads, by seed."""
    return [mean_ratio(some) for some in zip(*(scores(results, rho=rho, **where) for rho in loads), strict=True)]


def _ranking(results: Results, ways: Sequence[str], loads: Sequence[float], workload: str = SETUP.workload) -> Table:
    columns = [
        Shown(
            Column(f"ρ = {rho}", "", 3, spread=True), lambda keys, rho=rho: estimate(scores(results, rho=rho, **keys))
        )
        for rho in loads
    ]
    whole = Shown(Column("all of them", "", 3, spread=True), lambda keys: estimate(_over(results, loads, **keys)))
    rows = [(WORDS[way], {"way": way, "workload": workload}) for way in ways]
    return table(Column("way"), rows, [*columns, whole])


def _ablation(results: Results) -> Table:
    """Each part's worth: how much larger the score is without it, and the four ratios over those loads."""
    ours = _over(results, HIGH_LOADS, way="ours")

    def worth(keys: Mapping[str, object]):
        theirs = _over(results, HIGH_LOADS, **keys)
        return estimate([one / mine for one, mine in zip(theirs, ours, strict=True)])

    def part(n: int):
        def cell(keys: Mapping[str, object]):
            by_load = [parts(results, rho=rho, **keys)[n] for rho in HIGH_LOADS]
            return estimate([mean_ratio(some) for some in zip(*by_load, strict=True)])

        return cell

    columns = [
        Shown(Column("score to that of all parts", "×", 3, spread=True), worth),
        *(Shown(Column(name, "×", 3, spread=True), part(n)) for n, name in enumerate(PARTS)),
    ]
    return table(Column("way"), [(WORDS[way], {"way": way}) for way in OURS], columns)


def _load(rho: float):
    def made(results: Results) -> Table:
        columns = [
            Shown(Column(name, "×", 2, spread=True), lambda keys, n=n: estimate(parts(results, **keys)[n]))
            for n, name in enumerate(PARTS)
        ]
        score = Shown(Column("score", "", 3, spread=True), lambda keys: estimate(scores(results, **keys)))
        return by_way(results, {"rho": rho}, [*columns, score])

    return made


def _draw(ways: Sequence[str], loads: Sequence[float], title: str):
    def plot(results: Results, path: Path) -> None:
        series = [
            Series(
                WORDS[way].replace("*", "").replace("`", ""),
                [(rho, estimate(scores(results, way=way, rho=rho))) for rho in loads],
            )
            for way in ways
        ]
        lines(path, title, "load (ρ)", "score: the smaller, the better", series)

    return plot


def _facts(results: Results) -> dict[str, str]:
    fresh = {f"elsewhere:{name}": value for name, value in _outcome(results, ELSEWHERE).items()}
    return _outcome(results, SETUP.workload) | fresh


def _outcome(results: Results, workload: str) -> dict[str, str]:
    def score(way: str, rho: float) -> float:
        return _score(results, way, rho, workload)

    best = {rho: min(SINGLE, key=lambda way, rho=rho: score(way, rho)) for rho in LOADS}
    wins = [rho for rho in LOADS if score("ours", rho) < score(best[rho], rho)]
    ratios = {
        rho: [estimate(one).mean for one in parts(results, way="ours", rho=rho, workload=workload)] for rho in LOADS
    }
    bounds = (MOST, MOST_LOWEST, MOST, MOST)
    over = [
        f"{name} at ρ = {rho} ({value:.2f})"
        for rho, four in ratios.items()
        for name, value, bound in zip(PARTS, four, bounds, strict=True)
        if value > bound
    ]
    return {
        "wins": str(len(wins)),
        "holds": verdict(len(wins) >= 4),
        "over": ", ".join(over) or "none",
        "holds-bounds": verdict(not over),
        "ours": number(estimate(_over(results, LOADS, way="ours", workload=workload)), 3),
        **{f"ours@{rho}": number(score("ours", rho), 3) for rho in LOADS},
        **{f"best@{rho}": f"{WORDS[way]} ({score(way, rho):.3f})" for rho, way in best.items()},
        "most-lowest": number(max(four[1] for four in ratios.values())),
        "most-other": number(max(max(four[0], *four[2:]) for four in ratios.values())),
    }


EXPERIMENT: Final = Experiment(
    "combined",
    cells,
    {
        "scores": lambda results: _ranking(results, (FCFS, *SINGLE, *WHOLE), LOADS),
        "elsewhere": lambda results: _ranking(results, (FCFS, *SINGLE, "ours"), LOADS, ELSEWHERE),
        "parts": lambda results: _ranking(results, tuple(OURS), HIGH_LOADS),
        "ablation": _ablation,
        **{f"load@{rho}": _load(rho) for rho in LOADS},
    },
    _facts,
    {
        "scores": _draw((*SINGLE, "ours"), LOADS, "The combined score over the load"),
        "ablation": _draw(tuple(OURS), HIGH_LOADS, "The combined score, each part taken out"),
    },
)
