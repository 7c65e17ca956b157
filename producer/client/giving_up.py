"""Jobs that are one caller's alone: nobody else waits for them, so they are cancelled when that one leaves."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from fairlane.errors import FairlaneError
from producer.client.session import Session
from producer.client.submission import Submission

PATIENCE_S: Final = 5.0  # to hear which job it was that is given up


async def submit_own(session: Session, asked: Submission) -> str:
    """The job's id. If the caller is cancelled on the way, so is the job: it may have been taken in already."""
    submitting = asyncio.create_task(session.ask(lambda to: to.submit(asked)))
    try:
        return await asyncio.shield(submitting)
    except asyncio.CancelledError:
        with suppress(FairlaneError, TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await session.transport.cancel(await submitting)
        raise


async def give_up(session: Session, job_id: str) -> None:
    """Cancels a job, if it can be reached."""
    with suppress(FairlaneError):
        await session.transport.cancel(job_id)
