"""RQ: a pool of SimpleWorkers, which run jobs in their own process; `enqueue_many`; a caller blocks for a result."""

# The group `peers` is not in the environment that pyright looks at.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

from rq import Queue

from benchmarks.peers.calling import Blocking, check
from benchmarks.peers.peer import BODY, RESULT_S, URL_VAR, Peer, answer

KEEP_S: Final = 86_400
AT_ONCE: Final = 1_000


class _Caller(Blocking):
    def __init__(self, url: str, results: bool) -> None:
        super().__init__(url)
        self._keep_s = KEEP_S if results else 0
        self._queue = Queue(connection=self.redis)

    def submit_one(self, tenant: str) -> Any:
        return self._queue.enqueue(answer, tenant, BODY, result_ttl=self._keep_s)

    def submit_batch(self, tenants: Sequence[str]) -> None:
        for start in range(0, len(tenants), AT_ONCE):
            part = tenants[start : start + AT_ONCE]
            self._queue.enqueue_many(
                [Queue.prepare_data(answer, (tenant, BODY), result_ttl=self._keep_s) for tenant in part]
            )

    def result(self, handle: Any) -> None:
        check(handle.latest_result(timeout=round(RESULT_S)).return_value)

    def left(self) -> int:
        return self._queue.count + self._queue.started_job_registry.count


@contextmanager
def _connect(url: str, results: bool) -> Iterator[_Caller]:
    caller = _Caller(url, results)
    with closing(caller.redis):
        yield caller


def _command(processes: int) -> list[str]:
    workers = f'exec rq worker-pool --url "${URL_VAR}" -n {processes} -w rq.worker.SimpleWorker -q'
    return ["sh", "-c", workers]


PEER = Peer(
    "RQ",
    ("rq",),
    "`rq worker-pool` of `SimpleWorker` (its docs: 6 × as fast as the default), `enqueue_many`; "
    "who waits blocks in Redis",
    _command,
    _connect,
    batches=True,
)
