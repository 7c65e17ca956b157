"""Fairlane as the benchmarks run it: its own Valkey, real dispatcher processes, and callers that wait for results."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fairlane.head import Head
from fairlane.model import Job, JobSpec, Policy
from fairlane.options import BackendOption, register
from fairlane.queue.embedded import EmbeddedServer
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from fairlane.queue.supervise import Supervised

REREAD_S = 1.0


class Fairlane:
    """A queue with one pool, as a caller on this machine sees it."""

    def __init__(self, queue: Queue, pool: Pool, signals: Signals) -> None:
        self.queue = queue
        self.pool = pool
        self._signals = signals

    def spec(self, tenant: str, body: dict[str, Any], tier: str = "default", prefix: tuple[str, ...] = ()) -> JobSpec:
        head, packed = Head("/v1/chat/completions", self.pool.name).encode(), json.dumps(body).encode()
        return JobSpec(tenant, tier, packed, head=head, output_tokens=body.get("max_tokens", 0), prefix=prefix)

    async def send(self, tenant: str, body: dict[str, Any], tier: str = "default", prefix: tuple[str, ...] = ()) -> Job:
        """One job, and the wait for its result. Raises RuntimeError if it does not succeed."""
        submitted = await self.queue.submit(self.pool, self.spec(tenant, body, tier, prefix))
        job = await self.result(submitted.id)
        if job.state != "succeeded":
            raise RuntimeError(f"{job.id} {job.state}: {job.error}")
        return job

    async def result(self, job_id: str) -> Job:
        """The job once it is finished: subscribe, then read, then wait, and read again now and then."""
        spoke = asyncio.Event()
        async with self._signals.listen(self.pool.key("settled", job_id), lambda _: spoke.set()):
            while True:
                job = await self.queue.inspect.job(job_id)
                if job.finished_at_ms is not None:
                    return job
                try:
                    async with asyncio.timeout(REREAD_S):
                        await spoke.wait()
                except TimeoutError:
                    pass
                spoke.clear()


@asynccontextmanager
async def fairlane(backends: Sequence[BackendOption], dispatchers: int = 1) -> AsyncGenerator[Fairlane]:
    """Runs while the block does; all `backends` are of one pool."""
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedServer(Path(folder), appendfsync="everysec")
        await asyncio.to_thread(server.start)
        queue = await Queue.open(server.url)
        try:
            await register(queue, backends, Policy())
            pool = await queue.pools.by_name(backends[0].pool)
            os.environ["FAIRLANE_REDIS_URL"] = server.url
            command = [sys.executable, "-m", "fairlane.cli", "dispatcher", "--processes", str(dispatchers)]
            process = None
            log_path = Path(folder) / "dispatcher.log"
            if dispatchers:
                with log_path.open("wb") as log:
                    process = Supervised([*command, "--log-level", "warning"], cwd=Path.cwd(), log=log)
            try:
                await _all_there(queue, pool, dispatchers)
                async with queue.signals() as signals:
                    yield Fairlane(queue, pool, signals)
            finally:
                if process:
                    await asyncio.to_thread(process.stop)
                    print(log_path.read_text()[-2000:], end="")
        finally:
            await queue.close()
            await asyncio.to_thread(server.stop)


async def _all_there(queue: Queue, pool: Pool, dispatchers: int) -> None:
    """Every dispatcher has shown itself, and the backends were scraped."""
    async with asyncio.timeout(60):
        while True:
            there = await queue.inspect.dispatchers(pool)
            load = await queue.inspect.load(pool)
            if len(there) >= dispatchers and all(view.fresh_at_ms or not dispatchers for view in load.backends):
                return
            await asyncio.sleep(0.05)
