"""Schedulers of a cluster as published: each request goes to a backend at its arrival; no queue stands before them.

Round robin and least-loaded are what most load balancers do; the others come from Llumnix (Sun et al., OSDI 2024) and
from its extension to many tiers (Vestrum, Raeesi, Rød: "Beyond Binary Priorities: Multi-Tier SLA Scheduling for Large
Language Model Serving", built in the simulator Vidur). Each module tells what is theirs and what is our reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dispatcher.backends.sequences import ByPriority, Order
from dispatcher.simulator.clusters.arrival import AtArrival, least_loaded, least_memory, round_robin
from dispatcher.simulator.clusters.freest import Freest
from dispatcher.simulator.clusters.priorities import many_tiers, two_priorities
from dispatcher.simulator.ways import Way

CLUSTERS: Final[Mapping[str, Way]] = {
    "round-robin": Way(lambda: AtArrival(round_robin()), Order),
    "least-loaded": Way(lambda: AtArrival(least_loaded), Order),
    "infaas": Way(lambda: AtArrival(least_memory), Order),
    "llumnix": Way(lambda: Freest(two_priorities), ByPriority),
    "multi-tier": Way(lambda: Freest(many_tiers), ByPriority),
}
