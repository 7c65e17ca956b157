"""The metrics of every process, each named once; and those of pools and webhooks, made from one reading of Redis."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from fairlane.standing import BackendView, Overview
from fairlane.webhooks.delivery import Counts

Family = GaugeMetricFamily | CounterMetricFamily
Row = tuple[str, tuple[str, ...], float]  # a metric's name, its labels after the pool, its value

_WAITS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_SERVICES: Final = (0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600)
_OFF: Final = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_ERRORS: Final = (*(-s for s in reversed(_OFF)), 0, *_OFF)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `where`: of all pools or webhooks, read from Redis by any front door; or what one process has counted
    itself."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    where: Literal["pools", "webhooks", "front door", "dispatcher"]
    labels: tuple[str, ...]
    text: str
    buckets: tuple[float, ...] = ()


_POOL: Final = ("pool",)
_TIER: Final = ("pool", "tier")
_BACKEND: Final = ("pool", "backend")
_TENANT: Final = ("pool", "tenant")

METRICS: Final = (
    Metric("fairlane_queue_depth", "gauge", "pools", _TIER, "Queued jobs."),
    Metric("fairlane_oldest_waiting_seconds", "gauge", "pools", _TIER, "How long the oldest has waited."),
    Metric("fairlane_gate_decisions_total", "counter", "pools", (*_BACKEND, "tier", "reason"), "What the gates said."),
    Metric("fairlane_backend_load", "gauge", "pools", _BACKEND, "Leases as a share of the capacity."),
    Metric("fairlane_backend_capacity", "gauge", "pools", _BACKEND, "How many jobs it is known to run at once."),
    Metric("fairlane_backend_inflight", "gauge", "pools", _BACKEND, "Leases."),
    Metric("fairlane_backend_waiting", "gauge", "pools", _BACKEND, "Requests in the backend's own queue."),
    Metric("fairlane_backend_kv_ratio", "gauge", "pools", _BACKEND, "The share of its KV cache in use."),
    Metric("fairlane_backend_token_seconds", "gauge", "pools", _BACKEND, "Recent time per output token."),
    Metric("fairlane_backend_up", "gauge", "pools", _BACKEND, "1 while it is neither down nor draining."),
    Metric("fairlane_backend_ejected", "gauge", "pools", _BACKEND, "1 while it is left alone for its errors."),
    Metric("fairlane_backend_faults_total", "counter", "pools", _BACKEND, "Attempts that failed by its own fault."),
    Metric("fairlane_gamma", "gauge", "pools", _POOL, "The boost's γ in force, per second."),
    Metric("fairlane_pool_desired_replicas", "gauge", "pools", _POOL, "How many backends the pool should have."),
    Metric("fairlane_pool_freeness", "gauge", "pools", _POOL, "Free slots per job it runs, mean of the backends."),
    Metric("fairlane_pool_utilization_ratio", "gauge", "pools", _POOL, "Leases over capacity, over the last minute."),
    Metric("fairlane_fairness_jain", "gauge", "pools", _POOL, "Jain's index of what waiting tenants got."),
    Metric("fairlane_fairness_gap", "gauge", "pools", _POOL, "The largest service gap between waiting tenants."),
    Metric("fairlane_tenant_jobs_per_second", "gauge", "pools", _TENANT, "Jobs that ended in the last minute."),
    Metric("fairlane_webhooks_waiting", "gauge", "webhooks", ("state",), "Deliveries that are due, or pending at all."),
    Metric("fairlane_webhooks_total", "counter", "webhooks", ("outcome",), "Deliveries that ended, and retries."),
    Metric("fairlane_wait_seconds", "histogram", "dispatcher", _TIER, "From submit to lease.", _WAITS),
    Metric("fairlane_service_seconds", "histogram", "dispatcher", _TIER, "From lease to outcome.", _SERVICES),
    Metric("fairlane_first_event_seconds", "histogram", "dispatcher", _TIER, "From lease to first event.", _SERVICES),
    Metric("fairlane_attempts_total", "counter", "dispatcher", (*_TIER, "state"), "Attempts that ended."),
    Metric(
        "fairlane_estimate_error_seconds", "histogram", "front door", _TIER, "Wait less what was estimated.", _ERRORS
    ),
)  # fmt: skip
OTHER: Final = "other"  # stands for all tenants that have no series of their own
NAMED: Final[Mapping[str, Metric]] = {metric.name: metric for metric in METRICS}


def histogram(name: str, registry: CollectorRegistry) -> Histogram:
    metric = NAMED[name]
    return Histogram(metric.name, metric.text, metric.labels, buckets=metric.buckets, registry=registry)


def counter(name: str, registry: CollectorRegistry) -> Counter:
    metric = NAMED[name]
    return Counter(metric.name, metric.text, metric.labels, registry=registry)


@dataclass(frozen=True, slots=True)
class PoolReading:
    """One pool at one moment. `gamma` is the pinned one, None if the thermostat sets it; `now_ms` is the time by which
    its oldest jobs have waited."""

    name: str
    overview: Overview
    gamma: float | None
    now_ms: int


class PoolCollector(Collector):
    """Shows the last reading of each pool, and of webhooks if there is one; for a registry."""

    def __init__(self, webhooks: Counts | None = None) -> None:
        self._readings: dict[str, PoolReading] = {}
        self._webhooks = webhooks

    def show(self, reading: PoolReading) -> None:
        self._readings[reading.name] = reading

    def collect(self) -> Iterator[Family]:
        yield from pool_families(self._readings.values())
        if self._webhooks:
            yield from webhook_families(self._webhooks)


def pool_families(readings: Iterable[PoolReading]) -> list[Family]:
    """The metrics of pools, tiers, backends and tenants. What is not known is left out, never 0."""
    families = {metric.name: _family(metric) for metric in METRICS if metric.where == "pools"}
    for reading in readings:
        for name, labels, value in _rows(reading):
            families[name].add_metric([reading.name, *labels], value)
    return list(families.values())


def webhook_families(counts: Counts) -> list[Family]:
    """The metrics of the deliveries of all tenants."""
    waiting, ended = (_family(metric) for metric in METRICS if metric.where == "webhooks")
    for state, count in (("due", counts.due), ("pending", counts.pending)):
        waiting.add_metric([state], count)
    for outcome, count in (("delivered", counts.delivered), ("failed", counts.failed), ("retried", counts.retried)):
        ended.add_metric([outcome], count)
    return [waiting, ended]


def _family(metric: Metric) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.name, metric.text, labels=metric.labels)


def _rows(reading: PoolReading) -> Iterator[Row]:
    for view in reading.overview.tiers:
        waited_ms = 0 if view.oldest_ms is None else max(0, reading.now_ms - view.oldest_ms)
        yield "fairlane_queue_depth", (view.tier,), view.depth
        yield "fairlane_oldest_waiting_seconds", (view.tier,), waited_ms / 1000
    for backend in reading.overview.backends:
        yield from _backend_rows(backend)
    yield from _steer_rows(reading)


_SEEN: Final = (("waiting", "waiting", 1.0), ("kv_ratio", "kv", 1.0), ("token_seconds", "token_ms", 0.001))


def _backend_rows(view: BackendView) -> Iterator[Row]:
    labels = (view.name,)
    seen = cast("Mapping[str, Any]", json.loads(view.seen))
    if capacity := capacity_of(view):
        yield "fairlane_backend_capacity", labels, capacity
        yield "fairlane_backend_load", labels, view.counts.live / capacity
    for name, field, scale in _SEEN:
        if view.status != "down" and seen.get(field) is not None:  # what it said before it went down is not so now
            yield f"fairlane_backend_{name}", labels, scale * seen[field]
    yield "fairlane_backend_inflight", labels, view.counts.live
    yield "fairlane_backend_up", labels, view.status == "up"
    yield "fairlane_backend_ejected", labels, seen.get("health", {}).get("until_ms", 0) > 0
    yield "fairlane_backend_faults_total", labels, view.faults
    for decision, count in view.decisions.items():
        yield "fairlane_gate_decisions_total", (view.name, *decision.split(":")), count


_STEER: Final = {
    "replicas": "fairlane_pool_desired_replicas",
    "freeness": "fairlane_pool_freeness",
    "rho": "fairlane_pool_utilization_ratio",
    "jain": "fairlane_fairness_jain",
    "gap": "fairlane_fairness_gap",
}


def _steer_rows(reading: PoolReading) -> Iterator[Row]:
    """What the pool's observer found out every few seconds; nothing before it did for the first time."""
    steer = cast("Mapping[str, Any]", json.loads(reading.overview.steer))
    gamma = steer.get("gamma") if reading.gamma is None else reading.gamma
    if gamma is not None:
        yield "fairlane_gamma", (), gamma
    for field, name in _STEER.items():
        if steer.get(field) is not None:
            yield name, (), steer[field]
    for tenant, per_s in steer.get("tenants", ()):
        yield "fairlane_tenant_jobs_per_second", (tenant,), per_s


def capacity_of(view: BackendView) -> int | None:
    """How many jobs a backend is known to run at once: given, or learned; None if neither.

    What it says may be another version's.
    """
    seen = _object(json.loads(view.seen or "{}"))
    capacity = seen.get("slots") or _object(seen.get("capacity")).get("k")
    return capacity if isinstance(capacity, int) and capacity > 0 else None


def _object(found: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}
