"""How good the estimates were: what the front door told those who sent jobs, against when their jobs did start.

Nothing is read for it. A promise is kept with whoever asks about the job later; of jobs that nobody asks about at this
front door nothing is learned.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from prometheus_client import CollectorRegistry

from fairlane import metrics
from fairlane.model import Job

MOST: Final = 10_000  # that are remembered: beyond, the oldest are forgotten


class Promises:
    """Estimated waits of one process, in s from the job's submit."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._errors = metrics.histogram("fairlane_estimate_error_seconds", registry)
        self._waits_s: OrderedDict[str, float] = OrderedDict()

    def made(self, job_id: str, wait_s: float) -> None:
        """The first promise for a job is the one that counts."""
        self._waits_s.setdefault(job_id, wait_s)
        if len(self._waits_s) > MOST:
            self._waits_s.popitem(last=False)

    def heard(self, job: Job) -> None:
        """A job as it was just read. Its times are both Redis's: no clock of ours is in the error."""
        if job.started_at_ms is None and job.finished_at_ms is None:
            return
        wait_s = self._waits_s.pop(job.id, None)
        if wait_s is not None and job.started_at_ms is not None:
            error_s = (job.started_at_ms - job.created_at_ms) / 1000 - wait_s
            self._errors.labels(job.pool, job.tier).observe(error_s)
