"""VTC: the tenant that was served the least is next (Y. Sheng et al., "Fairness in Serving LLMs", OSDI 2024).

A counter for each tenant: +1 for each token of a prompt, when its request is sent; +2 for each token of an answer, when
it is made. That is the algorithm of the paper (charged token by token), not its variants that predict the length of
an answer and charge it in advance. A tenant that comes to wait with nobody of its own in the line is lifted: to the
lowest counter of those that wait, or, if nobody does, to that of the tenant that left the line last. Nobody saves up
for later by having been away.

The paper's VTC stands in the engine and chooses at each step. Here it chooses when a backend has a place, and reads
the counters at that moment, exactly.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from dispatcher.simulator.fair.central import Central
from dispatcher.simulator.request import Request

PROMPT_TOKEN: Final = 1
ANSWER_TOKEN: Final = 2


class Vtc(Central):
    """All tenants weigh the same."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}  # the counters
        self._lines: dict[str, deque[Request]] = {}  # of those tenants that wait
        self._charged: dict[Request, int] = {}  # tokens of the answers under way that are in a counter
        self._left_last = ""

    def _enter(self, request: Request) -> None:
        tenant = request.tenant
        if tenant not in self._lines:
            self._charge_all()
            lowest = min((self._served[one] for one in self._lines), default=self._served.get(self._left_last, 0))
            self._served[tenant] = max(self._served.get(tenant, 0), lowest)
            self._lines[tenant] = deque()
        self._lines[tenant].append(request)

    def _first(self) -> Request | None:
        if not self._lines:
            return None
        self._charge_all()
        return self._lines[min(self._lines, key=lambda tenant: self._served[tenant])][0]

    def _leave(self, request: Request) -> None:
        line = self._lines[request.tenant]
        line.popleft()
        if not line:
            del self._lines[request.tenant]
            self._left_last = request.tenant
        self._served[request.tenant] += PROMPT_TOKEN * request.prompt
        self._charged[request] = 0

    def _answered(self, request: Request) -> None:
        self._charge(request, request.made)
        del self._charged[request]

    def _charge_all(self) -> None:
        for backend in self._world.backends:
            for request, made in backend.made():
                self._charge(request, made)

    def _charge(self, request: Request, made: int) -> None:
        self._served[request.tenant] += ANSWER_TOKEN * (made - self._charged[request])
        self._charged[request] = made
