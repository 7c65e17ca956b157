"""The Celery tasks: the steps of batches (fairlane/batches/work.py), each short and safe to repeat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

import structlog
from celery import Celery  # pyright: ignore[reportMissingTypeStubs]
from kombu.exceptions import ChannelError  # pyright: ignore[reportMissingTypeStubs]

from fairlane.batches.work import BatchWork, Due
from fairlane.errors import FairlaneError

ADVANCE: Final = "fairlane.advance_batch"
COLLECT: Final = "fairlane.collect_batches"
MOST_WAITING: Final = 1_000
log = structlog.get_logger()


def define(app: Celery, work: BatchWork, runner: asyncio.Runner) -> None:
    """Gives the application its tasks, which run on the one event loop of this process: connections are kept."""

    def advance_batch(batch_id: str) -> None:
        _do(runner, work.advance, batch_id)

    def collect_batches(code: str) -> None:
        _do(runner, work.collect, code)

    for name, task in ((ADVANCE, advance_batch), (COLLECT, collect_batches)):
        app.task(task, name=name)  # pyright: ignore[reportUnknownMemberType]


def _do(runner: asyncio.Runner, step: Callable[[str], Coroutine[Any, Any, None]], what: str) -> None:
    """What failed is due again by itself."""
    try:
        runner.run(step(what))
    except FairlaneError as error:
        log.warning("batch_step_failed", what=what, error=error.code, message=error.message)
    except Exception:
        log.exception("batch_step_broke", what=what)


def send(app: Celery, due: Due) -> None:
    """Hands over what is due, unless no worker takes what was handed over before: it is due again, then.

    (Messages that expire would be simpler, but who has a wrong clock would drop all of them.) Raises OSError or kombu's
    OperationalError if the broker is away.
    """
    if (waiting := _waiting(app)) >= MOST_WAITING:
        log.warning("no_worker_for_batches", waiting=waiting)
        return
    for name, todo in ((COLLECT, due.pools), (ADVANCE, due.batches)):
        for what in todo:
            app.send_task(name, (what,), retry=False)  # pyright: ignore[reportUnknownMemberType]


def _waiting(app: Celery) -> int:
    """Messages that no worker has taken yet."""
    typed = cast(Any, app)
    with typed.connection_or_acquire() as connection:
        try:
            return connection.default_channel.queue_declare(typed.conf.task_default_queue, passive=True).message_count
        except ChannelError:  # no such queue: nothing was ever handed over, or all was taken
            return 0
