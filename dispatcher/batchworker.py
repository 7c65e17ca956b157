"""`fairlane worker`: a Celery worker for batches. It has one process, and does one step at a time."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import structlog
from celery.apps import worker as celery_worker  # pyright: ignore[reportMissingTypeStubs]
from celery.platforms import SecurityWarning  # pyright: ignore[reportMissingTypeStubs]

from dispatcher import celery_app, tasks
from dispatcher.run import open_queue
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
    """The command line."""

    log_level: str = "info"
    parent: int | None = None


def start(options: WorkerOptions, *, redis_url: str | None, namespace: str | None) -> None:
    """Works until SIGTERM or SIGINT; the step under way is ended first. Raises InvalidRequest, StoreUnsuitable."""
    configure(options.log_level)
    settings = load(redis_url=redis_url, namespace=namespace)
    app = celery_app.create(settings)
    warnings.simplefilter("ignore", SecurityWarning)  # about root and pickle: there is JSON only
    _end_with(options.parent)
    with asyncio.Runner(loop_factory=loop_factory()) as runner, tending(settings):
        queue = runner.run(open_queue(settings))
        tasks.define(app, _work(queue, settings), runner)
        celery_worker.safe_say = _nothing  # it prints by this, whatever the log level, that it ends
        worker = cast(Any, app).Worker(**OPTIONS)
        try:
            worker.start()
        finally:
            runner.run(queue.close())


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
