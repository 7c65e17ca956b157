"""Fair schedulers, and the unfair ones that they are measured by, with one line in front of all backends; by name.

They know everything at once and for nothing: what each backend holds at this moment, and what each request has made.
A dispatcher in front of real engines has metrics that are 200 ms old; that favours those here. `direct` has no line:
it is vLLM with nothing in front but a balancer, first come, first served in each engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dispatcher.backends.sequences import Order
from dispatcher.simulator.fair.direct import Direct
from dispatcher.simulator.fair.hrrn import HighestResponseRatio
from dispatcher.simulator.fair.simple import FirstCome, RoundRobin, StrictPriority
from dispatcher.simulator.fair.vtc import Vtc
from dispatcher.simulator.ways import Way

FAIR: Final[Mapping[str, Way]] = {
    "direct": Way(Direct, Order),
    "fcfs": Way(FirstCome, Order),
    "tenant-round-robin": Way(RoundRobin, Order),
    "vtc": Way(Vtc, Order),
    "hrrn": Way(HighestResponseRatio, Order),
    "strict-priority": Way(StrictPriority, Order),
}
