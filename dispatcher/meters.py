"""What one dispatcher process counts of its own work, for Prometheus."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

WAITS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
SERVICES: Final = (0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600)


class Meters:
    """Times in seconds. A job waits from its submit (or its return to the line) to its lease, and is served until its
    attempt has ended."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("pool", "tier")
        self._wait = Histogram(
            "fairlane_wait_seconds", "From submit to lease.", labels, buckets=WAITS, registry=registry
        )
        self._service = Histogram(
            "fairlane_service_seconds", "From lease to outcome.", labels, buckets=SERVICES, registry=registry
        )
        self._attempts = Counter(
            "fairlane_attempts", "Attempts that ended, by the state that they left the job in.",
            (*labels, "state"), registry=registry,
        )  # fmt: skip

        self._waits: dict[tuple[str, str], Histogram] = {}
        self._ends: dict[tuple[str, str, str], tuple[Histogram, Counter]] = {}

    def began(self, pool: str, tier: str, waited_s: float) -> None:
        # `labels` looks its arguments up under a lock: too slow for each job
        if (pool, tier) not in self._waits:
            self._waits[pool, tier] = self._wait.labels(pool, tier)
        self._waits[pool, tier].observe(waited_s)

    def ended(self, pool: str, tier: str, state: str, served_s: float) -> None:
        if (pool, tier, state) not in self._ends:
            self._ends[pool, tier, state] = (
                self._service.labels(pool, tier),
                self._attempts.labels(pool, tier, state),
            )
        service, attempts = self._ends[pool, tier, state]
        service.observe(served_s)
        attempts.inc()
