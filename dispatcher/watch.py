"""Watches one backend: scrapes it, learns its capacity, and writes what each tier may send there, and why not more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import httpx
import structlog

from dispatcher.backends.address import authorization
from dispatcher.backends.answer import CallFailed
from dispatcher.backends.scrape import Reading, ScrapeFailed, scrape, token_ms
from dispatcher.policy import capacity, gate
from dispatcher.policy.blind import slots_without_metrics
from dispatcher.policy.capacity import Capacity, Scrape
from dispatcher.policy.gate import Load
from fairlane.errors import FairlaneError, NotFound
from fairlane.model import BackendSpec, BackendView, TierGate
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool

SOON_S: Final = 0.1
IDLE_S: Final = 0.5  # less than three scrapes, so that a backend at rest does not become stale
NULL_SLOTS: Final = 10_000
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Rooms:
    """The tiers' rooms now, from the highest down, and Redis's time in ms."""

    shares: Sequence[float]
    now_ms: int


class Watch:
    """One backend's watcher. What it learned before, by whichever observer, is in `view.seen`."""

    def __init__(
        self,
        queue: Queue,
        pool: Pool,
        view: BackendView,
        spec: BackendSpec,
        client: httpx.AsyncClient,
        rooms: Callable[[], Rooms],
        interval_s: float,
    ) -> None:
        self._queue = queue
        self._pool = pool
        self._name = view.name
        self.spec = spec
        self._client = client
        self._rooms = rooms
        self._interval_s = interval_s
        self._known, self._slow = _remembered(view.seen)
        self._before: Reading | None = None
        self._trouble = ""

    async def run(self) -> None:
        """Until it is cancelled, or the backend is gone from the pool."""
        while True:
            began = asyncio.get_running_loop().time()
            pause_s = self._interval_s
            try:
                pause_s = await self._once()
            except NotFound:
                return
            except ScrapeFailed as failed:
                await self._failed(failed)
            except FairlaneError as error:
                log.warning("observe_failed", pool=self._pool.name, backend=self._name, error=error.code)
            took_s = asyncio.get_running_loop().time() - began
            await asyncio.sleep(max(0.0, pause_s - took_s))

    async def _once(self) -> float:
        """One scrape; returns the time from its start to the next one's, in s."""
        if self.spec.url.startswith("null:"):
            return await self._open_wide(self.spec.slots or NULL_SLOTS, {"family": "null"})
        try:
            reading = await scrape(self._client, self.spec.url, self.spec.family, headers=authorization(self.spec))
        except CallFailed as failed:  # we have no key for it
            raise ScrapeFailed("status", failed.detail) from failed
        except ScrapeFailed as failed:
            learned = self._learned
            slots = slots_without_metrics(failed.reason, failed.answered, slots=self.spec.slots, learned=learned)
            if slots is None:
                raise
            self._report(failed)
            return await self._open_wide(slots, {"family": None, "missing": [*failed.missing], "why": str(failed)})
        self._recovered()
        view = await self._queue.inspect.backend(self._pool, self._name)
        rooms = self._rooms()
        page = Scrape(
            now_ms=rooms.now_ms,
            running=reading.running,
            waiting=reading.waiting,
            live=view.counts.live,
            done=view.counts.done,
            denied=view.counts.denied,
            progress=reading.progress,
            started_at=reading.started_at,
        )
        fresh_at, early = self._known.fresh_at_ms, capacity.soon(self._known, page)
        self._known = capacity.learn(self._known, page, gate.theta(0))
        if self._known.fresh_at_ms != fresh_at:
            await self._write(reading, view, rooms)
        return SOON_S if early else self._interval_s if page.live or page.waiting else max(IDLE_S, self._interval_s)

    @property
    def _learned(self) -> int | None:
        """Its capacity, if it was ever read; 1 while that is still growing."""
        if self._known.fresh_at_ms == 0:
            return None
        return 1 if self._known.ramp else self._known.k

    async def _write(self, reading: Reading, view: BackendView, rooms: Rooms) -> None:
        per_token_ms = token_ms(self._before, reading)
        self._before = reading
        self._slow = gate.is_slow(self._slow, per_token_ms)
        load = Load(reading.waiting, reading.kv, per_token_ms)
        found = gate.gates(self._known, load, rooms.shares, slow=self._slow)
        seen = {
            "family": reading.family,
            "running": reading.running,
            "waiting": reading.waiting,
            "kv": reading.kv,
            "token_ms": per_token_ms,
            "slow": self._slow,
            "rooms": [round(share, 3) for share in rooms.shares],
            "missing": list(reading.missing),
            "capacity": asdict(self._known),
        }
        await self._observe(found, view, seen)

    async def _open_wide(self, slots: int, seen: dict[str, Any]) -> float:
        """For a backend that shows nothing to learn from: only what is in flight is bounded."""
        view = await self._queue.inspect.backend(self._pool, self._name)
        await self._observe([TierGate(slots, slots)] * len(self._pool.policy.tiers), view, seen | {"slots": slots})
        return self._interval_s

    async def _observe(self, gates: Sequence[TierGate], view: BackendView, seen: dict[str, Any]) -> None:
        by_tier = dict(zip(self._pool.policy.tiers, gates, strict=True))
        packed = json.dumps(seen, separators=(",", ":"))
        await self._queue.observe(self._pool, self._name, by_tier, counted=view.counts, seen=packed)

    async def _failed(self, failed: ScrapeFailed) -> None:
        """Its metrics grow stale by themselves. One that takes no connection is down; one that answers is not."""
        self._report(failed)
        if failed.reason == "timeout":
            return
        try:
            act = "down" if failed.reason == "unreachable" else "reopen"
            await self._queue.set_backend(self._pool, self._name, act)
        except FairlaneError as error:
            log.warning("observe_failed", pool=self._pool.name, backend=self._name, error=error.code)

    def _report(self, failed: ScrapeFailed) -> None:
        """Once, not five times a second."""
        if str(failed) != self._trouble:
            self._trouble = str(failed)
            log.warning("scrape_failed", pool=self._pool.name, backend=self._name, reason=str(failed))

    def _recovered(self) -> None:
        if self._trouble:
            self._trouble = ""
            log.info("scrape_works_again", pool=self._pool.name, backend=self._name)


def _remembered(seen: str) -> tuple[Capacity, bool]:
    """What an observer before us had learned; a new capacity if it left nothing, or something that we do not know."""
    try:
        fields = json.loads(seen)
        return Capacity(**fields["capacity"]), bool(fields["slow"])
    except (ValueError, KeyError, TypeError):
        return Capacity(), False
