"""The yardstick: an ideal scheduler in this process, in front of one backend: `python -m benchmarks.ideal URL`.

No Redis, no HTTP of ours, no processes, nothing to learn: fair round robin among the tenants, and a fixed number of
requests in flight, straight to the backend. What a queue in between costs is what is beyond this.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from benchmarks import flood
from benchmarks.flood import Body, Send, Shape, direct

IN_FLIGHT: Final = 11  # 8 slots, and θ = 3 that are there when one becomes free


class RoundRobin:
    """Turns among tenants, `places` at a time. A tenant's own requests go first in, first out."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}  # of those who wait, in the order of their turns

    async def enter(self, tenant: str) -> None:
        """Returns when it is this request's turn. Call `leave` when it is done."""
        turn = asyncio.get_running_loop().create_future()
        self._lines.setdefault(tenant, deque()).append(turn)
        self._go_on()
        await turn

    def leave(self) -> None:
        self._free += 1
        self._go_on()

    def _go_on(self) -> None:
        while self._free and self._lines:
            tenant = next(iter(self._lines))
            line = self._lines.pop(tenant)
            line.popleft().set_result(None)
            if line:
                self._lines[tenant] = line  # behind the others
            self._free -= 1


@asynccontextmanager
async def ideal(url: str, in_flight: int = IN_FLIGHT) -> AsyncIterator[Send]:
    """Sends through an ideal scheduler, as `flood.direct` does without one."""
    turns = RoundRobin(in_flight)
    async with direct(url) as straight:

        async def send(tenant: str, body: Body) -> object:
            await turns.enter(tenant)
            try:
                return await straight(tenant, body)
            finally:
                turns.leave()

        yield send


async def rounds(url: str, shape: Shape, count: int, in_flight: int) -> None:
    for n in range(count):
        async with ideal(url, in_flight) as send:
            print(f"round {n + 1}: {await flood.run(send, shape, url)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="the backend, for example http://127.0.0.1:8100")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT)
    given = parser.parse_args()
    asyncio.run(rounds(given.url, Shape(given.model, given.jobs, given.tokens), given.rounds, given.in_flight))


if __name__ == "__main__":
    main()
