"""Live migration: a running request is moved to another backend with its cache, and hardly stops.

As Llumnix does it (OSDI 2024): a place is reserved at the destination; the cache, which only grows, is copied while
the request goes on; then it stops, the rest is copied, and it goes on at the destination. The move is given up if the
request ends or is preempted, or if there is no place.

Our model: the copy takes as long as what the request held at its start takes on the link. What was added meanwhile is
copied in the downtime, which does not depend on the length (recalled from the paper, not checked); the token of the
step that it leaves in is made anew. A backend gives away one request at a time, and gets one at a time. Copying slows
down neither.
The place is reserved against those whom the scheduler sends there, not within the engine: if it is gone when the
request comes, the request waits, and keeps its cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dispatcher.simulator.backend import Backend
from dispatcher.simulator.request import Request
from dispatcher.simulator.world import World


@dataclass(frozen=True, slots=True)
class Link:
    """Between backends: `tokens_per_ms` of cache are copied. A moved request makes no token for `downtime_ms`."""

    tokens_per_ms: float
    downtime_ms: float


# 64 Gbit/s, as between Llumnix's machines, and .5 MiB for a token of a model of 7 B parameters; 20 to 30 ms of downtime
LINK: Final = Link(64e9 / 8 / 2**19 / 1000, 25.0)


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    request: Request
    source: Backend
    destination: Backend
    preempted: int  # how often it had been when the move began


class Moves:
    """Those that are under way. `done` counts the requests that went over."""

    def __init__(self, world: World, link: Link = LINK) -> None:
        self.done = 0
        self._world = world
        self._link = link
        self._under_way: dict[Request, Move] = {}

    def gives(self, backend: Backend) -> bool:
        """Is one being moved away from it?"""
        return any(move.source is backend for move in self._under_way.values())

    def to(self, backend: Backend) -> Sequence[Request]:
        """For whom a place is reserved there."""
        return [move.request for move in self._under_way.values() if move.destination is backend]

    def begin(self, request: Request, source: Backend, destination: Backend) -> None:
        """The request runs on the source."""
        move = Move(request, source, destination, request.preempted)
        self._under_way[request] = move
        self._world.clock.after(request.held / self._link.tokens_per_ms, lambda: self._stop(move))

    def ended(self, request: Request) -> None:
        """It was answered: there is nothing left to move."""
        self._under_way.pop(request, None)

    def _stop(self, move: Move) -> None:
        """The cache is copied: the request leaves the source, unless something came between."""
        request = move.request
        if self._under_way.get(request) is not move:
            return
        if request.preempted > move.preempted or not move.destination.has_place(request):
            del self._under_way[request]
            return
        move.source.take(request)
        self._world.clock.after(self._link.downtime_ms, lambda: self._go_on(move))

    def _go_on(self, move: Move) -> None:
        del self._under_way[move.request]
        self.done += 1
        self._world.send(move.request, move.destination)
