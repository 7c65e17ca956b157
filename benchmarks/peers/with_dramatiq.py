"""Dramatiq: its Redis broker and, for results, its Redis backend, in which a caller blocks."""

# The group `peers` is not in the environment that pyright looks at.
# pyright: reportMissingImports=false

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from benchmarks.peers.calling import Blocking, check, patient
from benchmarks.peers.peer import BODY, RESULT_S, RESULTS_VAR, URL_VAR, Peer, answer

ACTOR: Final = "answer"
MESSAGES: Final = "dramatiq:default.msgs"  # each until it is acknowledged
THREADS: Final = 8


def broker(url: str, results: bool) -> RedisBroker:
    made = RedisBroker(url=patient(url))
    if results:
        made.add_middleware(Results(backend=RedisBackend(url=patient(url))))
    options = {"store_results": True} if results else {}
    dramatiq.actor(answer, actor_name=ACTOR, broker=made, **options)
    return made


def workers() -> None:
    """For `dramatiq`: sets up the broker by the environment."""
    dramatiq.set_broker(broker(os.environ[URL_VAR], os.environ[RESULTS_VAR] == "1"))


class _Caller(Blocking):
    def __init__(self, url: str, results: bool) -> None:
        super().__init__(url)
        self._actor = broker(url, results).get_actor(ACTOR)

    def submit_one(self, tenant: str) -> Any:
        return self._actor.send(tenant, BODY)

    def result(self, handle: Any) -> None:
        backend = self._actor.broker.get_results_backend()
        check(handle.get_result(backend=backend, block=True, timeout=round(1000 * RESULT_S)))

    def left(self) -> int:
        return self.redis.hlen(MESSAGES)


@contextmanager
def _connect(url: str, results: bool) -> Iterator[_Caller]:
    caller = _Caller(url, results)
    with closing(caller.redis):
        yield caller


def _command(processes: int) -> list[str]:
    return ["dramatiq", f"{__name__}:workers", "--processes", str(processes), "--threads", str(THREADS)]


PEER = Peer(
    "Dramatiq",
    ("dramatiq",),
    f"`RedisBroker` (acknowledges), `RedisBackend`, {THREADS} threads a process; who waits blocks in Redis",
    _command,
    _connect,
)
