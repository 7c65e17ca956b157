"""Runs one cell, and measures it. In a worker process, which has a store of its own for ours."""

from __future__ import annotations

import asyncio
import atexit
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.experiments.cell import Cell, Row
from benchmarks.experiments.workloads import WORKLOADS
from dispatcher.simulator import world
from dispatcher.simulator.catalogue import WITHOUT_STORE, ways
from dispatcher.simulator.measures import Group, Span, group, groups, measure, within
from dispatcher.simulator.profile import load_profile
from dispatcher.simulator.request import Arrival, Request
from dispatcher.simulator.service import fairness
from dispatcher.simulator.store import private_store
from dispatcher.simulator.workloads.tiers import MIXES, tier_names, with_tiers
from fairlane.model import DEFAULT_TIERS
from fairlane.queue.connection import Client

WARM_UP: Final = (
    0.1  # of the time in which requests come; what comes or ends in it is not measured, nor what ends later
)
HEAVY: Final = "heavy"
GROUPS: Final = ("all", *DEFAULT_TIERS, "heavy", "light")


@dataclass(frozen=True, slots=True)
class Measure:
    unit: str
    digits: int


# By the classes of `mix` with four tiers, however many a run has: they are compared over K
MEASURES: Final[Mapping[str, Measure]] = {
    **{
        f"{of} {what} {percent}": Measure("s", 3)
        for of in GROUPS
        for what in ("ttft", "e2e")
        for percent in ("p50", "p99")
    },
    "requests/s": Measure("1/s", 4),
    "tokens/s": Measure("1/s", 1),
    "gap": Measure("tokens", 0),
    "gap across tiers": Measure("tokens", 0),
    "largest": Measure("tokens", 0),
    "jain": Measure("", 4),
    "windows": Measure("", 0),
    "utilisation": Measure("", 4),
    "preemptions": Measure("", 0),
    "wasted": Measure("tokens", 0),
    "capacity": Measure("1/s", 4),
    "simulated": Measure("s", 0),
    "wall": Measure("s", 1),
}


def run(cell: Cell, traces: Path) -> Row:
    """One run from its beginning to the last answer. The same cell gives the same row."""
    arrivals, labels, capacity_per_s = _workload(cell, traces)
    done = asyncio.run(_run(cell, arrivals))
    return Row(cell, _values(done, labels, capacity_per_s))


def timed_run(cell: Cell, traces: Path) -> Row:
    """Besides, how long it took on this machine, and how long a time it simulated."""
    arrivals, labels, capacity_per_s = _workload(cell, traces)
    began_s = time.perf_counter()
    done = asyncio.run(_run(cell, arrivals))
    wall_s = time.perf_counter() - began_s
    values = _values(done, labels, capacity_per_s)
    return Row(cell, values | {"wall": wall_s, "simulated": done.end_ms / 1000})


async def _run(cell: Cell, arrivals: Sequence[Arrival]) -> world.Run:
    if cell.way in WITHOUT_STORE:
        way = WITHOUT_STORE[cell.way]
    else:
        client = _store()
        await client.flushall()
        way = ways(client, cell.seed, cell.scrape_ms)[cell.way]
    return await world.run(
        arrivals,
        way.scheduler(),
        load_profile(cell.profile),
        backends=cell.backends,
        order=way.order,
        tiers=tier_names(cell.tiers),
    )


def _workload(cell: Cell, traces: Path) -> tuple[list[Arrival], list[str], float]:
    """The arrivals, the class of each, and what the backends can do of them per second."""
    workload, mix = WORKLOADS[cell.workload], MIXES[cell.mix]
    base = _base(traces, cell.workload, cell.requests, cell.seed)
    capacity_per_s = _capacity_per_s(traces, cell.workload, cell.requests, cell.seed, cell.profile, cell.backends)
    loaded = workload.at(base, cell.rho, capacity_per_s, cell.seed)
    dice = cell.seed + workload.dice
    labels = [one.tier for one in with_tiers(loaded, DEFAULT_TIERS, mix, dice)]
    return with_tiers(loaded, tier_names(cell.tiers), mix, dice), labels, capacity_per_s


@cache
def _base(traces: Path, workload: str, requests: int, seed: int) -> list[Arrival]:
    return WORKLOADS[workload].base(traces, requests, seed)


@cache
def _capacity_per_s(traces: Path, workload: str, requests: int, seed: int, profile: str, backends: int) -> float:
    """All requests at once, first come, first served: what is answered until nobody waits any more."""
    base = _base(traces, workload, requests, seed)
    way = WITHOUT_STORE["direct"]
    at_once = [Arrival(0.0, one.tenant, DEFAULT_TIERS[0], one.prompt, one.answer) for one in base]
    done = asyncio.run(
        world.run(at_once, way.scheduler(), load_profile(profile), backends=backends, order=way.order)
    )  # fmt: skip
    full_ms = max(one.first_ms for one in done.requests)
    made = sum(one.answer * _share(one, full_ms) for one in done.requests)
    return 1000 * len(base) * made / sum(one.answer for one in base) / full_ms


def _share(one: Request, at_ms: float) -> float:
    """Of its answer that is there at that time, if it was made evenly."""
    return 1.0 if one.done_ms <= at_ms else (at_ms - one.first_ms) / (one.done_ms - one.first_ms)


def _values(run: world.Run, labels: Sequence[str], capacity_per_s: float) -> dict[str, float]:
    last_ms = run.requests[-1].arrived_ms
    span = Span(WARM_UP * last_ms, last_ms)
    measured = measure(run, span=span)
    came = within(run.requests, span)
    values: dict[str, float] = {}
    for name, one in _groups(came, labels).items():
        values |= _times(name, one)
    return values | {
        "requests/s": measured.requests_per_s,
        "tokens/s": measured.prompt_tokens_per_s + measured.answer_tokens_per_s,
        "gap": _gap_within_tiers(run),
        "gap across tiers": measured.fairness.largest_gap,
        "largest": max(one.prompt + 2 * one.answer for one in run.requests),
        "jain": measured.fairness.jain,
        "windows": measured.fairness.windows,
        "utilisation": measured.utilisation,
        "preemptions": measured.preemptions,
        "wasted": measured.wasted_tokens,
        "capacity": capacity_per_s,
    }


def _gap_within_tiers(run: world.Run) -> float:
    """Tenants of different tiers are to be served differently: the largest gap between two of one tier."""
    tiers: dict[str, list[Request]] = {}
    for one in run.requests:
        tiers.setdefault(one.tier, []).append(one)
    return max(fairness(those, run.end_ms).largest_gap for those in tiers.values())


def _groups(came: Sequence[Request], labels: Sequence[str]) -> dict[str, Group]:
    found = {"all": group(came)} | groups(came, lambda one: labels[one.number], DEFAULT_TIERS)
    heavy = [one for one in came if one.tenant == HEAVY]
    if heavy:
        found |= {"heavy": group(heavy), "light": group([one for one in came if one.tenant != HEAVY])}
    return found


def _times(name: str, one: Group) -> dict[str, float]:
    return {
        f"{name} {what} {percent}": value / 1000
        for what, times in (("ttft", one.ttft), ("e2e", one.e2e))
        for percent, value in (("p50", times.p50), ("p99", times.p99))
    }


@cache
def _store() -> Client:
    """One for this process, until it ends."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(private_store())
