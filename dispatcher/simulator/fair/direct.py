"""Each request goes to a backend at once, and waits there: what an engine does without a queue in front of it."""

from __future__ import annotations

from dispatcher.simulator.request import Request
from dispatcher.simulator.world import World


class Direct:
    """To the backend that has the fewest requests at that moment, of several the first."""

    def begin(self, world: World) -> None:
        self._world = world

    def arrive(self, request: Request) -> None:
        self._world.send(request, min(self._world.backends, key=lambda backend: backend.load))

    def ended(self, request: Request) -> None:
        pass

    async def act(self) -> None:
        pass
