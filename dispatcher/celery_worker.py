"""`fairlane worker`: a Celery worker, for batches, webhooks or both. It has one process, and does one step at a time;
deliveries are made beside it, many at once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import warnings
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast, get_args

import structlog
from celery import Celery, signals  # pyright: ignore[reportMissingTypeStubs]
from celery.apps import worker as celery_worker  # pyright: ignore[reportMissingTypeStubs]
from celery.platforms import SecurityWarning  # pyright: ignore[reportMissingTypeStubs]

from dispatcher import celery_app, tasks
from dispatcher.celery_app import Work
from dispatcher.run import open_queue
from dispatcher.webhooks.rounds import Rounds
from fairlane.batches.work import BatchWork
from fairlane.errors import FairlaneError
from fairlane.files import Files
from fairlane.logging import configure
from fairlane.process import PARENT_CHECK_S, loop_factory
from fairlane.queue.engine import Queue
from fairlane.settings import Settings, load

log = structlog.get_logger()
TEND_S: Final = 5.0
OPTIONS: Final[dict[str, Any]] = {
    "pool": "solo",
    "concurrency": 1,
    "without_gossip": True,
    "without_mingle": True,
    "without_heartbeat": True,
    "quiet": True,
    "loglevel": "ERROR",  # of Celery's own words; ours go by --log-level
}


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The command line. `only`: one kind of work; None: all."""

    only: Work | None = None
    log_level: str = "info"
    parent: int | None = None


def start(options: WorkerOptions, *, redis_url: str | None, namespace: str | None) -> None:
    """Works until SIGTERM or SIGINT; what is under way is ended first, unless there is a second one.

    Raises InvalidRequest, StoreUnsuitable.
    """
    configure(options.log_level)
    settings = load(redis_url=redis_url, namespace=namespace)
    app = celery_app.create(settings)
    kinds: tuple[Work, ...] = (options.only,) if options.only else get_args(Work)
    warnings.simplefilter("ignore", SecurityWarning)  # about root and pickle: there is JSON only
    celery_worker.safe_say = _nothing  # it prints by this, whatever the log level, that it ends
    _end_with(options.parent)
    with ExitStack() as stack:
        if "webhooks" in kinds:
            _send_webhooks(app, settings, stack)
        if "batches" in kinds:
            _work_on_batches(app, settings, stack)
        queues = [celery_app.queue_of(settings, kind) for kind in kinds]
        cast(Any, app).Worker(**OPTIONS, queues=queues).start()


def _send_webhooks(app: Celery, settings: Settings, stack: ExitStack) -> None:
    rounds = stack.enter_context(Rounds(settings))
    tasks.define_webhooks(app, rounds.hand)

    told: list[object] = []

    def drain(*why: object, **more: object) -> None:
        rounds.drain(hurry=bool(told))
        told.append(why)

    def until_all_is_sent() -> None:
        for signum in (signal.SIGTERM, signal.SIGINT):  # Celery has ended, and listens no more
            signal.signal(signum, drain)

    stack.callback(until_all_is_sent)
    cast(Any, signals).worker_shutting_down.connect(drain, weak=False)  # comes with each SIGTERM and SIGINT


def _work_on_batches(app: Celery, settings: Settings, stack: ExitStack) -> None:
    runner = stack.enter_context(asyncio.Runner(loop_factory=loop_factory()))
    stack.enter_context(tending(settings))
    queue = runner.run(open_queue(settings))
    stack.callback(lambda: runner.run(queue.close()))
    tasks.define_batches(app, _work(queue, settings), runner)


def _work(queue: Queue, settings: Settings) -> BatchWork:
    files = Files(queue, settings.files_at)
    return BatchWork(queue, files, max_attempts=settings.max_attempts, max_body_bytes=settings.max_body_bytes)


@contextmanager
def tending(settings: Settings) -> Generator[None]:
    """Beside the tasks, in a thread: what must go on also while Redis takes no messages (BatchWork.tend)."""
    ended = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_tend(settings, ended)), name="tending", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=TEND_S)


async def _tend(settings: Settings, ended: threading.Event) -> None:
    while not ended.is_set():
        try:
            queue = await open_queue(settings)
            try:
                work = _work(queue, settings)
                while not ended.is_set():
                    await work.tend()
                    await asyncio.to_thread(ended.wait, TEND_S)
            finally:
                await queue.close()
        except FairlaneError as error:
            log.warning("batches_not_tended", error=error.code, message=error.message)
        except Exception:
            log.exception("tending_broke")
        await asyncio.to_thread(ended.wait, TEND_S)


def _nothing(*_: object, **__: object) -> None:
    """Says nothing."""


def _end_with(parent: int | None) -> None:
    """Ends this process in order when `parent` is gone; it cannot tell us if it was killed."""
    if parent is None:
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_CHECK_S)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()
