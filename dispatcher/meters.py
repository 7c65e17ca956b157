"""What one dispatcher process counts of its own work, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from fairlane import metrics


class Meters:
    """Times in seconds. A job waits from its submit (or its return to the line) to its lease, and is served until its
    attempt has ended."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._wait = metrics.histogram("fairlane_wait_seconds", registry)
        self._service = metrics.histogram("fairlane_service_seconds", registry)
        self._attempts = metrics.counter("fairlane_attempts_total", registry)
        self._first = metrics.histogram("fairlane_first_event_seconds", registry)
        self._waits: dict[tuple[str, str], Histogram] = {}
        self._ends: dict[tuple[str, str, str], tuple[Histogram, Counter]] = {}

    def began(self, pool: str, tier: str, waited_s: float) -> None:
        # `labels` looks its arguments up under a lock: too slow for each job
        if (pool, tier) not in self._waits:
            self._waits[pool, tier] = self._wait.labels(pool, tier)
        self._waits[pool, tier].observe(waited_s)

    def spoke(self, pool: str, tier: str, after_s: float) -> None:
        """A stream's first event came."""
        self._first.labels(pool, tier).observe(after_s)

    def ended(self, pool: str, tier: str, state: str, served_s: float) -> None:
        if (pool, tier, state) not in self._ends:
            self._ends[pool, tier, state] = (
                self._service.labels(pool, tier),
                self._attempts.labels(pool, tier, state),
            )
        service, attempts = self._ends[pool, tier, state]
        service.observe(served_s)
        attempts.inc()
