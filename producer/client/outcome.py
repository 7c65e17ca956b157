"""What a finished job comes to: its answer, or the error that says why there is none."""

from __future__ import annotations

from fairlane.errors import JobCancelled, JobExpired, JobFailed
from fairlane.job import Job, Json


def result_of(job: Job) -> Json:
    """The answer's body of a finished job. Raises JobFailed, JobCancelled, JobExpired."""
    match job.state:
        case "succeeded":
            return None if job.result is None else job.result.body
        case "cancelled":
            raise JobCancelled(job)
        case "expired":
            raise JobExpired(job)
        case _:
            raise JobFailed(job)
