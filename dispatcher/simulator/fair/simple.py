"""Lines that look at nothing but who came when, from whom, or in which tier."""

from __future__ import annotations

from collections import deque

from dispatcher.simulator.fair.central import Central
from dispatcher.simulator.request import Request
from dispatcher.simulator.world import World


class FirstCome(Central):
    """First come, first served."""

    def __init__(self) -> None:
        self._line: deque[Request] = deque()

    def _enter(self, request: Request) -> None:
        self._line.append(request)

    def _first(self) -> Request | None:
        return self._line[0] if self._line else None

    def _leave(self, request: Request) -> None:
        self._line.popleft()


class RoundRobin(Central):
    """One request of each tenant in turn. A tenant whose line was empty comes after those that wait already."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Request]] = {}  # of those that wait, in the order of their turns

    def _enter(self, request: Request) -> None:
        self._lines.setdefault(request.tenant, deque()).append(request)

    def _first(self) -> Request | None:
        return next(iter(self._lines.values()))[0] if self._lines else None

    def _leave(self, request: Request) -> None:
        line = self._lines.pop(request.tenant)
        line.popleft()
        if line:
            self._lines[request.tenant] = line


class StrictPriority(Central):
    """The highest tier that has somebody, and in it first come, first served. Lower ones may wait for ever."""

    def begin(self, world: World) -> None:
        super().begin(world)
        self._lines: dict[str, deque[Request]] = {tier: deque() for tier in world.tiers}

    def _enter(self, request: Request) -> None:
        self._lines[request.tier].append(request)

    def _first(self) -> Request | None:
        return next((line[0] for line in self._lines.values() if line), None)

    def _leave(self, request: Request) -> None:
        self._lines[request.tier].popleft()
