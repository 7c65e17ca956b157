"""Fairlane: dispatchers on a backend that answers at once, and the asyncio client straight to Redis."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.peers.calling import Loop
from benchmarks.peers.peer import BODY, RESULT_S, Peer, Workers
from fairlane import AsyncClient, AsyncHandle
from fairlane.model import Policy
from fairlane.options import parse_backend, register
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool


class _Caller(Loop):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def open(self) -> None:
        self.run(self._open)

    async def _open(self) -> None:
        self._queue: Queue = await Queue.open(self._url)
        option = parse_backend("sim=null://")
        await register(self._queue, [option], Policy())
        self._pool: Pool = await self._queue.pools.by_name(option.pool)
        self._client = AsyncClient(self._url)

    def close(self) -> None:
        self.run(self._close)
        super().close()

    async def _close(self) -> None:
        await self._client.close()
        await self._queue.close()

    async def kick(self, tenant: str) -> AsyncHandle:
        return await self._client.submit(tenant=tenant, **BODY)

    def submit_batch(self, tenants: Sequence[str]) -> None:
        handles = self.run(lambda: self._client.submit_many({"tenant": tenant, **BODY} for tenant in tenants))
        assert not any(handle.error for handle in handles)

    def result(self, handle: Any) -> None:
        self.run(lambda: self._result(handle))

    async def trip(self) -> None:
        await self._result(await self.kick("ann"))

    def left(self) -> int:
        load = self.run(lambda: self._queue.inspect.load(self._pool))
        return sum(tier.waiting + tier.inflight for tier in load.tiers)

    def hold(self, workers: Workers) -> None:
        self.run(lambda: self._queue.pause(self._pool))

    def release(self, workers: Workers) -> None:
        self.run(lambda: self._queue.resume(self._pool))

    async def _result(self, handle: AsyncHandle) -> None:
        found = await handle.result(timeout=RESULT_S)
        assert found == {"id": handle.id, "object": "null"}, found


@contextmanager
def _connect(url: str, results: bool) -> Iterator[_Caller]:
    caller = _Caller(url)
    caller.open()
    try:
        yield caller
    finally:
        caller.close()


def _command(processes: int) -> list[str]:
    return [sys.executable, "-m", "fairlane.cli", "dispatcher", "--processes", str(processes), "--log-level", "warning"]


PEER = Peer(
    "Fairlane",
    ("fairlane",),
    "`fairlane dispatcher --processes N`, a `null://` backend, `AsyncClient` on `redis://`; results are always stored, "
    "leases, acknowledgement after the result",
    _command,
    _connect,
    batches=True,
)
