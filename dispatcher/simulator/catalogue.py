"""Every way to run backends that the simulator knows, by name: clusters, fair schedulers, engine orders, and ours.

`engine-<order>` is an order within the engines, behind a balancer that sends each request to the least loaded backend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from dispatcher.backends.sequences import Order
from dispatcher.simulator.clusters import CLUSTERS
from dispatcher.simulator.clusters.arrival import AtArrival, least_loaded
from dispatcher.simulator.fair import FAIR
from dispatcher.simulator.orders import ORDERS
from dispatcher.simulator.ours import OURS, Variant
from dispatcher.simulator.production import Production
from dispatcher.simulator.request import Request
from dispatcher.simulator.ways import Way
from fairlane.queue.connection import Client


class ByTier(AtArrival):
    """To the least loaded, with the tier's place as the request's priority: what a caller of vLLM can ask for."""

    def arrive(self, request: Request) -> None:
        request.priority = self._world.tiers.index(request.tier)
        super().arrive(request)


def _engine(order: Callable[[], Order]) -> Way:
    return Way(lambda: ByTier(least_loaded), order)


WITHOUT_STORE: Final[Mapping[str, Way]] = {
    **FAIR,
    **CLUSTERS,
    **{f"engine-{name}": _engine(order) for name, order in ORDERS.items()},
}
NAMES: Final = (*WITHOUT_STORE, *OURS)


def ways(client: Client, seed: int = 0, scrape_ms: int | None = None) -> Mapping[str, Way]:
    """All of NAMES. Ours run on that client's store, which must be empty before each run.

    `seed` is that of their ids; `scrape_ms`: how often they read a backend's metrics, None as in production.
    """

    def ours(variant: Variant) -> Way:
        setting = replace(variant.setting, scrape_ms=scrape_ms) if scrape_ms else variant.setting
        return Way(lambda: Production(client, setting, seed), variant.order)

    return {**WITHOUT_STORE, **{name: ours(variant) for name, variant in OURS.items()}}
