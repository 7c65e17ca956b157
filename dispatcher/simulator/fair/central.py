"""One line in front of all backends: who is next, and when a backend has a place for it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dispatcher.simulator.request import Request
from dispatcher.simulator.world import World


class Central(ABC):
    """Whoever is first in the line goes to the backend with the fewest requests among those with a place for it.

    A place is a free slot, and room in the cache for its prompt beside all that the backend has: nobody waits there,
    but for the next step to begin. While there is none nobody goes, and nobody goes past the first.
    """

    _news = False  # somebody came, or a place may be free: nothing else can lead to a request being sent

    def begin(self, world: World) -> None:
        self._world = world

    def arrive(self, request: Request) -> None:
        self._news = True
        self._enter(request)

    def ended(self, request: Request) -> None:
        self._news = True
        self._answered(request)

    async def act(self) -> None:
        if self._news:
            self._news = False
            self._send()

    def _send(self) -> None:
        while request := self._first():
            able = [backend for backend in self._world.backends if backend.has_place(request)]
            if not able:
                return
            self._leave(request)
            self._world.send(request, min(able, key=lambda backend: backend.load))

    @abstractmethod
    def _enter(self, request: Request) -> None:
        """It comes to stand in the line."""

    @abstractmethod
    def _first(self) -> Request | None:
        """Whose turn it is; it stays in the line."""

    @abstractmethod
    def _leave(self, request: Request) -> None:
        """It was the first, and is sent."""

    def _answered(self, request: Request) -> None:  # noqa: B027 only those that count what was served want to know
        """Its answer is complete."""
