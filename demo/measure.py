"""Sends a workload, each request at its time, and notes how long each took to be answered."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from demo.workload import Arrival

Send = Callable[[Arrival], Awaitable[object]]  # returns when answered, raises if it failed


@dataclass
class Measured:
    """Seconds to the answer by (tenant, tier), and what the whole took."""

    answers_s: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    whole_s: float = 0.0
    failed: int = 0

    def median_s(self, key: tuple[str, str]) -> float:
        return median(self.answers_s[key])

    def slowest_s(self, key: tuple[str, str]) -> float:
        return max(self.answers_s[key])

    @property
    def per_s(self) -> float:
        return sum(map(len, self.answers_s.values())) / self.whole_s


async def measure(send: Send, arrivals: Sequence[Arrival], progress: Callable[[Arrival], Any]) -> Measured:
    """`progress` is called with each request that was answered."""
    found = Measured()
    began = time.perf_counter()

    async def one(arrival: Arrival) -> None:
        await asyncio.sleep(max(0.0, began + arrival.at_s - time.perf_counter()))
        sent = time.perf_counter()
        try:
            await send(arrival)
        except Exception:  # noqa: BLE001 - whatever went wrong, it is one request that failed
            found.failed += 1
        else:
            found.answers_s[arrival.tenant, arrival.tier].append(time.perf_counter() - sent)
        progress(arrival)

    await asyncio.gather(*map(one, arrivals))
    found.whole_s = time.perf_counter() - began
    return found
