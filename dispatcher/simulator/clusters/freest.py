"""Llumnix's scheduler, with two priorities or many: requests go to the freest backend, and move when another is freer.

From the paper (OSDI 2024): dispatch by priority, then by arrival, to the backend with the highest freeness; from time
to time the backends that are not free enough are paired with those that are, the least free with the freest, and move
requests there: of the lowest priority, the shortest. In an engine, high priority is served first.

Our reading: a request moves only if the destination, with it, is still free enough not to give one away itself, and
only once it makes tokens. What is known of the backends is exact and of this moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from dispatcher.simulator.backend import Backend
from dispatcher.simulator.clusters.freeness import freeness
from dispatcher.simulator.clusters.moves import LINK, Link, Moves
from dispatcher.simulator.clusters.priorities import Priorities
from dispatcher.simulator.request import Request
from dispatcher.simulator.world import World

PAIR_EVERY_MS: Final = 50.0  # Llumnix's `--polling-interval`


class Freest:
    """`priorities` makes those of a world's tiers. It writes Request.priority, which the engines' order goes by."""

    moves: Moves

    def __init__(self, priorities: Callable[[Sequence[str]], Priorities], link: Link = LINK) -> None:
        self._priorities_of = priorities
        self._link = link
        self._came: list[Request] = []

    def begin(self, world: World) -> None:
        self._world = world
        self._priorities = self._priorities_of(world.tiers)
        self.moves = Moves(world, self._link)
        if len(world.backends) > 1:
            world.clock.after(PAIR_EVERY_MS, self._pair)

    def arrive(self, request: Request) -> None:
        request.priority = self._priorities.of[request.tier]
        self._came.append(request)

    def ended(self, request: Request) -> None:
        self.moves.ended(request)

    async def act(self) -> None:
        for request in sorted(self._came, key=lambda one: (one.priority, one.number)):
            self._world.send(request, max(self._world.backends, key=self._freeness))
        self._came.clear()

    def _freeness(self, backend: Backend) -> float:
        return freeness(backend, self._priorities.headroom, self.moves.to(backend))

    def _pair(self) -> None:
        """The least free with the freest, the next with the next, …"""
        below = self._priorities.migrate_below
        free = sorted(
            ((self._freeness(one), n, one) for n, one in enumerate(self._world.backends)), key=lambda one: one[:2]
        )
        sources = [one for f, _, one in free if f < below and not self.moves.gives(one)]
        destinations = [one for f, _, one in reversed(free) if f >= below and not self.moves.to(one)]
        for source, destination in zip(sources, destinations, strict=False):
            request = _first_to_go(source)
            if request and freeness(destination, self._priorities.headroom, [request]) >= below:
                self.moves.begin(request, source, destination)
        self._world.clock.after(PAIR_EVERY_MS, self._pair)


def _first_to_go(backend: Backend) -> Request | None:
    """Of the lowest priority, the one with the least in the cache."""
    running = cast("list[Request]", backend.engine.running)
    makers = [one for one in running if one.made and one.read >= one.to_read]
    return min(makers, key=lambda one: (-one.priority, one.held, one.number), default=None)
