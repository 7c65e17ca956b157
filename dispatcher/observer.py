"""The observer of one pool: it watches every backend, for the whole fleet. Only the elected process runs it."""

from __future__ import annotations

import asyncio

import httpx
import structlog

from dispatcher.activity import Activity
from dispatcher.steering import Steering
from dispatcher.watch import Moment, Watch, over_http
from fairlane.errors import FairlaneError
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.standing import PoolLoad

log = structlog.get_logger()


class Observer:
    """Starts a watch for each backend of the pool, and tells them which tiers are active."""

    def __init__(
        self, queue: Queue, pool: Pool, client: httpx.AsyncClient, interval_s: float, tenants_most: int = 20
    ) -> None:
        self._queue = queue
        self._pool = pool
        self._client = client
        self._interval_s = interval_s
        self._tenants_most = tenants_most
        self._watches: dict[str, tuple[Watch, asyncio.Task[None]]] = {}
        self._activity = Activity()
        self._redis_ms = 0
        self._read_at = 0.0

    async def run(self) -> None:
        """Until it is cancelled."""
        steering = asyncio.create_task(Steering(self._queue, self._pool, self._tenants_most).run())
        try:
            while True:
                try:
                    load = await self._queue.inspect.load(self._pool)
                    if load.version != self._pool.version:
                        self._pool = await self._queue.pools.read(self._pool.code)
                    self._follow(load)
                except FairlaneError as error:
                    log.warning("load_not_read", pool=self._pool.name, error=error.code)
                await asyncio.sleep(self._interval_s)
        finally:
            steering.cancel()
            for name in tuple(self._watches):
                self._end(name)

    def _follow(self, load: PoolLoad) -> None:
        self._redis_ms, self._read_at = load.now_ms, asyncio.get_running_loop().time()
        self._activity.note(load, 1000 * self._read_at)
        specs = {view.name: view.spec for view in load.backends}
        for name, (watch, task) in tuple(self._watches.items()):
            if specs.get(name) != watch.spec or task.done():
                self._end(name)
        for view in load.backends:
            if view.spec and view.name not in self._watches:
                read_page = over_http(view.spec, self._client)
                watch = Watch(self._queue, view, view.spec, read_page, self._moment, self._interval_s)
                self._watches[view.name] = (watch, asyncio.create_task(watch.run()))

    def _moment(self) -> Moment:
        now = asyncio.get_running_loop().time()
        policy = self._pool.policy
        rooms, ahead = self._activity.rooms(policy, 1000 * now), self._activity.ahead(policy)
        return Moment(self._pool, rooms, ahead, self._redis_ms + round(1000 * (now - self._read_at)))

    def _end(self, name: str) -> None:
        _, task = self._watches.pop(name)
        if task.done() and not task.cancelled() and (error := task.exception()):
            log.error("watch_broke", pool=self._pool.name, backend=name, exc_info=error)
        task.cancel()
