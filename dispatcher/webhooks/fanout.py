"""From outcomes to deliveries: part of the sweeper's office.

An event is acknowledged once its deliveries are in the outbox, whose ids follow from the event: done again after a
crash, it makes the same ones, which changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import structlog

from dispatcher.webhooks.rules import lane_rules
from fairlane.batches.ledger import Ledger
from fairlane.errors import FairlaneError, NotFound
from fairlane.head import Head
from fairlane.model import Job, JobError
from fairlane.queue.engine import Queue
from fairlane.queue.hooks import EVENTS, HookEvent
from fairlane.queue.pools import Pool
from fairlane.safe_url import Guard
from fairlane.settings import Settings
from fairlane.webhooks import payload, values
from fairlane.webhooks.delivery import Disabled, NewDelivery, Sending
from fairlane.webhooks.endpoints import Webhooks
from fairlane.webhooks.making import deliveries
from fairlane.webhooks.outbox import Outbox
from fairlane.webhooks.values import Endpoint

LOOK_S: Final = 0.2
TROUBLE_S: Final = 0.5
AT_ONCE: Final = 50  # events whose deliveries are added and acknowledged together
log = structlog.get_logger()


class Fanout:
    """Makes deliveries of what the pools, and the batches, say has ended."""

    def __init__(self, queue: Queue, settings: Settings) -> None:
        self._queue = queue
        self._outbox = Outbox(queue.store, lane_rules(settings))
        self._batches = Ledger(queue.store)
        self._public_url = settings.public_url or ""

    async def run(self, pool: Pool) -> None:
        """Until it is cancelled; errors of Redis are waited out."""
        while True:
            pause_s = TROUBLE_S
            try:
                looked = await self.jobs(pool)
                await self.batches()
                pause_s = 0.0 if looked == EVENTS else LOOK_S
            except FairlaneError as error:
                log.warning("webhooks_not_made", pool=pool.name, error=error.code, message=error.message)
            except Exception:
                log.exception("fanout_broke", pool=pool.name)
            await asyncio.sleep(pause_s)

    async def jobs(self, pool: Pool) -> int:
        """The next of a pool's outcomes; how many events were looked at."""
        looked, events = await self._queue.hooks.events(pool)
        wanted: dict[str, list[Endpoint]] = {}  # by tenant: asked once
        for start in range(0, len(events), AT_ONCE):
            part = events[start : start + AT_ONCE]
            made: list[NewDelivery] = []
            await self._ask(wanted, {event.tenant for event in part} - wanted.keys())
            for event, (job, large) in zip(part, await self._ended(pool, part), strict=True):
                with _whatever_happens(event.job):
                    made += self._of_job(event, job, large, wanted[event.tenant])
            await self._outbox.add(made)
            await self._queue.hooks.ack(pool, part)
        return looked

    async def _ask(self, wanted: dict[str, list[Endpoint]], tenants: Set[str]) -> None:
        """What these tenants have, all at once: one after the other, each would wait for the disk."""
        found = await asyncio.gather(*(self._outbox.enabled_endpoints(tenant) for tenant in tenants))
        wanted.update(zip(tenants, found, strict=True))

    async def batches(self) -> None:
        """The batches that have ended. Any number may do this at the same time."""
        for batch_id, at_ms in await self._outbox.batch_events(AT_ONCE):
            with _whatever_happens(batch_id):
                await self._outbox.add(await self._of_batch(batch_id, at_ms))
            await self._outbox.done_batch(batch_id)

    async def _of_batch(self, batch_id: str, at_ms: int) -> list[NewDelivery]:
        try:
            batch = (await self._batches.load(batch_id)).view
        except NotFound:
            log.warning("batch_gone_before_its_webhook", batch=batch_id)
            return []
        type_ = f"batch.{batch.status}"
        endpoints = await self._outbox.endpoints_for(batch.tenant, type_)
        if not endpoints and batch.webhook is None:
            return []
        body = payload.batch_event(batch, at_ms)
        return deliveries(
            batch_id, str(at_ms), type_, body, tenant=batch.tenant, endpoints=endpoints, webhook=batch.webhook
        )

    async def _ended(self, pool: Pool, events: Sequence[HookEvent]) -> list[tuple[Job | None, bool]]:
        """Their jobs, if they are still there; True: without its result, which is too large to be sent."""
        ids = [event.job for event in events]
        here = {job.id: job for job in await self._queue.inspect.jobs(pool, ids)}
        results = await self._queue.hooks.results(pool, ids, payload.RESULT_MOST)
        found: list[tuple[Job | None, bool]] = []
        for id_, result in zip(ids, results, strict=True):
            if id_ in here:
                found.append((replace(here[id_], result=result or None), result is None))
            else:
                found.append((await self._elsewhere(id_), False))
        return found

    async def _elsewhere(self, job_id: str) -> Job | None:
        """A job that was dead, was requeued, and has been moved since."""
        try:
            return await self._queue.inspect.outcome(job_id)
        except NotFound:
            return None

    def _of_job(
        self, event: HookEvent, job: Job | None, large: bool, endpoints: Sequence[Endpoint]
    ) -> list[NewDelivery]:
        if job is None:
            log.warning("job_gone_before_its_webhook", job=event.job)
            return []
        if job.state != event.state:
            job, large = _as_it_was(job, event), False
        type_, webhook = f"job.{event.state}", Head.decode(job.head).webhook
        wanting = [one for one in endpoints if one.wants(type_)]
        if not wanting and webhook is None:
            return []
        body = payload.job_event(job, event.id, self._public_url, large=large)
        return deliveries(job.id, event.id, type_, body, tenant=event.tenant, endpoints=wanting, webhook=webhook)


@contextmanager
def _whatever_happens(subject: str) -> Generator[None]:
    """What cannot be told of must not hold up all else for ever."""
    try:
        yield
    except FairlaneError:
        raise
    except Exception:
        log.exception("webhook_not_made", subject=subject)


def _as_it_was(job: Job, event: HookEvent) -> Job:
    """A job that was dead and has been requeued since: of that outcome, its attempts are what is left."""
    at_ms = int(event.id.partition("-")[0])
    attempts = tuple(one for one in job.attempts if one.started_at_ms <= at_ms)
    error = JobError("requeued", "It had used up its attempts, and was requeued since. They tell what failed.")
    return replace(
        job, state=event.state, dead=True, finished_at_ms=at_ms, attempts=attempts,
        status=None, result=None, error=error, usage=None,
    )  # fmt: skip


class Alarm:
    """Tells a tenant's other endpoints that one was disabled, and the pools if nothing is left that wants jobs."""

    def __init__(self, queue: Queue, settings: Settings) -> None:
        self._outbox = Outbox(queue.store, lane_rules(settings))
        self._webhooks = Webhooks(queue, Guard.of(settings.webhook_allow, settings.webhook_ports))

    async def __call__(self, sending: Sending, reason: Disabled) -> None:
        """`sending`: the delivery that brought it about. May raise what the queue's methods do, and do it again."""
        if sending.endpoint_id is None:
            return
        endpoint = await self._webhooks.get(sending.tenant, sending.endpoint_id)
        others = await self._outbox.endpoints_for(sending.tenant, values.DISABLED)
        at_ms = round(1000 * time.time())
        body = payload.disabled_event(endpoint, at_ms)
        await self._outbox.add(
            deliveries(
                endpoint.id, sending.id, values.DISABLED, body,
                tenant=sending.tenant, endpoints=[one for one in others if one.id != endpoint.id],
            )
        )  # fmt: skip
        await self._webhooks.copy_hooks_to_all(sending.tenant)
