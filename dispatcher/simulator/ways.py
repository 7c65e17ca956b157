"""A way to run backends: who decides where a request goes, and the order within each engine that belongs to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dispatcher.backends.sequences import Order
from dispatcher.simulator.world import Scheduler


@dataclass(frozen=True, slots=True)
class Way:
    """Both are made anew for each run: they keep state. `order` is called once for each engine."""

    scheduler: Callable[[], Scheduler]
    order: Callable[[], Order]
