"""How the client reaches the queue: what both ways can do, and which one a URL means."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.job import Job, Json
from producer.client.archive import Archive
from producer.client.postbox import Postbox
from producer.client.sse import Event
from producer.client.submission import Submission

HTTP: Final = ("http", "https")
REDIS: Final = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel")
ANONYMOUS: Final = "anonymous"


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the jobs of a list, and where to go on; None: that was all."""

    jobs: Sequence[Job]
    cursor: str | None


class Transport(Protocol):
    """Each call is one try, and safe to repeat. Raises the errors of fairlane.errors; the retryable ones may pass."""

    most_waits: int
    """How many calls of `job` with a wait it bears at once."""

    @property
    def archive(self) -> Archive:
        """Files and batches. Raises NotSupported."""
        ...

    @property
    def postbox(self) -> Postbox:
        """Webhook endpoints and deliveries."""
        ...

    async def submit(self, asked: Submission) -> str:
        """The job's id."""
        ...

    async def submit_many(self, asked: Sequence[Submission]) -> list[str | FairlaneError]:
        """The ids of up to 1,000 jobs, or why one was refused, in the same order."""
        ...

    async def job(self, job_id: str, wait_s: float = 0.0) -> Job:
        """The job as it is; with `wait_s` (up to 60 s) as soon as it is finished, or after that time."""
        ...

    def events(self, job_id: str, after: str | None) -> AsyncGenerator[Event]:
        """The answer of a job that streams, event by event, after the one with the id `after`, while it comes.

        Comments say that it waits. An error of the job is raised, or said in an event.
        """
        ...

    async def cancel(self, job_id: str) -> Job:
        """The job, cancelled unless it was finished."""
        ...

    async def requeue(self, job_id: str) -> Job:
        """The job, back in its line."""
        ...

    async def page(self, state: str | None, tier: str | None, cursor: str | None) -> Page:
        """A page of the tenant's own jobs."""
        ...

    async def explain(self, job_id: str) -> Mapping[str, Json]:
        """Why a job waits: contract.md's JSON."""
        ...

    async def close(self) -> None: ...


def transport_for(url: str, api_key: str | None, tenant: str | None, namespace: str) -> Transport:
    """Connects on first use. Raises InvalidRequest for a URL of an unknown kind."""
    scheme = url.partition("://")[0].lower()
    if scheme in HTTP:
        from producer.client.http import HttpTransport

        return HttpTransport(url, api_key, tenant)
    if scheme in REDIS:
        from producer.client.direct import RedisTransport

        return RedisTransport(url, tenant or ANONYMOUS, namespace)
    known = ", ".join(f"{one}://" for one in (*HTTP, *REDIS))
    raise InvalidRequest(f"The client's URL begins with one of {known}.", param="url")
