"""Schedulers that send a request on as it arrives, and leave it there: they differ in what they go by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from dispatcher.simulator.backend import Backend
from dispatcher.simulator.request import Request
from dispatcher.simulator.world import World

Choose = Callable[[Sequence[Backend]], Backend]


class AtArrival:
    """`choose` says which backend gets the next request. Tiers and tenants are all alike."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose

    def begin(self, world: World) -> None:
        self._world = world

    def arrive(self, request: Request) -> None:
        self._world.send(request, self._choose(self._world.backends))

    def ended(self, request: Request) -> None:
        pass

    async def act(self) -> None:
        pass


def round_robin() -> Choose:
    """One after the other."""
    turns = count()
    return lambda backends: backends[next(turns) % len(backends)]


def least_loaded(backends: Sequence[Backend]) -> Backend:
    """The one with the fewest requests, those that wait included; the first of several."""
    return min(backends, key=lambda backend: backend.load)


def least_memory(backends: Sequence[Backend]) -> Backend:
    """INFaaS as the paper of Llumnix has it for a baseline: the one with the least load, which is of its memory.

    INFaaS (Romero et al., ATC 2021) goes by the utilisation of a model's dominant resource. For LLMs that is the cache;
    Llumnix's authors let it count what waiting requests demand as well, so that queues show. They scale the cluster
    with it, too; here the number of backends is given.
    """
    return min(backends, key=lambda backend: (backend.kv_needed / backend.profile.speed.kv_tokens, backend.load))
