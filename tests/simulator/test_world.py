"""A run ends when all is answered, or when it shall, and a scheduler that loses requests is told."""

from __future__ import annotations

import asyncio
import math

import pytest

from dispatcher.backends.timing import Speed
from dispatcher.simulator.fair.direct import Direct
from dispatcher.simulator.profile import Profile
from dispatcher.simulator.request import Arrival, Request
from dispatcher.simulator.world import World, run

PROFILE = Profile("small", Speed(slots=2, step_ms=10.0, sequence_ms=0.0, prompt_token_ms=0.0), overhead_ms=3.0)


class Keeps(Direct):
    """Sends only every other request."""

    def arrive(self, request: Request) -> None:
        if request.number % 2:
            super().arrive(request)


async def test_a_request_takes_its_overhead_and_a_step_for_each_token() -> None:
    found = await run([Arrival(100.0, "ann", "default", 5, 4)], Direct(), PROFILE)
    (request,) = found.requests
    assert (request.sent_ms, request.first_ms, request.done_ms) == (100.0, 113.0, 143.0)
    assert found.end_ms == 143.0
    assert found.backends[0].busy_ms == 40.0


async def test_requests_are_in_the_order_of_their_arrival() -> None:
    late, early = Arrival(50.0, "ann", "default", 5, 1), Arrival(0.0, "bob", "default", 5, 1)
    found = await run([late, early], Direct(), PROFILE)
    assert [(one.number, one.tenant) for one in found.requests] == [(0, "bob"), (1, "ann")]


async def test_it_may_end_before_all_is_answered() -> None:
    found = await run([Arrival(0.0, "ann", "default", 5, 1), Arrival(5.0, "ann", "default", 5, 100)], Direct(), PROFILE,
                      until_ms=100.0)  # fmt: skip
    assert [math.isnan(one.done_ms) for one in found.requests] == [False, True]
    assert found.end_ms <= 100.0


async def test_nothing_to_do_is_done_at_once() -> None:
    assert (await run([], Direct(), PROFILE)).end_ms == 0


async def test_a_run_can_be_cancelled_though_it_waits_for_nothing() -> None:
    arrivals = [Arrival(0.0, "ann", "default", 5, 10_000_000)] * 3
    slow = Profile("one by one", Speed(slots=1, step_ms=0.001, sequence_ms=0.0, prompt_token_ms=0.0))

    class Looks(Direct):
        """Something is to happen at each moment."""

        def begin(self, world: World) -> None:
            super().begin(world)
            self.world = world
            self.look()

        def look(self) -> None:
            self.world.clock.after(0.001, self.look)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(run(arrivals, Looks(), slow), 0.1)


async def test_a_scheduler_that_loses_requests_is_told() -> None:
    with pytest.raises(RuntimeError, match="lost 1 request"):
        await run([Arrival(n * 1.0, "ann", "default", 5, 1) for n in range(2)], Keeps(), PROFILE)


async def test_what_is_taken_out_on_its_way_is_not_answered() -> None:
    class TakesBack(Direct):
        def begin(self, world: World) -> None:
            super().begin(world)
            self.world = world

        def arrive(self, request: Request) -> None:
            super().arrive(request)
            backend = self.world.backends[0]
            self.world.clock.after(1.0, lambda: backend.take(request))
            self.world.clock.after(50.0, lambda: self.world.send(request, backend))

    found = await run([Arrival(0.0, "ann", "default", 5, 1)], TakesBack(), PROFILE)
    assert found.requests[0].done_ms == 63.0
    assert found.requests[0].made == 1
