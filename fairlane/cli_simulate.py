"""`fairlane simulate`: a load through modelled backends, by our queue and by other ways, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fairlane.cli_load import (
    From,
    Kind,
    Minutes,
    Mix,
    OnOff,
    OutDir,
    Poisson,
    ProfileName,
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
from fairlane.terminal import AsJson, refusals, say_json, say_table

if TYPE_CHECKING:
    from dispatcher.simulator.measures import Group
    from dispatcher.simulator.offer import Load, Offer
    from dispatcher.simulator.profile import Profile
    from dispatcher.simulator.report import Outcome
    from dispatcher.simulator.request import Arrival
    from dispatcher.simulator.slo import Target

MOST_TENANTS_SHOWN: Final = 5
DEFAULT_WAYS: Final = ("direct", "ours")
HEADS: Final = ("requests", "TTFT p50 / p95 / p99", "E2E p50 / p95 / p99")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is run, beside the load."""

    ways: Sequence[str]
    profile: str
    backends: int
    rho: float | None
    slo: str | None
    seed: int
    scrape_ms: int | None


def simulate(
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
    rho: Annotated[
        float | None,
        typer.Option(min=0.01, max=10, help="Make it so dense: 1 is all that the backends get through."),
    ] = None,
    speed_up: SpeedUp = 1.0,
    backends: Annotated[int, typer.Option(min=1, max=1000, help="How many, all alike.")] = 1,
    profile: ProfileName = "a100-7b",
    way: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Who decides what runs where; repeatable. (Default: direct and ours)"),
    ] = None,
    slo: Annotated[
        str | None, typer.Option(metavar="TIER:METRIC_PNN=TIME,…", help="As default:ttft_p99=2s,batch:e2e_p99=1h.")
    ] = None,
    seed: Seed = 0,
    scrape_ms: ScrapeMs = None,
    out: OutDir = None,
    as_json: AsJson = False,
) -> None:
    """Try in virtual time how a load would fare: through our queue, and without it or by other ways.

    The queue is the real one, its scripts on a private server; the backends are modelled. docs/simulate.md says more.
    """
    from dispatcher.simulator.offer import Offer
    from fairlane.errors import InvalidRequest

    offer = Offer(trace, servegen, poisson, kind, minutes, from_, tiers, mix, tenants, on_off, speed_up, seed)
    asked = Asked(tuple(dict.fromkeys(way or DEFAULT_WAYS)), profile, backends, rho, slo, seed, scrape_ms)
    with refusals(as_json), ended_in_order():
        if rho is not None and speed_up != 1:
            raise InvalidRequest("Say --rho or --speed-up, not both.", param="rho")
        _simulate(offer, asked, folder(out), as_json)


def _simulate(offer: Offer, asked: Asked, out: Path | None, as_json: bool) -> None:
    from dispatcher.simulator.offer import load_of
    from dispatcher.simulator.profile import load_profile
    from dispatcher.simulator.report import facts, write_tables
    from dispatcher.simulator.slo import parse_targets
    from dispatcher.simulator.stage import check_ways

    quiet()
    check_ways(asked.ways)
    profile, load = load_profile(asked.profile), load_of(offer)
    targets = parse_targets(asked.slo, load.tiers)
    arrivals = asyncio.run(_arrivals(load, asked, profile))
    outcomes = asyncio.run(_run(arrivals, load, asked, profile, targets))
    about = _about(load, arrivals, asked, profile)
    tables = _tables(outcomes)
    if out:
        with writing():
            write_tables(out, "simulate", tables, **about)
            _draw(out, outcomes)
    if as_json:
        say_json(facts(tables, **about))
        return
    _show(about, outcomes)
    if out:
        typer.echo(f"\nWritten to {out}.")


async def _arrivals(load: Load, asked: Asked, profile: Profile) -> list[Arrival]:
    from dispatcher.simulator.alone import capacity_per_s

    if asked.rho is None:
        return load.at(1.0)
    wanted = asked.rho * asked.backends * await capacity_per_s(load.at(load.part), profile)
    return load.at(wanted / load.rate_per_s())


async def _run(
    arrivals: Sequence[Arrival], load: Load, asked: Asked, profile: Profile, targets: Sequence[Target]
) -> list[Outcome]:
    from dispatcher.simulator.report import outcome
    from dispatcher.simulator.stage import opened

    outcomes: list[Outcome] = []
    with opened(asked.ways, asked.seed, asked.scrape_ms) as stage, progress() as begin:
        for way in asked.ways:
            tell = begin(way, len(arrivals))
            run = await stage.run(way, arrivals, profile, tiers=load.tiers, backends=asked.backends, tell=tell)
            outcomes.append(outcome(way, run, load.tiers, targets))
    return outcomes


# --- what is told -----------------------------------------------------------------------------------------------------


def _about(load: Load, arrivals: Sequence[Arrival], asked: Asked, profile: Profile) -> dict[str, Any]:
    return {
        "load": load.source,
        "requests": len(arrivals),
        "minutes": round(arrivals[-1].at_ms / 60_000, 3),
        "backends": asked.backends,
        "profile": profile.name,
        "seed": asked.seed,
    }


def _tables(outcomes: Sequence[Outcome]) -> Mapping[str, Any]:
    from dispatcher.simulator.report import slo_table, tenant_table, tier_table, total_table

    return {
        "ways": total_table(outcomes),
        "tiers": tier_table(outcomes),
        "tenants": tenant_table(outcomes),
        "slos": slo_table(outcomes),
    }


def _draw(out: Path, outcomes: Sequence[Outcome]) -> None:
    from dispatcher.simulator.report import draw

    if can_plot():
        draw(out, outcomes)


def _show(about: Mapping[str, Any], outcomes: Sequence[Outcome]) -> None:
    backends = f"{about['backends']} {about['profile']}"
    typer.echo(f"{about['load']}: {about['requests']:,} requests in {about['minutes']:.3g} minutes, on {backends}.\n")
    say_table(("way", "tier", *HEADS), [row for one in outcomes for row in _tier_rows(one)])
    typer.echo()
    say_table(("way", "tenant", *HEADS), [row for one in outcomes for row in _tenant_rows(one)])
    if (hidden := len(outcomes[0].measures.tenants) - MOST_TENANTS_SHOWN) > 0:
        typer.echo(f"and {hidden} tenants more (--out DIR or --json shows all)")
    typer.echo()
    say_table(("way", *(what for what, _ in _figures(outcomes[0]))), [_figure_row(one) for one in outcomes])
    _show_slos(outcomes)


def _tier_rows(one: Outcome) -> list[Sequence[str]]:
    rows = [(one.way, tier, *times_of(group)) for tier, group in one.measures.tiers.items()]
    return [*rows, (one.way, "all", *times_of(one.measures.all))]


def _tenant_rows(one: Outcome) -> list[Sequence[str]]:
    """The busiest ones."""

    def busy(item: tuple[str, Group]) -> tuple[int, str]:
        return -item[1].n, item[0]

    busiest = sorted(one.measures.tenants.items(), key=busy)[:MOST_TENANTS_SHOWN]
    return [(one.way, tenant, *times_of(group)) for tenant, group in busiest]


def _figures(one: Outcome) -> list[tuple[str, str]]:
    found = one.measures
    goodput = [("goodput/s", f"{one.good_per_s:.3g}")] if one.targets else []
    return [
        *goodput,
        ("requests/s", f"{found.requests_per_s:.3g}"),
        ("tokens/s", f"{found.prompt_tokens_per_s + found.answer_tokens_per_s:,.0f}"),
        ("used", f"{found.utilisation:.1%}"),
        ("gap", f"{found.fairness.largest_gap:,.0f}"),
        ("Jain", f"{found.fairness.jain:.3f}"),
        ("preempted", f"{found.preemptions:,}"),
        ("wasted", f"{found.wasted_tokens:,}"),
    ]


def _figure_row(one: Outcome) -> Sequence[str]:
    return (one.way, *(figure for _, figure in _figures(one)))


def _show_slos(outcomes: Sequence[Outcome]) -> None:
    from dispatcher.simulator.slo import shown

    rows = [
        (one.way, str(target), shown(seen_ms), "met" if target.allows(seen_ms) else "missed")
        for one in outcomes
        for target in one.targets
        for seen_ms in [target.seen_ms(one.run.requests)]
    ]
    if rows:
        typer.echo()
        say_table(("way", "SLO", "is", ""), rows)
