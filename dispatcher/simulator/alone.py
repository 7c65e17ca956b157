"""What one backend can do: how long a request takes on it by itself, and how many it gets through in a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Final

from dispatcher.backends.sequences import Sequence as InEngine
from dispatcher.backends.timing import Engine
from dispatcher.simulator.fair.direct import Direct
from dispatcher.simulator.profile import Profile
from dispatcher.simulator.request import Arrival
from dispatcher.simulator.world import run

DRAINED: Final = (1000, 3000)  # requests, at the least and at the most: with few, the last long answer counts too much
MOST_STEPS: Final = 1_000_000


def alone_ms(profile: Profile, prompt: int, answer: int) -> tuple[float, float]:
    """To the first token and to the end, on a backend without any other request: no number of them is faster."""
    engine = Engine(profile.speed)
    engine.add(InEngine(prompt, answer))
    now = first = profile.overhead_ms
    while not engine.idle:
        stride = engine.begin(MOST_STEPS)
        if engine.end(stride.steps).first:
            first = now + stride.ms(1)
        now += stride.ms(stride.steps)
    return first, now


async def capacity_per_s(arrivals: Sequence[Arrival], profile: Profile) -> float:
    """Requests a second that one backend gets through if they are all there at once, first come, first served."""
    least, most = DRAINED
    drained = islice(cycle(arrivals), min(max(len(arrivals), least), most))
    done = await run([replace(one, at_ms=0.0) for one in drained], Direct(), profile)
    return 1000 * len(done.requests) / done.end_ms
