"""Steers one pool as a whole, every few seconds: the boost's γ, how many backends it should have, how fair it is.

Only the pool's observer does it, one for the fleet. What it found stands in the pool (`steer`): the scripts take γ from
there, front doors show the rest, and the next observer goes on from it. Samples are not handed on: it reads them again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any, Final

import structlog

from dispatcher.lately import Lately, Look
from dispatcher.policy import lead
from dispatcher.policy.autoscale import Scaling, Use, desired_replicas
from dispatcher.policy.fairness import top
from dispatcher.policy.thermostat import Thermostat, next_gamma
from dispatcher.recording import Recording
from dispatcher.seen import fields, packed, remembered, told
from fairlane.errors import FairlaneError
from fairlane.metrics import OTHER, capacity_of
from fairlane.model import Policy
from fairlane.queue.engine import Queue
from fairlane.queue.inspection import PAGE_MOST
from fairlane.queue.pools import Pool
from fairlane.standing import BackendView, Finish, PoolLoad
from fairlane.trend import Point

EVERY_S: Final = 5.0
PAGES_MOST: Final = 10  # of finished jobs in a round: beyond 2,000 a second some are skipped
LINES_MOST: Final = 100  # of a tier, those that have waited longest
GAMMA_MOST: Final = 1000.0
log = structlog.get_logger()


class Steering:
    """One pool's. `tenants_most`: how many tenants are named in what it writes."""

    def __init__(self, queue: Queue, pool: Pool, tenants_most: int) -> None:
        self._queue = queue
        self._pool = pool
        self._tenants_most = tenants_most
        self._cursor = ""
        self._lately = Lately()
        self._recording = Recording(queue)
        self._known: tuple[Thermostat, Scaling] | None = None
        self._lead_ms: float | None = None

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                await self.round()
            except FairlaneError as error:
                log.warning("not_steered", pool=self._pool.name, error=error.code)
            except Exception:  # else the pool would be without, as long as this observer lives
                log.exception("steering_broke", pool=self._pool.name)
            await asyncio.sleep(EVERY_S)

    async def round(self) -> None:
        """Looks once, and writes what follows."""
        load = await self._queue.inspect.load(self._pool)
        if load.version != self._pool.version:
            self._pool = await self._queue.pools.read(self._pool.code)
        policy = self._pool.policy
        working = [Use(capacity_of(view) or 1, view.counts.live) for view in load.backends if _works(view)]
        look = await self._look(load, _rho(working))
        self._lately.note(look, by_tokens=policy.fairness == "tokens")
        thermostat, scaling = self._known or _left(load.steer)
        rho = self._lately.rho
        thermostat = next_gamma(
            thermostat,
            self._lately.samples,
            math.nan if rho is None else rho,
            look.oldest_wait_ms,
            policy.boost_max_ms,
        )
        scaling = desired_replicas(scaling, working, _waiting(load), load.now_ms)
        self._known = thermostat, scaling
        gamma = min(GAMMA_MOST, thermostat.gamma)
        self._steer_lead(load, policy, gamma if policy.gamma is None else policy.gamma)
        seen = self._seen(look, thermostat, scaling, gamma)
        await self._queue.steer(self._pool, gamma if policy.gamma is None else None, packed(seen))
        point = Point(
            at_ms=load.now_ms,
            took_s=0.0,
            tiers={},
            slots=sum(use.slots for use in working),
            gamma=gamma if policy.gamma is None else policy.gamma,
            replicas=scaling.desired,
        )
        await self._recording.note(self._pool, load, look, self._lately, point)

    def _steer_lead(self, load: PoolLoad, policy: Policy, gamma: float) -> None:
        tiers = len(policy.tiers)
        known = fields(load.steer).get("lead_ms") if self._lead_ms is None else self._lead_ms
        if not isinstance(known, int | float):
            known = lead.wanted_ms(tiers, gamma)
        self._lead_ms = lead.next_ms(known, lead.wanted_ms(tiers, gamma, self._lately.met_ms), 1000 * EVERY_S)

    async def _look(self, load: PoolLoad, rho: float | None) -> Look:
        finishes, whole = await self._finishes(load.now_ms)
        lines = {
            tier: await self._queue.inspect.lines(self._pool, tier, LINES_MOST) for tier in self._pool.policy.tiers
        }
        work = {tier.tier: tier.waiting + tier.inflight - tier.moved for tier in load.tiers}
        return Look(load.now_ms, lines, work, finishes, whole, rho)

    async def _finishes(self, now_ms: int) -> tuple[list[Finish], bool]:
        """The jobs that ended since the last look, and whether these are all."""
        found: list[Finish] = []
        for _ in range(PAGES_MOST):
            page, cursor = await self._queue.inspect.finishes(self._pool, self._cursor, PAGE_MOST)
            self._cursor = cursor or "0-0"  # nothing ever ended: all that follows is new
            found += page
            if len(page) < PAGE_MOST:
                return found, True
        newest_ms = now_ms - round(1000 * EVERY_S)
        if int(self._cursor.partition("-")[0]) < newest_ms:
            self._cursor = f"{newest_ms}-0"
        return found, False

    def _seen(self, look: Look, thermostat: Thermostat, scaling: Scaling, gamma: float) -> dict[str, Any]:
        fair, rho = self._lately.fairness, self._lately.rho
        jobs_per_s = dict(self._lately.ended_per_s)
        nameless = jobs_per_s.pop(OTHER, 0.0)  # a tenant of that name: no series may be there twice
        ranked, rest = top(jobs_per_s, self._tenants_most)
        tenants = [(tenant, round(per_s, 4)) for tenant, per_s in ranked]
        return {
            "at_ms": look.now_ms,
            "gamma": gamma,
            "lead_ms": round(self._lead_ms or 0),
            "rho": None if rho is None else round(rho, 4),
            "oldest_wait_ms": look.oldest_wait_ms,
            "service_s": self._lately.service_s,
            "came_per_s": {tier: round(per_s, 4) for tier, per_s in self._lately.came_per_s.items()},
            "replicas": scaling.desired,
            "freeness": None if scaling.freeness is None else round(scaling.freeness, 4),
            "jain": round(fair.jain, 4),
            "gap": round(fair.gap, 4),
            "compared": fair.tenants,
            "tenants": [*tenants, (OTHER, round(rest + nameless, 4))],
            "thermostat": told(thermostat),
            "scaling": told(scaling),
        }


def _left(steer: str) -> tuple[Thermostat, Scaling]:
    """What the observer before us had come to."""
    left: Mapping[str, Any] = fields(steer)
    return remembered(Thermostat, left.get("thermostat")), remembered(Scaling, left.get("scaling"))


def _works(view: BackendView) -> bool:
    health: Mapping[str, Any] = fields(view.seen).get("health") or {}
    return view.status == "up" and not health.get("until_ms")


def _rho(working: list[Use]) -> float | None:
    slots = sum(use.slots for use in working)
    return sum(use.live for use in working) / slots if slots else None


def _waiting(load: PoolLoad) -> int:
    """Jobs that could start now."""
    return sum(tier.waiting for tier in load.tiers if tier.runnable)
