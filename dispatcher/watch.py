"""Watches one backend: scrapes it, learns its capacity, and writes what each tier may send there, and why not more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx
import structlog

from dispatcher.backends.address import authorization
from dispatcher.backends.answer import CallFailed
from dispatcher.backends.known import takes_priority
from dispatcher.backends.scrape import MetricsPage, Reading, ScrapeFailed, token_ms
from dispatcher.policy import capacity, ejection, gate
from dispatcher.policy.blind import slots_without_metrics
from dispatcher.policy.capacity import Capacity, Scrape
from dispatcher.policy.ejection import Counters, Health
from dispatcher.policy.gate import Load, Tuning
from dispatcher.seen import fields, packed, remembered, told
from fairlane.errors import FairlaneError, NotFound
from fairlane.model import BackendCounts, BackendSpec, TierGate
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.standing import BackendView

SOON_S: Final = 0.1
IDLE_S: Final = 0.5  # less than three scrapes, so that a backend at rest does not become stale
NULL_SLOTS: Final = 10_000
DOWN_MOST_MS: Final = 10_000  # for one whose metrics only time out: there may never be a good scrape again
NOTHING_NOTED: Final = BackendCounts(0, 0, 0)
NEW: Final = {"faults": 0, "answered": 0, "blamers": 0, "excused": 0}  # of a new backend all counts that it was sent
ReadPage = Callable[[], Awaitable[Reading]]
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Moment:
    """The pool as it stands, the rooms of its tiers from the highest down, and Redis's time in ms.

    `ahead`: how many more jobs of the highest tier may go ahead of what the engines have put back.
    """

    pool: Pool
    rooms: Sequence[float]
    ahead: int
    now_ms: int

    @property
    def tuning(self) -> Tuning:
        policy = self.pool.policy
        return Tuning(theta=policy.theta, kv_most=policy.kv_most, slow_ms=policy.slow_ms)


def over_http(spec: BackendSpec, client: httpx.AsyncClient) -> ReadPage:
    """Reads its metrics page where its URL says."""
    page = MetricsPage(spec.url, spec.family)

    async def read() -> Reading:
        return await page.scrape(client, headers=authorization(spec))

    return read


class Watch:
    """One backend's watcher. What it learned before, by whichever observer, is in `view.seen`.

    `read_page` reads its metrics, or raises ScrapeFailed or CallFailed; nobody calls it for `null://`.
    """

    def __init__(
        self,
        queue: Queue,
        view: BackendView,
        spec: BackendSpec,
        read_page: ReadPage,
        moment: Callable[[], Moment],
        interval_s: float,
    ) -> None:
        self._queue = queue
        self._name = view.name
        self.spec = spec
        self._read_page = read_page
        self._moment = moment
        self._interval_s = interval_s
        self._seen = fields(view.seen)
        self._known = remembered(Capacity, self._seen.get("capacity"))
        self._health = remembered(Health, self._seen.get("health", NEW))
        self._slow = self._seen.get("slow") is True
        self._before: Reading | None = None
        self._shut = self._health.most is not None  # what was written last
        self._fallbacks: dict[str, int] = {}
        self._restarted = False  # and nobody was told yet
        self._trouble = ""

    async def run(self) -> None:
        """Until it is cancelled, or the backend is gone from the pool."""
        while True:
            began = asyncio.get_running_loop().time()
            pause_s = self._interval_s
            try:
                pause_s = await self.once()
            except NotFound:
                return
            except FairlaneError as error:
                log.warning("observe_failed", pool=self._moment().pool.name, backend=self._name, error=error.code)
            took_s = asyncio.get_running_loop().time() - began
            await asyncio.sleep(max(0.0, pause_s - took_s))

    async def once(self) -> float:
        """One scrape; returns the time from its start to the next one's, in s."""
        found = await self._scrape()
        view = await self._queue.inspect.backend(self._moment().pool, self._name)
        moment = self._moment()
        was_well = self._health.most is None
        counters = Counters(view.faults, view.answered, view.blamers, view.counts.live, view.excused)
        self._health = ejection.judge(self._health, moment.now_ms, counters)
        if was_well and self._health.ejected:
            log.warning("backend_ejected", pool=moment.pool.name, backend=self._name, level=self._health.level)
        if isinstance(found, Reading):
            self._recovered()
            return await self._learn(found, view, moment)
        if found is None:
            await self._open_wide(self.spec.slots or NULL_SLOTS, {"family": "null"}, view, moment)
        else:
            await self._go_blind(found, view, moment)
        return self._interval_s

    async def _scrape(self) -> Reading | ScrapeFailed | None:
        """None: there is nothing to scrape."""
        if self.spec.url.startswith("null:"):
            return None
        try:
            return await self._read_page()
        except CallFailed as failed:  # we have no key for it
            return ScrapeFailed("status", failed.detail)
        except ScrapeFailed as failed:
            return failed

    # --- its metrics can be read --------------------------------------------------------------------------------------

    async def _learn(self, reading: Reading, view: BackendView, moment: Moment) -> float:
        page = Scrape(
            now_ms=moment.now_ms,
            running=reading.running,
            waiting=reading.waiting,
            live=view.counts.live,
            done=view.counts.done,
            denied=view.counts.denied,
            progress=reading.progress,
            started_at=reading.started_at,
        )
        if self._known.fresh_at_ms and capacity.restarted(self._known, page):
            self._restarted = True
            self._health = Health(
                faults=view.faults, answered=view.answered, blamers=view.blamers, excused=view.excused
            )
        fresh_at, early = self._known.fresh_at_ms, capacity.soon(self._known, page)
        self._known = capacity.learn(self._known, page, moment.tuning.of(0))
        if self._known.fresh_at_ms != fresh_at:
            gates = self._gates(reading, view, moment)
            self._fallbacks = {tier: one.fallback for tier, one in zip(moment.pool.policy.tiers, gates, strict=True)}
            await self._observe(gates, view, view.counts, moment)
        else:
            await self._write_health(view, moment)
        if early or view.status == "down":  # whoever called it shut it; now it can only look idle
            return SOON_S
        return self._interval_s if page.live or page.waiting else max(IDLE_S, self._interval_s)

    def _gates(self, reading: Reading, view: BackendView, moment: Moment) -> Sequence[TierGate]:
        """What each tier may send there; the numbers behind it are in `_seen`."""
        per_token_ms = token_ms(self._before, reading)
        self._before = reading
        self._slow = gate.is_slow(self._slow, per_token_ms, moment.tuning)
        load = Load(reading.waiting, reading.kv, per_token_ms, reading.running)
        self._seen = {
            "family": reading.family,
            "running": reading.running,
            "waiting": reading.waiting,
            "kv": reading.kv,
            "token_ms": per_token_ms,
            "slow": self._slow,
            "rooms": [round(share, 3) for share in moment.rooms],
            "missing": list(reading.missing),
            "capacity": told(self._known),
        }
        found = gate.gates(self._known, load, moment.rooms, slow=self._slow, tuning=moment.tuning)
        if not takes_priority(view):
            return found
        return gate.ahead(found, view.counts.live, load, moment.ahead, slow=self._slow, tuning=moment.tuning)

    # --- they cannot --------------------------------------------------------------------------------------------------

    async def _go_blind(self, failed: ScrapeFailed, view: BackendView, moment: Moment) -> None:
        """Its metrics grow stale by themselves. One that takes no connection is down; one that answers is not."""
        self._report(failed, moment.pool)
        slots = slots_without_metrics(failed.reason, failed.answered, slots=self.spec.slots, learned=self._learned)
        if slots is not None:
            seen = {"family": None, "missing": [*failed.missing], "why": str(failed)}
            await self._open_wide(slots, seen, view, moment)
        elif failed.reason == "unreachable":
            await self._queue.set_backend(moment.pool, self._name, "down")
        else:
            if failed.reason != "timeout" or moment.now_ms - (view.down_at_ms or 0) > DOWN_MOST_MS:
                await self._queue.set_backend(moment.pool, self._name, "reopen")
            await self._write_health(view, moment)

    @property
    def _learned(self) -> int | None:
        """Its capacity, if it was ever read; 1 while that is still growing."""
        if self._known.fresh_at_ms == 0:
            return None
        return 1 if self._known.ramp else self._known.k

    async def _open_wide(self, slots: int, seen: Mapping[str, Any], view: BackendView, moment: Moment) -> None:
        """For a backend that shows nothing to learn from: only what is in flight is bounded.

        Nor does it show when it restarts: one that was down may have.
        """
        self._seen = {**seen, "slots": slots}
        self._restarted = self._restarted or view.status == "down"
        gates = [TierGate(slots, slots)] * len(moment.pool.policy.tiers)
        await self._observe(gates, view, view.counts, moment)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def _write_health(self, view: BackendView, moment: Moment) -> None:
        """Ejection needs no page that can be read, and no probe does. One that is well again has its fallback."""
        most, tiers = self._health.most, moment.pool.policy.tiers
        if most is not None:
            await self._observe([TierGate(most, most, "down")] * len(tiers), view, NOTHING_NOTED, moment)
        elif self._shut:
            fallbacks = [self._fallbacks.get(tier, gate.SHUT_FALLBACK) for tier in tiers]
            await self._observe([TierGate(most, most, "stale") for most in fallbacks], view, NOTHING_NOTED, moment)

    async def _observe(
        self, gates: Sequence[TierGate], view: BackendView, counted: BackendCounts, moment: Moment
    ) -> None:
        gates = [_bounded(one, self._health.most) for one in gates]
        by_tier = dict(zip(moment.pool.policy.tiers, gates, strict=True))
        seen = packed({**self._seen, "health": told(self._health)})
        epoch = view.epoch + self._restarted
        await self._queue.observe(moment.pool, self._name, by_tier, counted=counted, seen=seen, epoch=epoch)
        self._restarted, self._shut = False, self._health.most is not None

    def _report(self, failed: ScrapeFailed, pool: Pool) -> None:
        """Once, not five times a second."""
        if str(failed) != self._trouble:
            self._trouble = str(failed)
            log.warning("scrape_failed", pool=pool.name, backend=self._name, reason=str(failed))

    def _recovered(self) -> None:
        if self._trouble:
            self._trouble = ""
            log.info("scrape_works_again", pool=self._moment().pool.name, backend=self._name)


def _bounded(given: TierGate, most: int | None) -> TierGate:
    """The gate of a backend that may carry so many leases for its health."""
    if most is None or given.limit < most:
        return given
    return TierGate(most, min(given.fallback, most), "down")
