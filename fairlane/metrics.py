"""What a pool looks like in Prometheus: made from one reading of Redis, so that any process can show it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from fairlane.model import BackendView, Overview

Family = GaugeMetricFamily | CounterMetricFamily


@dataclass(frozen=True, slots=True)
class PoolReading:
    """One pool at one moment. `now_ms` is the time by which its oldest jobs have waited."""

    name: str
    overview: Overview
    gamma: float
    now_ms: int


class PoolCollector(Collector):
    """Shows the last reading of each pool; for a registry."""

    def __init__(self) -> None:
        self._readings: dict[str, PoolReading] = {}

    def show(self, reading: PoolReading) -> None:
        self._readings[reading.name] = reading

    def collect(self) -> Iterator[Family]:
        return iter(pool_families(self._readings.values()))


def pool_families(readings: Iterable[PoolReading]) -> list[Family]:
    """Contract.md's metrics of pools, tiers and backends."""
    tier, backend = ["pool", "tier"], ["pool", "backend"]
    depth = GaugeMetricFamily("fairlane_queue_depth", "Queued jobs.", labels=tier)
    oldest = GaugeMetricFamily("fairlane_oldest_waiting_seconds", "How long the oldest has waited.", labels=tier)
    gamma = GaugeMetricFamily("fairlane_gamma", "The boost's γ, per second.", labels=["pool"])
    decisions = CounterMetricFamily(
        "fairlane_gate_decisions", "What the gates said.", labels=[*backend, "tier", "reason"]
    )
    gauges = {
        name: GaugeMetricFamily(f"fairlane_backend_{name}", text, labels=backend) for name, text in _BACKEND.items()
    }
    for reading in readings:
        gamma.add_metric([reading.name], reading.gamma)
        for view in reading.overview.tiers:
            depth.add_metric([reading.name, view.tier], view.depth)
            waited_ms = 0 if view.oldest_ms is None else max(0, reading.now_ms - view.oldest_ms)
            oldest.add_metric([reading.name, view.tier], waited_ms / 1000)
        for view in reading.overview.backends:
            for name, value in _numbers(view):
                gauges[name].add_metric([reading.name, view.name], value)
            for decision, count in view.decisions.items():
                decisions.add_metric([reading.name, view.name, *decision.split(":")], count)
    return [depth, oldest, gamma, decisions, *gauges.values()]


_BACKEND = {
    "load": "Leases as a share of the capacity.",
    "capacity": "How many jobs it is known to run at once.",
    "inflight": "Leases.",
    "waiting": "Requests in the backend's own queue.",
    "kv_ratio": "The share of its KV cache in use.",
    "token_seconds": "Recent time per output token.",
}

_SEEN = (("waiting", "waiting", 1.0), ("kv_ratio", "kv", 1.0), ("token_seconds", "token_ms", 0.001))


def _numbers(view: BackendView) -> Iterator[tuple[str, float]]:
    """The gauges of one backend; what it does not show is left out, never 0."""
    seen = cast("Mapping[str, Any]", json.loads(view.seen))
    learned: Mapping[str, Any] = seen.get("capacity", {})
    capacity: float | None = seen.get("slots") or learned.get("k")
    yield "inflight", view.counts.live
    if capacity:
        yield "capacity", capacity
        yield "load", view.counts.live / capacity
    for name, field, scale in (
        ("waiting", "waiting", 1.0),
        ("kv_ratio", "kv", 1.0),
        ("token_seconds", "token_ms", 0.001),
    ):
        if seen.get(field) is not None:
            yield name, scale * seen[field]
