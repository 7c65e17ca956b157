"""Highest response ratio next: short work first, but whoever has waited for long in proportion to its work, sooner."""

from __future__ import annotations

from dispatcher.simulator.fair.central import Central
from dispatcher.simulator.orders.shortest import whole_ms
from dispatcher.simulator.request import Request


class HighestResponseRatio(Central):
    """(wait + work) ÷ work is the largest (P. Brinch Hansen, 1971); of equal ones the first that came.

    The idealised kind: the work is known, with the length of the answer. Its unit makes no difference to the order.
    """

    def __init__(self) -> None:
        self._line: dict[Request, float] = {}  # in the order of arrival, with the work in ms

    def _enter(self, request: Request) -> None:
        self._line[request] = whole_ms(request)

    def _first(self) -> Request | None:
        now_ms = self._world.clock.now
        return max(self._line, key=lambda one: (now_ms - one.arrived_ms) / self._line[one], default=None)

    def _leave(self, request: Request) -> None:
        del self._line[request]
