"""Straight to Redis: what the front door does, in this process. There is no key: the caller says who the tenant is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from typing import Final

from fairlane.accounts import Caller
from fairlane.errors import FairlaneError, IllegalTransition, NotSupported
from fairlane.estimate import Estimates
from fairlane.explaining import explain_view
from fairlane.head import Head
from fairlane.job import Job, Json
from fairlane.jobview import job_view
from fairlane.model import JobSpec
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.streams import Position
from fairlane.safe_url import Guard
from producer.client.archive import Archive, no_archive
from producer.client.direct_postbox import DirectPostbox
from producer.client.sse import PULSE, Event, event_of, whole_answer
from producer.client.submission import Submission
from producer.client.transport import Page
from producer.intake import Intake
from producer.streaming import Ended, Pause, Streams
from producer.waiting import Waiting

PORTS: Final = "80,443,8080,8443"


@dataclass(frozen=True, slots=True)
class _Opened:
    queue: Queue
    intake: Intake
    waiting: Waiting
    streams: Streams
    estimates: Estimates


class RedisTransport:
    """One client of Redis, and one subscription for all that is waited for."""

    most_waits = 1000

    def __init__(self, url: str, tenant: str, namespace: str) -> None:
        self._url = url
        self._tenant = tenant
        self._namespace = namespace
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._opened: _Opened | None = None
        self._guard = _guard()
        self.postbox = DirectPostbox(self._queue, tenant, self._guard)

    async def submit(self, asked: Submission) -> str:
        to = await self._open()
        pool, spec = await to.intake.job(asked.request, Caller(asked.tenant or self._tenant))
        streams = asked.request.body.get("stream") is True
        return (await (to.queue if streams else to.waiting).submit(pool, spec)).id

    async def submit_many(self, asked: Sequence[Submission]) -> list[str | FairlaneError]:
        to = await self._open()
        answers: dict[int, str | FairlaneError] = {}
        by_pool: dict[Pool, dict[int, JobSpec]] = {}
        pools: dict[str, Pool | FairlaneError] = {}
        for n, one in enumerate(asked):
            try:
                pool = await self._pool(to.intake, one.request.model, pools)
                spec = to.intake.spec(one.request, pool, Caller(one.tenant or self._tenant))
                by_pool.setdefault(pool, {})[n] = spec
            except FairlaneError as error:
                answers[n] = error
        for pool, specs in by_pool.items():
            await to.intake.limiting.ensure_all(pool, {spec.tenant for spec in specs.values()})
            for n, answer in zip(specs, await to.queue.submit_many(pool, specs.values()), strict=True):
                answers[n] = answer if isinstance(answer, FairlaneError) else answer.id
        return [answers[n] for n in range(len(asked))]

    async def job(self, job_id: str, wait_s: float = 0.0) -> Job:
        to = await self._open()
        found = await (to.waiting.job(job_id, wait_s) if wait_s else to.queue.inspect.outcome(job_id))
        return Job.parse(job_view(found))

    @property
    def archive(self) -> Archive:
        no_archive()

    async def events(self, job_id: str, after: str | None) -> AsyncGenerator[Event]:
        to = await self._open()
        if not Head.decode((await to.queue.inspect.outcome(job_id)).head).stream:
            raise IllegalTransition("This job was not submitted with `stream=True`. Ask for its result.")
        start = Position.parse(after) if after else None
        heard = False
        async with aclosing(to.streams.events(job_id, start)) as items:
            async for item in items:
                if isinstance(item, Ended):
                    if not (heard or start) and item.job.result:
                        for event in whole_answer(item.job.result):
                            yield event
                elif isinstance(item, Pause):
                    yield PULSE
                else:
                    heard = True
                    for event in item:
                        # a backend may have ids of its own
                        yield replace(event_of(event.data), id=str(event.position))

    async def cancel(self, job_id: str) -> Job:
        to = await self._open()
        await to.queue.cancel(job_id)
        return Job.parse(job_view(await to.queue.inspect.outcome(job_id)))

    async def requeue(self, job_id: str) -> Job:
        to = await self._open()
        await to.queue.requeue(job_id)
        return Job.parse(job_view(await to.queue.inspect.outcome(job_id)))

    async def page(self, state: str | None, tier: str | None, cursor: str | None) -> Page:
        raise NotSupported("Jobs are listed by the front door only. Give the client its URL (http://…).")

    async def explain(self, job_id: str) -> Mapping[str, Json]:
        to = await self._open()
        job = await to.queue.inspect.outcome(job_id)
        pool = await to.queue.pools.by_name(job.pool)
        why = await to.queue.inspect.explain(job_id)
        waits = why.state in ("queued", "delayed")
        estimate = await to.estimates.of(pool, why, job.not_before_ms) if waits else None
        return explain_view(why, pool, await to.estimates.load(pool), estimate)

    async def close(self) -> None:
        self._opened = None
        await self._stack.aclose()

    async def _open(self) -> _Opened:
        async with self._opening:
            if self._opened is None:
                queue = await Queue.open(self._url, namespace=self._namespace)
                self._stack.push_async_callback(queue.close)
                signals = await self._stack.enter_async_context(queue.signals())
                waiting = Waiting(queue, signals)
                self._stack.push_async_callback(waiting.close)
                self._opened = _Opened(
                    queue,
                    Intake(queue, guard=self._guard),
                    waiting,
                    Streams(queue, signals),
                    Estimates(queue),
                )
            return self._opened

    async def _queue(self) -> Queue:
        return (await self._open()).queue

    @staticmethod
    async def _pool(intake: Intake, model: str, known: dict[str, Pool | FairlaneError]) -> Pool:
        """Asks for each model once. Raises ModelNotFound."""
        if model not in known:
            try:
                known[model] = await intake.pool(model)
            except FairlaneError as error:
                known[model] = error
        found = known[model]
        if isinstance(found, FairlaneError):
            raise found
        return found


def _guard() -> Guard:
    """Where webhooks may go, as this process's environment says. (A bare client has not all that Settings need.)"""
    return Guard.of(os.environ.get("FAIRLANE_WEBHOOK_ALLOW", ""), os.environ.get("FAIRLANE_WEBHOOK_PORTS", PORTS))
