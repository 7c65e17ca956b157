"""One dispatcher process: for each pool a worker, and the offices of observer and sweeper if it is elected."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import httpx
import structlog
from prometheus_client import CollectorRegistry

from dispatcher.backends.call import HttpBackend, Timeouts
from dispatcher.backends.known import Backends, Make
from dispatcher.elections import Office
from dispatcher.handing import Handing
from dispatcher.meters import Meters
from dispatcher.observer import Observer
from dispatcher.sweeper import sweep_forever
from dispatcher.tls import tls_context
from dispatcher.webhooks.fanout import Fanout
from dispatcher.worker import Worker, WorkerOptions
from fairlane.errors import FairlaneError
from fairlane.ids import RandomIds
from fairlane.model import BackendSpec
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from fairlane.settings import Settings

LOOK_S: Final = 2.0  # how often it looks for new pools
BEAT_S: Final = 1.0
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Post:
    """What this process does for one pool."""

    pool: Pool
    worker: Worker
    working: asyncio.Task[None]
    upkeep: tuple[asyncio.Task[None], ...]


class Dispatcher:
    """Serves the pools named in `only`, or all that there are, also those to come."""

    def __init__(
        self,
        queue: Queue,
        settings: Settings,
        *,
        concurrency: int = 256,
        only: Sequence[str] = (),
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._queue = queue
        self._settings = settings
        self._options = WorkerOptions(concurrency, settings.drain_s)
        self._only = only
        self._meters = Meters(registry or CollectorRegistry())
        self._name = f"{socket.gethostname()[:32]}-{os.getpid()}-{RandomIds().token(6)}"
        self._handing = Handing(queue, settings)
        self._fanout = Fanout(queue, settings)
        self._posts: dict[str, _Post] = {}
        self._draining = asyncio.Event()

    def drain(self, *, hurry: bool = False) -> None:
        """Ends `run` in order; `hurry` hands everything back at once."""
        self._draining.set()
        for post in self._posts.values():
            post.worker.drain(hurry=hurry)

    async def run(self) -> None:
        """Until `drain` was called, or an operator has asked for it, and nothing is held any more."""
        tls = tls_context(self._settings)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)  # one that hangs delays no other
        async with (
            self._queue.signals() as signals,
            httpx.AsyncClient(verify=tls, trust_env=False, limits=limits) as scraping,
        ):
            make = self._over_http(tls)
            handing = asyncio.create_task(self._handing.run())  # no office: webhooks would wait for the next election
            try:
                while not self._draining.is_set():
                    await self._look(signals, scraping, make)
                    try:
                        async with asyncio.timeout(LOOK_S):
                            await self._draining.wait()
                    except TimeoutError:
                        pass
                await self._leave(self._posts)
            finally:
                handing.cancel()
                await asyncio.wait([handing])

    async def _look(self, signals: Signals, scraping: httpx.AsyncClient, make: Make) -> None:
        """Serves new pools, and no more those that are gone. Raises what a worker has ended with."""
        try:
            pools = {pool.code: pool for pool in await self._queue.pools.all()}
        except FairlaneError as error:
            log.warning("pools_not_read", error=error.code, message=error.message)
            return
        gone = {code: post for code, post in self._posts.items() if code not in pools}
        for code, post in gone.items():
            log.warning("pool_gone", pool=post.pool.name)
            post.worker.drain(hurry=True)
            del self._posts[code]
        await self._leave(gone)
        for code, pool in pools.items():
            if code not in self._posts and not self._draining.is_set() and (not self._only or pool.name in self._only):
                self._posts[code] = self._take_post(pool, signals, scraping, make)
        for post in self._posts.values():
            if post.working.done() and not self._draining.is_set():
                self.drain()
                await self._leave(self._posts)
                post.working.result()
                raise RuntimeError(f"the worker of the pool {post.pool.name} has ended")

    def _take_post(self, pool: Pool, signals: Signals, scraping: httpx.AsyncClient, over_http: Make) -> _Post:
        log.info("serving", pool=pool.name, dispatcher=self._name)
        backends = Backends(self._queue, pool, over_http)
        worker = Worker(self._queue, pool, self._name, backends, self._meters, self._options)
        observer = Observer(self._queue, pool, scraping, self._settings.scrape_s, self._settings.metrics_tenants)
        offices = (
            Office(self._queue, pool, "observer", self._name, observer.run),
            Office(self._queue, pool, "sweeper", self._name, lambda: self._sweep(pool)),
        )
        upkeep = [asyncio.create_task(office.run()) for office in offices]
        upkeep.append(asyncio.create_task(self._keep_beating(pool, worker, offices)))
        return _Post(pool, worker, asyncio.create_task(worker.run(signals)), tuple(upkeep))

    async def _sweep(self, pool: Pool) -> None:
        """The sweeper's work."""
        async with asyncio.TaskGroup() as all_of_it:
            all_of_it.create_task(sweep_forever(self._queue, pool))
            all_of_it.create_task(self._fanout.run(pool))

    async def _leave(self, posts: Mapping[str, _Post]) -> None:
        """Offices last: leases that are handed back may be wanted elsewhere at once."""
        if posts:
            await asyncio.wait([post.working for post in posts.values()])
        upkeep = [task for post in posts.values() for task in post.upkeep]
        for task in upkeep:
            task.cancel()
        if upkeep:
            await asyncio.wait(upkeep)

    async def _keep_beating(self, pool: Pool, worker: Worker, offices: Sequence[Office]) -> None:
        host, pid = socket.gethostname(), os.getpid()
        while True:
            roles = [office.role for office in offices if office.held]
            info = {"host": host, "pid": pid, "inflight": worker.inflight, "roles": roles}
            try:
                if await self._queue.beat(pool, self._name, json.dumps(info)) and not self._draining.is_set():
                    log.info("draining", pool=pool.name, dispatcher=self._name, asked="by an operator")
                    self.drain()
            except FairlaneError as error:
                log.warning("beat_failed", pool=pool.name, error=error.code)
            except Exception:
                log.exception("beat_broke", pool=pool.name)
            await asyncio.sleep(BEAT_S)

    def _over_http(self, tls: ssl.SSLContext) -> Make:
        settings = self._settings
        timeouts = Timeouts(settings.job_timeout_s, settings.first_byte_timeout_s, settings.idle_timeout_s)

        def make(spec: BackendSpec) -> HttpBackend:
            return HttpBackend(spec, timeouts, tls=tls, answer_most=settings.max_body_bytes)

        return make
