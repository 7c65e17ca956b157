"""What the front door's requests share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request
from prometheus_client import CollectorRegistry

from fairlane.accounts import Accounts
from fairlane.batches import Batches
from fairlane.errors import Draining
from fairlane.estimate import Estimates
from fairlane.files import Files
from fairlane.queue.engine import Queue
from fairlane.safe_url import Guard
from fairlane.settings import Settings
from fairlane.webhooks.deliveries import Deliveries
from fairlane.webhooks.endpoints import Webhooks
from producer.abandoned import Abandoned
from producer.api.credentials import Credentials
from producer.intake import Intake
from producer.promises import Promises
from producer.streaming import Streams
from producer.waiting import Waiting


@dataclass(slots=True)
class State:
    """One per process. `closing` is set when the process has been told to end: it takes nothing in any more, and long
    polls answer. `cut` is set at the end of the grace time: nothing is waited for any more. `registry` holds what this
    process counts itself."""

    settings: Settings
    queue: Queue
    accounts: Accounts
    credentials: Credentials
    intake: Intake
    waiting: Waiting
    streams: Streams
    abandoned: Abandoned
    estimates: Estimates
    promises: Promises
    registry: CollectorRegistry
    files: Files
    batches: Batches
    guard: Guard
    webhooks: Webhooks
    deliveries: Deliveries
    needs_dispatcher: bool = False
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    cut: asyncio.Event = field(default_factory=asyncio.Event)


async def state_of(request: Request) -> State:
    """For `Depends`. (Async, as all of them: FastAPI sends plain functions to a thread, for a third of a ms each.)"""
    state: State = request.app.state.fairlane
    return state


Shared = Annotated[State, Depends(state_of)]


def accepting(request: Request) -> State:
    """For requests that bring work. Raises Draining. (A plain call: each dependency costs a tenth of a millisecond.)"""
    state: State = request.app.state.fairlane
    if state.closing.is_set():
        raise Draining(retry_after=1)
    return state
