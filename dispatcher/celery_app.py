"""The Celery application: what carries the work on batches and webhooks to its workers. docs/batches.md and
docs/webhooks.md tell how it is set up.

Messages may be lost or come twice: each task is a short step that can be done again, and what was not done is due
again.
"""

from __future__ import annotations

from typing import Any, Final, Literal, cast

from celery import Celery  # pyright: ignore[reportMissingTypeStubs]
from kombu.connection import Connection  # pyright: ignore[reportMissingTypeStubs]

from fairlane.settings import Settings

BROKER_TIMEOUT_S: Final = 5
Work = Literal["batches", "webhooks"]
ADVANCE: Final = "fairlane.advance_batch"
COLLECT: Final = "fairlane.collect_batches"
DELIVER: Final = "fairlane.deliver_webhooks"
FIRST, THEN = 0, 9  # priorities, of all queues together, as Redis has them


class _Prompt(Connection):
    """Celery looks for a broker that is away after 2 s, 4 s more, 6 s more …: too long for webhooks."""

    def ensure_connection(self, *args: Any, **how: Any) -> Any:
        how = {"interval_start": 0.2, "interval_step": 0.2, "interval_max": 5} | how
        return cast(Any, super()).ensure_connection(*args, **how)


def queue_of(settings: Settings, work: Work) -> str:
    """The name of the queue of messages."""
    return f"{settings.namespace}.{work}"


def create(settings: Settings) -> Celery:
    """The application for these settings. Raises InvalidRequest if they name no broker."""
    app = Celery("fairlane", broker=settings.broker_url, set_as_current=False)
    app.conf.update(  # pyright: ignore[reportUnknownMemberType]
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_acks_late=False,
        task_default_queue=queue_of(settings, "batches"),
        task_routes={
            COLLECT: {"priority": FIRST},  # outcomes fill Redis until they are collected
            ADVANCE: {"priority": THEN},
            DELIVER: {"priority": THEN, "queue": queue_of(settings, "webhooks")},
        },
        task_publish_retry=False,  # it would hold up the sweeper: what was not sent is due again
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,  # our log goes there, and Celery drops what it is given below its own level
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "socket_timeout": BROKER_TIMEOUT_S,
            "socket_connect_timeout": BROKER_TIMEOUT_S,
            "visibility_timeout": 3600,
        },
    )
    cast(Any, app).amqp.Connection = _Prompt
    return app
