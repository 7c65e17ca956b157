"""`fairlane plan`: how many backends a load needs to meet its SLOs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlane.cli_load import (
    BackendProfile,
    From,
    Kind,
    Minutes,
    Mix,
    OnOff,
    OutDir,
    Poisson,
    ScrapeMs,
    Seed,
    Servegen,
    SpeedUp,
    Tenants,
    Tiers,
    Trace,
    can_plot,
    ended_in_order,
    folder,
    progress,
    quiet,
    times_of,
    writing,
)
from fairlane.terminal import AsJson, counted, refusals, say_json, say_table

if TYPE_CHECKING:
    from dispatcher.simulator.offer import Offer
    from dispatcher.simulator.planning import Plan, Question
    from dispatcher.simulator.stage import Tell


def plan(
    slo: Annotated[
        str, typer.Option(metavar="TIER:METRIC_PNN=TIME,…", help="As default:ttft_p99=2s,batch:e2e_p99=1h.")
    ],
    trace: Trace = None,
    servegen: Servegen = None,
    poisson: Poisson = None,
    kind: Kind = None,
    minutes: Minutes = None,
    from_: From = 0.0,
    tiers: Tiers = None,
    mix: Mix = None,
    tenants: Tenants = None,
    on_off: OnOff = None,
    speed_up: SpeedUp = 1.0,
    profile: BackendProfile = "a100-7b",
    most: Annotated[int, typer.Option(min=1, max=1000, help="Try no more backends.")] = 64,
    way: Annotated[str, typer.Option(metavar="NAME", help="Who decides what runs where.")] = "ours",
    seed: Seed = 0,
    scrape_ms: ScrapeMs = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it there, as SVG.")] = None,
    out: OutDir = None,
    as_json: AsJson = False,
) -> None:
    """Say how many backends a load needs so that every tier gets what was promised, now and when it grows.

    It simulates the load (see `simulate`) with more and fewer backends. docs/plan.md says more.
    """
    from dispatcher.simulator.offer import Offer
    from fairlane.errors import InvalidRequest

    offer = Offer(trace, servegen, poisson, kind, minutes, from_, tiers, mix, tenants, on_off, speed_up, seed)
    with refusals(as_json), ended_in_order():
        folder(out)
        folder(plot.parent if plot else None)
        if plot and plot.is_dir():
            raise InvalidRequest(f"{plot} is a folder: name a file for --plot.", param="plot")
        question = _question(offer, slo, profile, way, most)
        found = asyncio.run(_planned(question, seed, scrape_ms))
        _warn(question)
        _tell(found, question, out, plot, as_json)


def _question(offer: Offer, slo: str, profile: str, way: str, most: int) -> Question:
    from dispatcher.simulator.offer import load_of
    from dispatcher.simulator.planning import Question
    from dispatcher.simulator.profile import load_profile
    from dispatcher.simulator.slo import FORM, parse_targets
    from dispatcher.simulator.stage import check_ways
    from fairlane.errors import InvalidRequest

    quiet()
    check_ways([way])
    backend, load = load_profile(profile), load_of(offer)
    targets = parse_targets(slo, load.tiers)
    if not targets:
        raise InvalidRequest(f"Which SLO? {FORM}", param="slo")
    return Question(load, targets, backend, way, most)


def _warn(question: Question) -> None:
    """Of percentiles that are decided by a single request."""
    from dispatcher.simulator.planning import too_few

    for target, requests in too_few(question):
        words = f"only {counted(requests, 'request')} in {target.tier}: its p{target.percent} is the slowest of them"
        typer.secho(f"Warning: {words}. A longer load says more.", fg="yellow", err=True)


async def _planned(question: Question, seed: int, scrape_ms: int | None) -> Plan:
    from dispatcher.simulator.planning import planned
    from dispatcher.simulator.stage import opened

    with opened([question.way], seed, scrape_ms) as stage, progress() as begin:
        return await planned(question, stage, _telling(question, begin))


def _telling(question: Question, begin: Callable[[str, int], Tell]) -> Callable[[float, int, int], Tell]:
    def tell(growth: float, backends: int, requests: int) -> Tell:
        return begin(f"{growth:g} × the load on {backends}", requests)

    return tell


def _tell(found: Plan, question: Question, out: Path | None, plot: Path | None, as_json: bool) -> None:
    from dispatcher.simulator.planned import sentences
    from dispatcher.simulator.report import facts, write_tables

    about, tables = _about(found, question), _tables(found)
    with writing():
        if out:
            write_tables(out, "plan", tables, **about)
        _draw(found, question, *(path for path in (plot, out / "plan.svg" if out else None) if path))
    if as_json:
        say_json(facts(tables, **about))
        return
    for words in sentences(found, question):
        typer.echo(words)
    typer.echo()
    _show(found)
    if out:
        typer.echo(f"\nWritten to {out}.")


def _about(found: Plan, question: Question) -> dict[str, Any]:
    return {
        "backends": found.backends,
        "load": question.load.source,
        "requests": found.trials[0].measures.all.n,
        "profile": question.profile.name,
        "way": question.way,
        "tried": [one.backends for one in found.trials if one.growth == 1],
    }


def _tables(found: Plan) -> Mapping[str, Any]:
    from dispatcher.simulator.planned import need_table, slo_table, trial_table

    return {"needs": need_table(found), "slos": slo_table(found), "tiers": trial_table(found)}


def _draw(found: Plan, question: Question, *paths: Path) -> None:
    from dispatcher.simulator.planned import draw

    if paths and can_plot():
        for path in paths:
            draw(path, found, question)


def _show(found: Plan) -> None:
    from dispatcher.simulator.planned import chosen

    rows = [
        (f"{one.growth:g} ×", one.backends, tier, *times_of(group), f"{one.measures.utilisation:.0%}")
        for one in chosen(found)
        for tier, group in one.measures.tiers.items()
    ]
    times = ("TTFT p50 / p95 / p99", "E2E p50 / p95 / p99")
    say_table(("load", "backends", "tier", "requests", *times, "used"), rows)
    typer.echo(
        f"Tried at this load: {', '.join(str(one.backends) for one in found.trials if one.growth == 1)} backends."
    )
