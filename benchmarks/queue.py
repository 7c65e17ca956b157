"""Measures the queue and prints each figure beside its yardstick: `python -m benchmarks.queue --help`.

The numbers depend on the machine; the ratios and yardsticks are what to compare. Linux only (/proc).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks import throughput
from benchmarks.figures import Figure, markdown, table
from benchmarks.lifecycle import DEPTH, Cost, compare
from benchmarks.scaling import LINES, Load, footprint, raw_footprint, under_loads
from benchmarks.servers import PERSISTENCES, Measured, Persistence, StoreName, server, version


@dataclass(frozen=True)
class Size:
    """How much to measure."""

    rounds: int
    jobs: int  # a round of the lifecycle
    tenants: int
    waiting: int
    memory_jobs: int
    throughput_rounds: int
    throughput_jobs: int


FULL: Final = Size(7, 5_000, 100_000, 1_000_000, 100_000, 3, 12_800)
QUICK: Final = Size(3, 500, 2_000, 20_000, 10_000, 1, 2_000)
FEW_TENANTS: Final = 10
SERIAL_JOBS_SHARE: Final = 5  # a serial round has that much fewer jobs


def main() -> None:
    options = _options()
    size = QUICK if options.quick else FULL
    began = time.monotonic()
    console = Console(width=None if Console().is_terminal else 200)
    machine = f"{os.cpu_count()} × {_processor()}, load {os.getloadavg()[0]:.1f} at the start"
    title = f"{version(options.store)}, Python {platform.python_version()}, {machine}"
    figures: list[Figure] = []
    for part in (_lifecycle, _scaling, _memory, _throughput):
        for figure in part(options.store, size):
            console.print(
                f"[dim]{time.monotonic() - began:4.0f} s[/dim]  {' | '.join(figure.cells())}", highlight=False
            )
            figures.append(figure)
    console.print(table(figures, title))
    print(f"\n{title}\n\n{markdown(figures)}")
    if options.json:
        options.json.write_text(json.dumps({"on": title, "figures": [asdict(f) for f in figures]}, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it works, not how fast it is")
    parser.add_argument("--store", choices=("valkey", "redis"), default="valkey")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    return parser.parse_args()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.machine())


def _lifecycle(store: StoreName, size: Size) -> Iterator[Figure]:
    with server(store) as running:
        raw, ours = compare(running, rounds=size.rounds, jobs=size.jobs, depth=DEPTH, tenants=FEW_TENANTS)
        serial_jobs = size.jobs // SERIAL_JOBS_SHARE
        raw1, ours1 = compare(running, rounds=size.rounds, jobs=serial_jobs, depth=1, tenants=FEW_TENANTS)
    target = "≤ 3 × and ≤ 100 µs"

    def figure(name: str, us: float, yardstick: float, target: str = "") -> Figure:
        holds = us <= 3 * yardstick and us <= 100 if target else None
        return Figure(name, us, "µs", yardstick, target, holds, digits=1)

    yield figure(f"one lifecycle at 1 KB, CPU time of Redis, {DEPTH} in a pipeline", ours.cpu, raw.cpu, target)
    for step in ("submit", "acquire", "settle"):
        yield figure(f"– of which {step}", getattr(ours, step), getattr(raw, step))
    yield figure("the same by INFO commandstats", ours.commands, raw.commands)
    yield figure("one lifecycle at 1 KB, CPU time of Redis, one call at a time", ours1.cpu, raw1.cpu)


def _scaling(store: StoreName, size: Size) -> Iterator[Figure]:
    tenants = [Load(n, 2 * n) for n in (FEW_TENANTS, size.tenants // 100, size.tenants)]
    costs, _ = under_loads(store, tenants, rounds=size.rounds, jobs=size.jobs // 2)
    for load, cost in list(zip(tenants, costs, strict=True))[1:]:
        yield _growth(f"lifecycle with {load.tenants:,} tenants waiting", cost, costs[0], f"{FEW_TENANTS} tenants")
    waiting = [Load(FEW_TENANTS, n) for n in (0, size.waiting // 100, size.waiting)]
    costs, memory = under_loads(store, waiting, rounds=size.rounds, jobs=size.jobs // 2)
    for load, cost, used in list(zip(waiting, costs, memory, strict=True))[1:]:
        yield _growth(
            f"lifecycle with {load.waiting:,} jobs waiting", cost, costs[0], "0 jobs", f"{used / 2**20:,.0f} MB"
        )


def _growth(name: str, cost: Cost, smallest: Cost, yardstick_note: str, note: str = "") -> Figure:
    holds = cost.cpu <= 1.5 * smallest.cpu
    return Figure(name, cost.cpu, "µs", smallest.cpu, "≤ 1.5 ×", holds, 1, note, yardstick_note)


def _memory(store: StoreName, size: Size) -> Iterator[Figure]:
    ours, raw = footprint(store, size.memory_jobs), raw_footprint(store, size.memory_jobs)
    yield Figure(
        "memory of a waiting job beside its payload of 1 KB", ours.per_job, "bytes", raw.per_job,
        "≤ 1,024 bytes", ours.per_job <= 1024,
    )  # fmt: skip
    yield Figure(f"memory of a line ({LINES} of them)", ours.per_line, "bytes", raw.per_line)


def _throughput(store: StoreName, size: Size) -> Iterator[Figure]:
    for persistence in PERSISTENCES:
        with server(store, persistence) as running:
            yield from asyncio.run(_speeds(running, persistence, size))


async def _speeds(running: Measured, persistence: Persistence, size: Size) -> list[Figure]:
    rounds, jobs = size.throughput_rounds, size.throughput_jobs
    mode = "no AOF" if persistence == "none" else f"appendfsync {persistence}"
    by_dispatchers, raw_pops = await throughput.pops(running, rounds=rounds, jobs=jobs)
    submits, raw_submits = await throughput.submits(running, rounds=rounds, jobs=jobs // 4)
    batches, raw_batches = await throughput.batches(running, rounds=rounds, jobs=jobs)

    def figure(name: str, measured: float, yardstick: float, least: int, note: str = "") -> Figure:
        target = f"≥ {least:,} jobs/s"
        return Figure(f"{name}, {mode}", measured, "jobs/s", yardstick, target, measured >= least, note=note)

    note = ", ".join(f"{n}: {speed:,.0f}" for n, speed in by_dispatchers.items())
    return [
        figure(
            f"pops of {throughput.AT_A_TIME}", max(by_dispatchers.values()), raw_pops, 20_000, f"dispatchers {note}"
        ),
        figure(f"{throughput.SUBMITTERS} submitters at once", submits, raw_submits, 8_000),
        figure("submit in batches of 1,000", batches, raw_batches, 20_000),
    ]


if __name__ == "__main__":
    main()
