"""A handle: one job that was submitted, or refused."""

from __future__ import annotations

from fairlane.errors import FairlaneError
from fairlane.job import Job, JobState, Json
from producer.client.outcome import result_of
from producer.client.session import Session
from producer.client.stream import AsyncStream


class AsyncHandle:
    """One job. It keeps the outcome once it has seen it.

    A job of `submit_many` that was refused has an `error`, which every other use of its handle raises.
    """

    def __init__(self, session: Session, job_id: str | None, error: FairlaneError | None = None) -> None:
        self._session = session
        self._id = job_id
        self._outcome: Job | None = None
        self.error = error

    @property
    def id(self) -> str:
        """The job's id. Raises `error` if the job was refused."""
        if self.error is not None:
            raise self.error
        assert self._id is not None  # noqa: S101  # refused or taken in
        return self._id

    @property
    def decided(self) -> bool:
        """It needs no more waiting: it was refused, or its outcome was seen."""
        return self.error is not None or self._outcome is not None

    async def job(self) -> Job:
        """All about the job, as it is now."""
        job_id = self.id
        return self.saw(await self._session.ask(lambda to: to.job(job_id)))

    async def status(self) -> JobState:
        """Its state now."""
        return (await self.job()).state

    async def cancel(self) -> Job:
        """Cancels the job, unless it is finished; returns it as it is then."""
        job_id = self.id
        return self.saw(await self._session.ask(lambda to: to.cancel(job_id)))

    async def requeue(self) -> Job:
        """Puts a dead job, failed at each of its attempts, back into its line. Raises IllegalTransition for others."""
        job_id = self.id
        job = await self._session.ask(lambda to: to.requeue(job_id))
        self._outcome = None
        return self.saw(job)

    async def wait(self, timeout: float | None = None) -> Job:  # noqa: ASYNC109  # as concurrent.futures has it
        """The finished job, whatever its outcome. Raises WaitTimeout after `timeout` seconds; None waits for ever."""
        return self._outcome or self.saw(await self._session.finished(self.id, timeout))

    async def result(self, timeout: float | None = None) -> Json:  # noqa: ASYNC109
        """The body of the backend's answer. Raises JobFailed, JobCancelled, JobExpired; WaitTimeout."""
        return result_of(await self.wait(timeout))

    def stream(self, after: str | None = None) -> AsyncStream:
        """The chunks of a job that was submitted with `stream=True`, from the start or after the event `after`.

        The job goes on, whether they are read or not.
        """
        return AsyncStream(self._session, self.id, after)

    def saw(self, job: Job) -> Job:
        """Remembers an outcome."""
        if job.finished:
            self._outcome = job
        return job

    def __repr__(self) -> str:
        what = f"refused: {self.error}" if self.error else self._id
        return f"<{type(self).__name__} {what}>"
