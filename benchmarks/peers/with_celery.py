"""Celery: on Redis for messages and results, with a long prefetch, as its guide says for many short tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

from celery import Celery

from benchmarks.peers.calling import Blocking, check
from benchmarks.peers.peer import BODY, RESULT_S, RESULTS_VAR, URL_VAR, Peer, answer

PREFETCH: Final = 128
TASK: Final = "answer"


def make(url: str, results: bool) -> Celery:
    app = Celery("peers", broker=url, backend=url if results else None)
    app.conf.update(task_ignore_result=not results, worker_prefetch_multiplier=PREFETCH)
    app.task(name=TASK)(answer)
    return app


def __getattr__(name: str) -> Celery:
    """`app`, for `celery`: by the environment."""
    if name != "app":
        raise AttributeError(name)
    return make(os.environ[URL_VAR], os.environ[RESULTS_VAR] == "1")


class _Caller(Blocking):
    def __init__(self, url: str, results: bool) -> None:
        super().__init__(url)
        self.app = make(url, results)
        self._task: Any = self.app.tasks[TASK]

    def submit_one(self, tenant: str) -> Any:
        return self._task.delay(tenant, BODY)

    def submit_batch(self, tenants: Sequence[str]) -> None:
        with self.app.producer_or_acquire() as producer, producer.batch():
            for tenant in tenants:
                self._task.apply_async((tenant, BODY), producer=producer)

    def result(self, handle: Any) -> None:
        check(handle.get(timeout=RESULT_S))

    def left(self) -> int:
        return self.redis.llen("celery") + self.redis.hlen("unacked")


@contextmanager
def _connect(url: str, results: bool) -> Iterator[_Caller]:
    caller = _Caller(url, results)
    with closing(caller.redis), caller.app:
        yield caller


def _command(processes: int) -> list[str]:
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING"]
    return ["celery", "-A", f"{__name__}:app", "worker", "-P", "prefork", "-c", str(processes), *quiet]


PEER = Peer(
    "Celery",
    ("celery", "kombu"),
    f"Redis for messages and results, prefork, prefetch {PREFETCH}, no gossip, mingle or heartbeat; "
    "acknowledged when it is begun (the default)",
    _command,
    _connect,
    batches=True,
)
