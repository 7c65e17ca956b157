"""The Celery tasks: the steps of batches (fairlane/batches/work.py), and deliveries; each short and safe to repeat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, cast

import structlog
from celery import Celery  # pyright: ignore[reportMissingTypeStubs]
from kombu.exceptions import ChannelError  # pyright: ignore[reportMissingTypeStubs]

from dispatcher.celery_app import ADVANCE, COLLECT, DELIVER
from fairlane.batches.work import BatchWork, Due
from fairlane.errors import FairlaneError

MOST_WAITING: Final = 1_000  # messages on batches
MOST_SENDING: Final = 100  # messages of deliveries: what waits for long is out of its lease when its turn comes
TOGETHER: Final = 50  # deliveries in a message
Pair = tuple[str, int]  # a delivery's id, and the token of its lease
log = structlog.get_logger()


def define_batches(app: Celery, work: BatchWork, runner: asyncio.Runner) -> None:
    """Gives the application their tasks, which run on the one event loop of this process: connections are kept."""

    def advance_batch(batch_id: str) -> None:
        _do(runner, work.advance, batch_id)

    def collect_batches(code: str) -> None:
        _do(runner, work.collect, code)

    for name, task in ((ADVANCE, advance_batch), (COLLECT, collect_batches)):
        app.task(task, name=name)  # pyright: ignore[reportUnknownMemberType]


def define_webhooks(app: Celery, hand: Callable[[Sequence[Pair]], None]) -> None:
    """Gives the application the task that hands deliveries to the courier. It waits while the courier has enough."""

    def deliver_webhooks(pairs: Sequence[Pair]) -> None:
        hand([(delivery_id, token) for delivery_id, token in pairs])

    app.task(deliver_webhooks, name=DELIVER)  # pyright: ignore[reportUnknownMemberType]


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
    if (count := waiting(app, ADVANCE)) >= MOST_WAITING:
        log.warning("no_worker_for_batches", waiting=count)
        return
    for name, todo in ((COLLECT, due.pools), (ADVANCE, due.batches)):
        for what in todo:
            app.send_task(name, (what,), retry=False)  # pyright: ignore[reportUnknownMemberType]


def send_deliveries(app: Celery, pairs: Sequence[Pair]) -> None:
    """Hands deliveries over. Raises as `send` does; what was not sent is given out again after its lease."""
    for n in range(0, len(pairs), TOGETHER):
        app.send_task(DELIVER, (pairs[n : n + TOGETHER],), retry=False)  # pyright: ignore[reportUnknownMemberType]


def waiting(app: Celery, task: str) -> int:
    """Messages in this task's queue that no worker has taken yet. Raises as `send` does."""
    conf = cast(Any, app).conf
    queue = conf.task_routes.get(task, {}).get("queue", conf.task_default_queue)
    with cast(Any, app).connection_or_acquire() as connection:
        try:
            return connection.default_channel.queue_declare(queue, passive=True).message_count
        except ChannelError:  # no such queue: nothing was ever handed over, or all was taken
            return 0
