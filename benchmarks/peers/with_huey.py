"""Huey: RedisHuey with processes, and results of which a waiting caller is told (`notify_result`)."""

# The group `peers` is not in the environment that pyright looks at.
# pyright: reportMissingImports=false

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from huey import RedisHuey

from benchmarks.peers.calling import Blocking, check, patient
from benchmarks.peers.peer import BODY, RESULT_S, RESULTS_VAR, URL_VAR, Peer
from benchmarks.peers.peer import answer as plain


def make(url: str, results: bool) -> RedisHuey:
    huey = RedisHuey("peers", url=patient(url), results=results, notify_result=results)
    huey.task(name="answer")(answer)
    return huey


def answer(tenant: str, body: dict[str, Any]) -> dict[str, Any]:
    """A function of this module: Huey finds a task by its module's name."""
    return plain(tenant, body)


def __getattr__(name: str) -> RedisHuey:
    """`huey`, for `huey_consumer`: by the environment."""
    if name != "huey":
        raise AttributeError(name)
    return make(os.environ[URL_VAR], os.environ[RESULTS_VAR] == "1")


class _Caller(Blocking):
    def __init__(self, url: str, results: bool) -> None:
        super().__init__(url)
        self._huey = RedisHuey("peers", url=patient(url), results=results, notify_result=results)
        self._task = self._huey.task(name="answer")(answer)

    def submit_one(self, tenant: str) -> Any:
        return self._task(tenant, BODY)

    def result(self, handle: Any) -> None:
        check(handle.get(blocking=True, timeout=RESULT_S))

    def left(self) -> int:
        return self._huey.pending_count()


@contextmanager
def _connect(url: str, results: bool) -> Iterator[_Caller]:
    caller = _Caller(url, results)
    with closing(caller.redis):
        yield caller


def _command(processes: int) -> list[str]:
    return ["huey_consumer", f"{__name__}.huey", "-k", "process", "-w", str(processes), "-n", "-q"]


PEER = Peer(
    "Huey",
    ("huey",),
    "`RedisHuey` (a job that was taken is lost with its worker), `-k process`, `notify_result`",
    _command,
    _connect,
)
