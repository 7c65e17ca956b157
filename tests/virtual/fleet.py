"""Dispatchers and their observer in virtual time, with what Redis does for them. The decisions are dispatcher.policy.

What could deceive the learner of capacity is there: the page is sampled some ms before our own counters are read; a
slot that is freed is filled only after an answer, a settle, a pop and a request have crossed the network, each
dispatcher at its own speed; the pops of all of them are compared with the limit in one place.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from dispatcher.backends.sequences import Sequence
from dispatcher.policy import capacity, gate, headroom
from dispatcher.policy.capacity import Capacity, Scrape
from dispatcher.policy.gate import Load
from dispatcher.simulator.clock import Act, Clock
from tests.virtual.server import Page, Server

SCRAPE_MS, SOON_MS = 200, 100
STALE_MS = 3 * SCRAPE_MS
POPS_MOST = 64  # of one call
NOTED_EVERY_MS = 100  # lua/lib/gate.lua counts one refusal in that time
TIERS = 4


@dataclass(slots=True)
class Store:
    """What Redis holds of the backend. The lines never run dry: a pop is refused only by the gate."""

    clock: Clock
    limit: int = 1
    fallback: int = 1
    fresh_at: float = -STALE_MS - 1.0
    down: bool = False
    live: int = 0
    done: int = 0
    denied: int = 0
    refused: bool = False
    pops: list[tuple[float, int, int]] = field(default_factory=lambda: list[tuple[float, int, int]]())
    _noted_at: float = -NOTED_EVERY_MS

    def pop(self, most: int) -> int:
        """How many jobs the call gets. Each call that got some is kept: when, leases then, the limit then."""
        stale = self.clock.now - self.fresh_at > STALE_MS
        limit = 0 if self.down else self.fallback if stale else self.limit
        got = min(most, max(0, limit - self.live))
        self.live += got
        if got:
            self.pops.append((self.clock.now, self.live, limit))
        if got < most:
            self._refuse()
        return got

    def _refuse(self) -> None:
        self.refused = True
        if self.clock.now - self._noted_at >= NOTED_EVERY_MS:
            self._noted_at = self.clock.now
            self.denied += 1

    def settle(self) -> None:
        self.live -= 1
        self.done += 1

    def release(self) -> None:
        """The call failed: its job goes back to its line, and the backend is shut until the next good scrape."""
        self.live -= 1
        self.down = True


class Dispatcher:
    """Acquires in batches, one call at a time; has its own way to Redis and to the backend."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.redis_ms = fleet.dice.uniform(0.1, 0.5)  # one way
        self._backend_ms = fleet.dice.uniform(0.2, 1.0)
        self._calls = self._again = False

    def wake(self) -> None:
        if self._calls:
            self._again = True
            return
        self._calls, self._again = True, False
        self._after(self.redis_ms, self._pop)

    def _pop(self) -> None:
        got = self._fleet.store.pop(POPS_MOST)
        self._after(self.redis_ms, lambda: self._popped(got))

    def _popped(self, got: int) -> None:
        self._calls = False
        for _ in range(got):
            self._after(self._backend_ms, self._send)
        if got == POPS_MOST or self._again:
            self.wake()

    def _send(self) -> None:
        self._fleet.server.send(self._fleet.next_job(), self._answered)

    def _answered(self, finished: bool) -> None:
        self._fleet.failed += not finished
        store = self._fleet.store
        self._after(
            self._backend_ms + self.redis_ms, lambda: self._end_lease(store.settle if finished else store.release)
        )

    def _end_lease(self, act: Act) -> None:
        act()
        self._fleet.spread_the_word()
        self._after(self.redis_ms, self.wake)

    def _after(self, ms: float, act: Act) -> None:
        self._fleet.clock.after(ms * self._fleet.dice.uniform(0.8, 1.6), act)


class Observer:
    """Scrapes, learns, writes the limits. It can be `dead`, and be shown a page that is `frozen`."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.known = Capacity()
        self.scrapes: list[Scrape] = []  # those that taught something
        self.learned: list[Capacity] = []  # … and what
        self.holds_page = False  # sampled and not yet judged
        self.dead = False
        self.frozen: Page | None = None
        fleet.clock.after(fleet.dice.uniform(0, SCRAPE_MS), self._scrape)

    def _scrape(self) -> None:
        began, dice = self._fleet.clock.now, self._fleet.dice
        self._fleet.clock.after(dice.uniform(0.5, 3), lambda: self._sample(began))

    def _sample(self, began: float) -> None:
        page, dice = self.frozen or self._fleet.server.page(), self._fleet.dice
        self.holds_page = True
        self._fleet.clock.after(dice.uniform(0.5, 5), lambda: self._read(began, page))

    def _read(self, began: float, page: Page | None) -> None:
        self.holds_page = False
        early = page is not None and not self.dead and self._learn(page)
        next_ms = began + (SOON_MS if early else SCRAPE_MS)
        self._fleet.clock.after(next_ms - self._fleet.clock.now, self._scrape)

    def _learn(self, page: Page) -> bool:
        """Whether the next scrape should come early."""
        store, now_ms = self._fleet.store, int(self._fleet.clock.now)
        scrape = Scrape(
            now_ms, page.running, page.waiting, store.live, store.done, store.denied, page.progress, page.started_at
        )
        early = capacity.soon(self.known, scrape)
        self.known = capacity.learn(self.known, scrape, gate.DEFAULT.of(0))
        store.down = False
        if self.known.fresh_at_ms == now_ms:  # else the page is frozen
            self._write(scrape, page)
        return early

    def _write(self, scrape: Scrape, page: Page) -> None:
        store, tier = self._fleet.store, self._fleet.tier
        rooms = headroom.rooms([each == tier for each in range(TIERS)])
        found = gate.gates(self.known, Load(page.waiting, page.kv, None, page.running), rooms, slow=False)[tier]
        store.limit, store.fallback, store.fresh_at = found.limit, found.fallback, self._fleet.clock.now
        store.done = store.denied = 0
        self.scrapes.append(scrape)
        self.learned.append(self.known)
        self._fleet.spread_the_word()


class Fleet:
    """Some dispatchers, one observer and one backend, for an endless backlog of one tier.

    `failed` counts the requests that were refused or reset.
    """

    def __init__(
        self,
        clock: Clock,
        server: Server,
        jobs: Callable[[random.Random], Sequence],
        seed: int,
        *,
        dispatchers: int = 1,
        tier: int = 0,
    ) -> None:
        self.clock, self.server, self.tier = clock, server, tier
        self.dice = random.Random(f"network {seed}")
        self.failed = 0
        self.store = Store(clock)
        self.observer = Observer(self)
        self._jobs, self._job_dice = jobs, random.Random(seed)
        self._dispatchers = [Dispatcher(self) for _ in range(dispatchers)]
        for dispatcher in self._dispatchers:
            dispatcher.wake()

    def next_job(self) -> Sequence:
        return self._jobs(self._job_dice)

    def spread_the_word(self) -> None:
        """By pub/sub, and only if a pop was refused since the last time."""
        if self.store.refused:
            self.store.refused = False
            for dispatcher in self._dispatchers:
                self.clock.after(dispatcher.redis_ms, dispatcher.wake)
