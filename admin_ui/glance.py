"""A pool as the overview shows it: what is wrong, which limit binds, and its numbers now and over the last minute."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from admin_ui.binding import Binding, tier_binding, tier_gates
from admin_ui.bridge import Stores
from admin_ui.gating import Gate, part, seen_of
from admin_ui.showing import duration, number
from admin_ui.thermostat import Thermostat, thermostat_of
from fairlane.metrics import capacity_of
from fairlane.queue.pools import Pool
from fairlane.standing import BackendView, Overview, Standing, TierView
from fairlane.trend import Point, percentile, together

LATELY_MS: Final = 75_000  # older points say nothing of now
UNSEEN_MS: Final = 15_000  # an observer steers every 5 s
LOOKED_AT: Final = 60  # tenants, of those that wait longest or are held
FLOOD_LEAST: Final = 100  # waiting jobs of one tenant, to be told of
LONG_MS: Final = 60_000  # a wait to be told of: the valve opens then

Tone = Literal["bad", "warn"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that an operator should know first. With a `tenant` the words go on after its name, which only who may
    see it is told."""

    tone: Tone
    words: str
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """What came and ended per second and the waits (ms) of what ended, over the last minute; None: not known."""

    came_per_s: float | None
    ended_per_s: float | None
    tokens_per_s: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, slots=True)
class TierGlance:
    """One tier; `oldest_ms` is how long its oldest job has waited."""

    view: TierView
    oldest_ms: int | None
    flow: Flow
    binding: Binding


@dataclass(frozen=True, slots=True)
class BackendGlance:
    """One backend, and what its last scrape saw; None: it does not say."""

    view: BackendView
    capacity: int | None
    cap: int | None
    waiting: int | None
    running: int | None
    kv: float | None
    token_ms: float | None
    fresh_ms: int | None
    missing: tuple[str, ...]
    ejected: bool
    gates: tuple[Gate, ...]

    @property
    def load(self) -> float | None:
        return self.view.counts.live / self.capacity if self.capacity else None


@dataclass(frozen=True, slots=True)
class PoolGlance:
    """One pool. `oldest_ms` is how long the oldest of all its jobs has waited, in the tier `oldest_tier`."""

    pool: Pool
    view: Overview
    oldest_ms: int | None
    oldest_tier: str | None
    depth: int
    slots: int | None
    live: int
    flow: Flow
    tiers: tuple[TierGlance, ...]
    backends: tuple[BackendGlance, ...]
    problems: tuple[Problem, ...]
    steer: Mapping[str, Any]
    thermostat: Thermostat

    @property
    def saturation(self) -> float | None:
        return self.live / self.slots if self.slots else None

    @property
    def urgency(self) -> tuple[int, int]:
        """The pool that needs an operator most comes first."""
        worst = 0 if any(p.tone == "bad" for p in self.problems) else 1 if self.problems else 2
        return worst, -(self.oldest_ms or 0)


async def glance(stores: Stores, pool: Pool) -> PoolGlance:
    """Two round trips."""
    inspect = stores.queue.inspect
    view, points, standings = await asyncio.gather(
        inspect.overview(pool), inspect.last_minute(pool), _standings(stores, pool)
    )
    return glance_of(pool, view, points, standings)


async def _standings(stores: Stores, pool: Pool) -> list[Standing]:
    inspect = stores.queue.inspect
    return await inspect.standings(pool, await inspect.notable(pool, LOOKED_AT))


async def glances(stores: Stores) -> list[PoolGlance]:
    """All pools, the one that needs an operator most first."""
    pools = await stores.queue.pools.all()
    found = await asyncio.gather(*(glance(stores, pool) for pool in pools))
    return sorted(found, key=lambda one: (*one.urgency, one.pool.name))


def glance_of(pool: Pool, view: Overview, points: Sequence[Point], standings: Sequence[Standing] = ()) -> PoolGlance:
    """What was read, as the page shows it."""
    lately = [point for point in points if view.now_ms - point.at_ms < LATELY_MS]
    gates = tier_gates(pool, view)
    tiers = tuple(_tier(view, tier, lately, gates.get(tier.tier, []), standings) for tier in view.tiers)
    backends = tuple(_backend(one, gates, view.now_ms) for one in view.backends)
    working = [one for one in backends if one.view.status == "up" and not one.ejected]
    oldest = max((tier for tier in tiers if tier.oldest_ms is not None), key=_age, default=None)
    steer = cast("Mapping[str, Any]", json.loads(view.steer))
    return PoolGlance(
        pool=pool,
        view=view,
        oldest_ms=oldest.oldest_ms if oldest else None,
        oldest_tier=oldest.view.tier if oldest else None,
        depth=sum(tier.depth for tier in view.tiers),
        slots=sum(one.capacity or 0 for one in working) or None,
        live=sum(one.view.counts.live for one in working),
        flow=_flow(lately, None),
        tiers=tiers,
        backends=backends,
        problems=tuple(_problems(view, tiers, backends, steer, standings)),
        steer=steer,
        thermostat=thermostat_of(pool, steer),
    )


def _age(tier: TierGlance) -> int:
    return tier.oldest_ms or 0


def _tier(
    view: Overview, tier: TierView, lately: Sequence[Point], gates: list[Gate], standings: Sequence[Standing]
) -> TierGlance:
    oldest_ms = None if tier.oldest_ms is None else max(0, view.now_ms - tier.oldest_ms)
    return TierGlance(tier, oldest_ms, _flow(lately, tier.tier), tier_binding(view, tier, gates, standings))


def _flow(lately: Sequence[Point], tier: str | None) -> Flow:
    """Of one tier, or of all."""
    took_s = sum(point.took_s for point in lately)
    if not took_s:
        return Flow(None, None, None, None, None, None)
    parts = [one for point in lately for name, one in point.tiers.items() if tier is None or name == tier]
    total = together(parts)
    p50, p95, p99 = (percentile(total.waits, share) for share in (0.5, 0.95, 0.99))
    return Flow(total.came / took_s, total.ended / took_s, total.tokens / took_s, p50, p95, p99)


def _backend(view: BackendView, gates: Mapping[str, list[Gate]], now_ms: int) -> BackendGlance:
    said = seen_of(view)
    seen: Mapping[str, Any] = {} if view.status == "down" else said  # what it said before that is not so now
    drains = view.status == "draining"
    return BackendGlance(
        view=view,
        capacity=capacity_of(view),
        cap=0 if drains else part(seen, "capacity").get("cap"),
        waiting=seen.get("waiting"),
        running=seen.get("running"),
        kv=seen.get("kv"),
        token_ms=seen.get("token_ms"),
        fresh_ms=None if drains or view.fresh_at_ms is None else max(0, now_ms - view.fresh_at_ms),
        missing=tuple(cast("Sequence[str]", seen.get("missing") or ())),
        ejected=bool(part(said, "health").get("until_ms")),
        gates=tuple(gate for of in gates.values() for gate in of if gate.backend == view.name),
    )


# --- what is wrong ----------------------------------------------------------------------------------------------------


def _problems(
    view: Overview,
    tiers: Sequence[TierGlance],
    backends: Sequence[BackendGlance],
    steer: Mapping[str, Any],
    standings: Sequence[Standing],
) -> Iterator[Problem]:
    """The worst first."""
    found = [
        *_missing_workers(view, backends, steer),
        *_broken_backends(backends),
        *_flood(view, standings),
        *_waits(tiers, backends, steer.get("replicas") or 0),
    ]
    if view.paused:
        found.append(Problem("warn", "The pool is paused: nothing starts until it is resumed."))
    elif paused := [tier.tier for tier in view.tiers if tier.paused]:
        found.append(Problem("warn", f"Paused: {', '.join(paused)}."))
    if view.dead:
        found.append(Problem("warn", f"{number(view.dead)} dead {'job' if view.dead == 1 else 'jobs'} to look at."))
    yield from sorted(found, key=lambda problem: problem.tone != "bad")


def _missing_workers(view: Overview, backends: Sequence[BackendGlance], steer: Mapping[str, Any]) -> Iterator[Problem]:
    if not backends:
        yield Problem("bad", "The pool has no backend.")
    elif not any(one.view.status == "up" for one in backends):
        yield Problem("bad", "No backend takes work.")
    unseen_ms = view.now_ms - steer.get("at_ms", -math.inf)
    if unseen_ms > UNSEEN_MS:
        since = "" if math.isinf(unseen_ms) else f" for {duration(unseen_ms)}"
        yield Problem("bad", f"Nobody observes this pool{since}: is a dispatcher running?")


def _broken_backends(backends: Sequence[BackendGlance]) -> Iterator[Problem]:
    for one in backends:
        name = one.view.name
        if one.view.status == "down":
            yield Problem("bad", f"{name} is down.")
        elif one.ejected:
            yield Problem("bad", f"{name} fails: it is left alone and tried from time to time.")
        elif one.view.status == "draining":
            yield Problem("warn", f"{name} drains.")
        if one.missing:
            yield Problem("warn", f"{name} does not show {', '.join(one.missing)}.")


def _flood(view: Overview, standings: Sequence[Standing]) -> Iterator[Problem]:
    """A tenant that has most of what waits, while others wait too."""
    total, lines = sum(tier.depth for tier in view.tiers) + view.delayed, sum(tier.tenants for tier in view.tiers)
    for of in standings:
        if of.waiting >= FLOOD_LEAST and 2 * of.waiting > total and 0 < len(of.oldest_ms) < lines:
            yield Problem("warn", f"holds {number(of.waiting)} of {number(total)} waiting jobs.", of.tenant)


def _waits(tiers: Sequence[TierGlance], backends: Sequence[BackendGlance], wanted: int) -> Iterator[Problem]:
    """Jobs of the highest tier that wait long, work that outgrows the backends, and tenants that are all held."""
    first = tiers[0]
    if first.oldest_ms is not None and first.oldest_ms > LONG_MS:
        yield Problem("warn", f"{first.view.tier} has waited {duration(first.oldest_ms)}: {first.binding.name}.")
    works = sum(one.view.status == "up" and not one.ejected for one in backends)
    if wanted > works > 0:
        yield Problem(
            "warn", f"{works} {'backend works' if works == 1 else 'backends work'}; the load asks for {wanted}."
        )
    by_binding: dict[Binding, list[str]] = {}
    for tier in tiers:
        if tier.binding.kind in ("kv", "slow_tokens", "stale", "held"):
            by_binding.setdefault(tier.binding, []).append(tier.view.tier)
    for of, those in by_binding.items():
        why = f"{of.name} ({of.words})."
        if of.tenant:
            yield Problem("warn", f"is all that waits in {', '.join(those)}, and is held: {why}", of.tenant)
        else:
            yield Problem("warn", f"{', '.join(those)} {'wait' if len(those) > 1 else 'waits'}: {why}")
