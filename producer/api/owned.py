"""Jobs as the front door hands them out: to their own tenant only."""

from __future__ import annotations

from fairlane.errors import NotFound
from fairlane.model import Job
from producer.api.state import State


async def own_job(state: State, tenant: str, job_id: str) -> Job:
    """The tenant's job, without its body. Raises NotFound also for another's: that it exists is nobody's business."""
    job = await state.queue.inspect.outcome(job_id)
    if job.tenant != tenant:
        raise NotFound()
    state.promises.heard(job)
    return job
