"""The front door: an OpenAI-compatible HTTP API, and jobs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import Final

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from fairlane.accounts import Accounts
from fairlane.batches import Batches
from fairlane.contents import Contents
from fairlane.errors import StoreFull, StoreUnavailable
from fairlane.estimate import Estimates
from fairlane.files import Files
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.safe_url import Guard
from fairlane.settings import Settings
from fairlane.webhooks.deliveries import Deliveries
from fairlane.webhooks.endpoints import Webhooks
from producer.abandoned import Abandoned
from producer.api import (
    batches,
    errors,
    files,
    health,
    inference,
    jobs,
    models,
    responses,
    submit,
    webhook_deliveries,
    webhooks,
)
from producer.api.credentials import credentials
from producer.api.documents import describe
from producer.api.state import State
from producer.intake import Intake
from producer.promises import Promises
from producer.streaming import Streams
from producer.waiting import Waiting

STORE_TIMEOUT_S: Final = 3.0


def create_app(settings: Settings, queue: Queue | None = None, *, needs_dispatcher: bool = False) -> FastAPI:
    """The application. Without `queue` it connects to `settings.redis_url`, and waits for it as long as it takes.

    `needs_dispatcher`: it is ready only when each pool is served (`fairlane up`). It does not start on data of another
    schema, or on a Redis that cannot hold the queue. Raises InvalidRequest if files cannot be kept where
    `settings` says.
    """
    Contents(settings.files_at)  # said now, not at the first upload
    guard = Guard.of(settings.webhook_allow, settings.webhook_ports)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        used = queue or Queue(
            connect(settings.redis_url or "", timeout_s=STORE_TIMEOUT_S),
            namespace=settings.namespace,
            timeout_s=STORE_TIMEOUT_S,
            max_body_bytes=settings.max_body_bytes,
        )
        try:
            with suppress(StoreUnavailable, StoreFull):  # it may come later; until then we are not ready
                await used.check()
            registry, accounts = CollectorRegistry(), Accounts(used)
            abandoned = Abandoned(used)
            kept = Files(used, settings.files_at)
            async with used.signals() as signals:
                app.state.fairlane = State(
                    settings=settings,
                    queue=used,
                    accounts=accounts,
                    credentials=credentials(settings, accounts),
                    intake=Intake(used, settings.max_attempts, guard=guard),
                    waiting=Waiting(used, signals),
                    streams=Streams(used, signals),
                    abandoned=abandoned,
                    estimates=Estimates(used),
                    promises=Promises(registry),
                    registry=registry,
                    files=kept,
                    batches=Batches(used, kept),
                    guard=guard,
                    webhooks=Webhooks(used, guard),
                    deliveries=Deliveries(used),
                    needs_dispatcher=needs_dispatcher,
                )
                yield
                await abandoned.close()
                await app.state.fairlane.waiting.close()
        finally:
            if queue is None:
                await used.close()

    app = FastAPI(
        title="Fairlane", version=version("fairlane"), lifespan=lifespan, redoc_url=None, redirect_slashes=False
    )
    errors.install(app)
    for part in (
        submit, jobs, inference, responses, files, batches, webhooks, webhook_deliveries, models, health,
    ):  # fmt: skip
        app.include_router(part.router)
    describe(app)
    return app
