"""Measures the learner of capacity in virtual time: `python -m benchmarks.capacity --help`.

Production policy against the engine model; no server, no Redis, the same figures on every machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Final

from rich.console import Console

from benchmarks.figures import Figure, markdown, table
from tests.virtual import faults
from tests.virtual.floods import full_within_ms, long_jobs, p999, paired, speed_of, tiny_jobs

SLOTS: Final = {8: 3, 64: 3, 256: 6}  # and how many may wait
LOWEST: Final = 3


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capacity", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    console = Console(width=None if Console().is_terminal else 160)
    figures: list[Figure] = []
    for part in PARTS:
        for figure in part(seeds):
            console.print(" | ".join(figure.cells()), highlight=False)
            figures.append(figure)
    title = f"The learner in virtual time, {seeds} seeds"
    console.print(table(figures, title))
    print(f"\n{title}\n\n{markdown(figures)}")


def at_least(least: float, name: str, value: float, *, note: str = "") -> Figure:
    return Figure(name, value, "", target=f"≥ {least:g}", holds=value >= least, digits=3, note=note)


def at_most(most: float, name: str, value: float, unit: str = "", *, note: str = "") -> Figure:
    return Figure(name, value, unit, target=f"≤ {most:g} {unit}".rstrip(), holds=value <= most, note=note)


def only(name: str, value: float, *, note: str = "") -> Figure:
    """Without a target."""
    return Figure(name, value, "", digits=3, note=note)


def _floods(seeds: int) -> Iterator[Figure]:
    for slots, may_wait in SLOTS.items():
        one = paired(speed_of(slots), long_jobs, seeds=seeds)
        twenty = paired(speed_of(slots), long_jobs, dispatchers=20, seeds=seeds)
        yield at_least(0.99, f"{slots} slots, long jobs: throughput ÷ direct", one.share)
        yield at_most(may_wait, f"{slots} slots, long jobs: waiting, p99.9", one.waiting_p999)
        yield at_least(0.99, f"{slots} slots, long jobs: scrapes with K within 10 % of the slots", one.right)
        apart = abs(twenty.waiting_p999 - one.waiting_p999)
        yield at_most(1, f"{slots} slots, 20 dispatchers: waiting p99.9, apart from one's", apart)
        yield at_least(0.99, f"{slots} slots, 20 dispatchers: throughput ÷ direct", twenty.share)
        yield at_most(0, f"{slots} slots: most leases beyond the limit at a send", max(one.over, twenty.over))
    yield at_most(2_000, "256 slots: full, from a cold start, short prompts", full_within_ms(256, seeds=seeds), "ms")


def _kinds_of_work(seeds: int) -> Iterator[Figure]:
    for slots in SLOTS:
        tiny = paired(speed_of(slots), tiny_jobs, seeds=seeds)
        note = f"waiting p99.9: {tiny.waiting_p999}"
        yield at_least(0.97, f"{slots} slots, jobs of 1 to 4 tokens: throughput ÷ direct", tiny.share, note=note)
    cache = paired(speed_of(256, kv_tokens=16_000), long_jobs, seeds=seeds)
    note = f"waiting p99.9: {cache.waiting_p999}"
    yield at_least(0.985, "256 slots, cache for some 50 jobs: throughput ÷ direct", cache.share, note=note)
    for slots in SLOTS:
        lowest = paired(speed_of(slots), long_jobs, tier=LOWEST, seeds=seeds)
        yield at_least(0.97, f"{slots} slots, lowest tier alone: throughput ÷ direct", lowest.share)
    for slots in SLOTS:
        lowest = paired(speed_of(slots), tiny_jobs, tier=LOWEST, seeds=seeds)
        yield only(f"{slots} slots, lowest tier alone, jobs of 1 to 4 tokens", lowest.share)


def _faults(seeds: int) -> Iterator[Figure]:
    for slots in SLOTS:
        speed = speed_of(slots, kv_tokens=330 * slots)
        for what, halved in (("slots", faults.half_of_the_slots), ("cache", faults.half_of_the_cache)):
            drops = [faults.drop(speed, halved, dispatchers=n, seeds=seeds) for n in (1, 20)]
            took_ms = max(each.settled_ms for each in drops)
            name = f"{slots} slots, half of the {what} lost: net sends from the second scrape on"
            yield at_most(0, name, max(each.net_sends for each in drops), note=f"settled within {took_ms:,.0f} ms")
    for slots in SLOTS:
        after = [faults.restart(slots, 3_000, dispatchers=n, seeds=seeds) for n in (1, 20)]
        note = f"full again within {max(each.full_ms for each in after):,.0f} ms"
        beyond = max(each.failed_beyond for each in after)
        yield at_most(16, f"{slots} slots, restart: failed beyond those in flight", beyond, note=note)
    for slots in SLOTS:
        sent = faults.sends_while_it_hangs(slots, dispatchers=20, seeds=seeds)
        yield at_most(0, f"{slots} slots, backend hangs: sends from the second scrape on", sent)
    for slots in SLOTS:
        beyond = faults.frozen_page(slots, seeds=seeds)
        yield at_most(0, f"{slots} slots, page frozen: most leases beyond the last limit", beyond)


def _sight(seeds: int) -> Iterator[Figure]:
    for slots in SLOTS:
        blind = faults.observer_dies(slots, seeds=seeds)
        note = f"waiting p99.9: {p999(blind.waiting)}"
        yield at_least(0.97, f"{slots} slots, no observer in 2 of 5 s: throughput ÷ direct", blind.share, note=note)
    for slots in SLOTS:
        shared = faults.neighbours(slots, slots // 2, seeds=seeds)
        note = f"waiting p99.9: {p999(shared.waiting)}"
        yield at_least(0.97, f"{slots} slots, half of them used by others: throughput of all", shared.share, note=note)
    for slots in SLOTS:
        for what, jobs in (("long jobs", long_jobs), ("jobs of 1 to 4 tokens", tiny_jobs)):
            live = paired(speed_of(slots), jobs, live_gauges=True, seeds=seeds)
            yield only(f"{slots} slots, {what}, gauges that count arrivals during a step", live.share)


PARTS: Final[tuple[Callable[[int], Iterator[Figure]], ...]] = (_floods, _kinds_of_work, _faults, _sight)


if __name__ == "__main__":
    main()
