"""One run: requests arrive, a scheduler sends them to modelled backends, and all that happens is told to it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from dispatcher.backends.sequences import Order
from dispatcher.simulator.backend import Backend, Use
from dispatcher.simulator.clock import Clock
from dispatcher.simulator.profile import Profile
from dispatcher.simulator.request import Arrival, Request
from fairlane.model import DEFAULT_TIERS

BREATHER: Final = 100  # moments of virtual time


class Scheduler(Protocol):
    """Decides which request goes to which backend, and when. It is told of each event; `act` follows."""

    def begin(self, world: World) -> None:
        """Before the first arrival. It may plan acts of its own on the world's clock."""
        ...

    def arrive(self, request: Request) -> None: ...

    def ended(self, request: Request) -> None:
        """Its answer is complete."""
        ...

    async def act(self) -> None:
        """When all that is due at one moment has happened."""
        ...


class World:
    """What a scheduler sees, exactly and at once, and may do. `tiers`: the highest first."""

    def __init__(
        self, clock: Clock, backends: Sequence[Backend], tiers: Sequence[str], scheduler: Scheduler, requests: int
    ) -> None:
        self.clock = clock
        self.backends = backends
        self.tiers = tuple(tiers)
        self.left = requests  # those that are not answered
        self._scheduler = scheduler

    def send(self, request: Request, backend: Backend) -> None:
        """Hands the request to that backend, now."""
        request.sent_ms, request.backend = self.clock.now, backend.name
        backend.send(request, self._answered)

    def _answered(self, request: Request) -> None:
        self.left -= 1
        self._scheduler.ended(request)


@dataclass(frozen=True, slots=True)
class Run:
    """What came of it: the requests in the order of their arrival, what each backend did, and when the run ended."""

    requests: Sequence[Request]
    backends: Sequence[Use]
    end_ms: float


async def run(
    arrivals: Sequence[Arrival],
    scheduler: Scheduler,
    profile: Profile,
    *,
    backends: int = 1,
    order: Callable[[], Order] = Order,
    tiers: Sequence[str] = DEFAULT_TIERS,
    until_ms: float = math.inf,
) -> Run:
    """Runs until every request is answered, or until `until_ms`. `order` makes each engine's own.

    An answer is complete, for the caller, when it is in the engine; the overhead of a request is on its way in.
    """
    clock = Clock()
    made = [Backend(f"b{n + 1}", clock, profile, order()) for n in range(backends)]
    requests = [
        Request(one.prompt, one.answer, arrived_ms=one.at_ms, number=n, tenant=one.tenant, tier=one.tier)
        for n, one in enumerate(sorted(arrivals, key=lambda one: one.at_ms))
    ]
    world = World(clock, made, tiers, scheduler, len(requests))
    coming = iter(requests)

    def plan_next() -> None:
        """One arrival after the other: a heap of all of them would be slow."""
        if request := next(coming, None):
            clock.at(request.arrived_ms, lambda: arrive(request))

    def arrive(request: Request) -> None:
        plan_next()
        scheduler.arrive(request)

    scheduler.begin(world)
    plan_next()
    await scheduler.act()
    moments = 0
    while world.left and (next_ms := clock.next_ms) <= until_ms:
        if next_ms == math.inf:
            raise RuntimeError(f"The scheduler has lost {world.left} request(s): nothing is left to happen.")
        clock.run(next_ms)
        await scheduler.act()
        moments += 1
        if moments % BREATHER == 0:
            await asyncio.sleep(0)  # nothing else in a run waits for anything: here Ctrl-C gets through
    return Run(requests, [backend.use for backend in made], min(clock.now, until_ms))
