"""taskiq-redis: streams with acknowledgement, as its documentation shows first; with uvloop and orjson."""

# The group `peers` is not in the environment that pyright looks at.
# pyright: reportMissingImports=false

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from redis import Redis
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from benchmarks.peers.calling import Loop, check, patient
from benchmarks.peers.peer import BODY, RESULT_S, RESULTS_VAR, URL_VAR, Peer, answer

QUEUE: Final = "taskiq"
TASK: Final = "answer"
KEEP_S: Final = 86_400
SOON_S: Final = 0.001  # nobody is told of a result: whoever waits looks now and then
LATER_S: Final = 0.01


def broker(url: str | None = None, results: bool | None = None) -> RedisStreamBroker:
    """Without arguments for `taskiq worker`: by the environment."""
    url = url or os.environ[URL_VAR]
    made = RedisStreamBroker(patient(url), QUEUE).with_serializer(ORJSONSerializer())
    if os.environ.get(RESULTS_VAR) == "1" if results is None else results:
        made = made.with_result_backend(
            RedisAsyncResultBackend(patient(url), result_ex_time=KEEP_S, serializer=ORJSONSerializer())
        )
    made.register_task(_answer, TASK)
    return made


async def _answer(tenant: str, body: dict[str, Any]) -> dict[str, Any]:
    return answer(tenant, body)


class _Caller(Loop):
    def __init__(self, url: str, results: bool) -> None:
        super().__init__()
        self._redis: Any = Redis.from_url(url, protocol=2)
        self._broker = broker(url, results)
        self._task: Any = self._broker.find_task(TASK)
        self.run(self._broker.startup)

    def close(self) -> None:
        self.run(self._broker.shutdown)
        super().close()

    async def kick(self, tenant: str) -> Any:
        return await self._task.kiq(tenant, BODY)

    def result(self, handle: Any) -> None:
        self.run(lambda: _result(handle, LATER_S))

    async def trip(self) -> None:
        await _result(await self.kick("ann"), SOON_S)

    def left(self) -> int:
        (group,) = self._redis.xinfo_groups(QUEUE)
        return group["pending"] + group["lag"]


async def _result(handle: Any, every_s: float) -> None:
    check((await handle.wait_result(check_interval=every_s, timeout=RESULT_S)).return_value)


@contextmanager
def _connect(url: str, results: bool) -> Iterator[_Caller]:
    caller = _Caller(url, results)
    try:
        yield caller
    finally:
        caller.close()


def _command(processes: int) -> list[str]:
    return ["taskiq", "worker", f"{__name__}:broker", "--workers", str(processes), "--log-level", "WARNING"]


PEER = Peer(
    "taskiq-redis",
    ("taskiq-redis", "taskiq"),
    "`RedisStreamBroker` (acknowledges), `RedisAsyncResultBackend`, an async task, uvloop, `ORJSONSerializer`; "
    "who waits looks every millisecond",
    _command,
    _connect,
)
