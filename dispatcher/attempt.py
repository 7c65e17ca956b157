"""One attempt at a job: call the backend, judge what came, write it. Every way out ends the lease exactly once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import Final

import structlog

from dispatcher import handover
from dispatcher.backends.answer import Answer, CallFailed
from dispatcher.backends.known import Backends
from dispatcher.holds import Hold
from dispatcher.meters import Meters
from dispatcher.policy.verdict import HandBack, Run, Settle, TryAgain, is_fault, pause_ms, shuts_gate, verdict
from dispatcher.relay import Flow, Relay
from fairlane.errors import FairlaneError
from fairlane.head import Head
from fairlane.model import JobError, Lease, Usage
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool

WRITE_AGAIN_S: Final = 1.0  # at most, between two tries to write while Redis is away
UNREADY_S: Final = (0.3, 0.6)
BROKEN_WRITES: Final = 5
INTERNAL: Final = JobError("internal", "The dispatcher failed. Look at its log.", 500)
log = structlog.get_logger()


class Attempts:
    """Runs attempts for one pool."""

    def __init__(self, queue: Queue, pool: Pool, backends: Backends, meters: Meters) -> None:
        self._queue = queue
        self._pool = pool
        self._backends = backends
        self._meters = meters
        self._relay = Relay(queue, pool)
        self._runs: dict[str, Run] = {}  # by backend

    async def run(self, hold: Hold) -> None:
        """Works for a lease until it has ended."""
        flow = self._relay.open(hold)
        try:
            outcome = await self._call(hold, flow)
            if outcome is not None:
                await flow.finish(whole=isinstance(outcome, Answer))  # who reads the outcome finds all events before it
        finally:
            flow.close()
            hold.spoke = flow.began
            if flow.first_at is not None:
                self._meters.spoke(self._pool.name, hold.lease.tier, flow.first_at - hold.began)
        if hold.stopped == "lost" and not isinstance(outcome, Answer):
            return  # nobody waits for us; an answer that is there is worth a try
        if outcome is None:
            await self._write(hold, lambda: self._queue.release(self._pool, hold.lease))
        else:
            await self._conclude(hold, outcome, flow)

    async def _call(self, hold: Hold, flow: Flow) -> Answer | CallFailed | None:
        """None: it was stopped."""
        lease = hold.lease
        if hold.stopped:
            return None
        hold.calling = True
        try:
            return await handover.call(self._backends, lease, _head(lease.head), flow.hear)
        except CallFailed as failed:
            return failed
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if hold.stopped is None or task is None:
                raise
            task.uncancel()
            return CallFailed("reset", "The backend ended while it ran this.") if hold.stopped == "gone" else None
        finally:
            hold.calling = False

    async def _conclude(self, hold: Hold, outcome: Answer | CallFailed, flow: Flow) -> None:
        lease, pool = hold.lease, self._pool
        fault = is_fault(outcome, own_timeout=_own_timeout(lease.head))
        await self._judge(lease, outcome, fault)
        usage = _usage(outcome, flow)
        body = outcome.body if isinstance(outcome, Answer) else flow.text
        status = outcome.status if isinstance(outcome, Answer) else None
        decided = verdict(outcome, lease.attempt, random.random())
        if isinstance(decided, TryAgain) and flow.began:  # somebody may have read what came
            decided = Settle("failed", decided.error)
        match decided:
            case HandBack():
                if isinstance(outcome, CallFailed) and outcome.fault == "unready":
                    log.warning("not_called", pool=pool.name, backend=lease.backend, reason=outcome.detail)
                    await asyncio.sleep(random.uniform(*UNREADY_S))  # another dispatcher may be luckier
                await self._write(hold, lambda: self._queue.release(pool, lease))
            case Settle(state, error):
                status = status if status is not None else error.status if error else None
                await self._write(
                    hold,
                    lambda: self._queue.settle(
                        pool, lease, state, status=status, result=body, error=error, usage=usage
                    ),
                )
            case TryAgain(delay_ms, error):
                await self._write(
                    hold,
                    lambda: self._queue.retry(
                        pool, lease, error, delay_ms=delay_ms, result=body, usage=usage, fault=fault
                    ),
                )

    async def give_up(self, hold: Hold) -> None:
        """After a fault of our own: the job is tried again, and dead if it has brought down each of its attempts.

        If somebody may have read the start of its answer, it has failed.
        """
        if hold.spoke:
            settle = partial(self._queue.settle, status=INTERNAL.status, error=INTERNAL)
            return await self._write(hold, lambda: settle(self._pool, hold.lease, "failed"))
        pause = pause_ms(hold.lease.attempt, random.random())
        await self._write(hold, lambda: self._queue.retry(self._pool, hold.lease, INTERNAL, delay_ms=pause))

    async def _judge(self, lease: Lease, outcome: Answer | CallFailed, fault: bool) -> None:
        """Shuts the gate of one that is down, or fails whoever comes, until the observer has looked at it.

        That looks a few times a second: meanwhile one that fails at once would take, and fail, hundreds of jobs.
        """
        backend, now = lease.backend, asyncio.get_running_loop().time()
        run = self._runs.get(backend, Run())
        if fault:
            run = self._runs[backend] = run.failed(outcome, lease.tenant)
        elif isinstance(outcome, Answer):
            self._runs[backend] = run.answered(outcome, lease.tenant, now)
            return
        if shuts_gate(outcome, run if fault else Run(), now):
            reason = outcome.detail if isinstance(outcome, CallFailed) else f"it answered {outcome.status}"
            log.warning("backend_down", pool=self._pool.name, backend=backend, reason=reason)
            await self._close_gate(backend)

    async def _close_gate(self, backend: str) -> None:
        try:
            await self._queue.set_backend(self._pool, backend, "down")
        except FairlaneError as error:
            log.warning("backend_not_marked", pool=self._pool.name, backend=backend, error=error.code)

    async def _write(self, hold: Hold, act: Callable[[], Awaitable[str]]) -> None:
        """Writes what became of the attempt, for as long as it takes: an answer is too dear to be thrown away."""
        broken = 0
        while True:
            try:
                state = await act()
            except Exception as error:
                if not isinstance(error, FairlaneError):
                    broken += 1
                    log.exception("write_broke", pool=self._pool.name, job=hold.lease.id)
                    if broken == BROKEN_WRITES:
                        raise
                    await asyncio.sleep(random.uniform(0.1, WRITE_AGAIN_S))
                    continue
                if error.retryable:
                    await asyncio.sleep(random.uniform(0.1, WRITE_AGAIN_S))
                    continue
                log.warning("attempt_not_written", pool=self._pool.name, job=hold.lease.id, error=error.code)
                return
            served_s = asyncio.get_running_loop().time() - hold.began
            self._meters.ended(self._pool.name, hold.lease.tier, state, served_s)
            return


@lru_cache(maxsize=256)  # a tenant's heads are mostly alike
def _head(packed: bytes) -> Head:
    try:
        return Head.decode(packed)
    except ValueError as error:
        raise CallFailed("unsuitable", f"The job cannot be sent: {error}.") from error


def _usage(outcome: Answer | CallFailed, flow: Flow) -> Usage | None:
    """What the backend reports; of a stream that does not, what was seen of it."""
    reported = outcome.usage if isinstance(outcome, Answer) else None
    return Usage(flow.input_tokens, flow.tokens) if reported is None and flow.began else reported


def _own_timeout(packed: bytes) -> bool:
    try:
        return _head(packed).timeout_s is not None
    except CallFailed:
        return False
