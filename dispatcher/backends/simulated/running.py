"""The engine in real time: one task steps the pure timing model, sleeps for as long as a step takes, hands out tokens.

A step's effects show at its end. The next one begins where the last was planned to end, so that what Python itself
needs does not slow the simulated engine; only if it is far behind (the machine was busy) is the lost time given up.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final, cast

from dispatcher.backends.sequences import ByPriority, Order, Sequence
from dispatcher.backends.simulated.answers import Finish
from dispatcher.backends.simulated.metrics import Metrics
from dispatcher.backends.timing import Engine, Speed, Step

BEHIND_MOST_S: Final = 0.5


@dataclass(slots=True, eq=False, kw_only=True)
class Request(Sequence):
    """One request in the engine. `out` of `answer` tokens were handed out; `changed` is set when there is news.

    For a request that is not streamed, news is only its end: `finish` says how it ended. Times are monotonic seconds,
    0 as long as it did not happen.
    """

    ending: Finish  # how its answer ends if nothing comes between
    max_tokens: int
    streamed: bool = False
    pooling: bool = False  # for an embedding: its prompt is read, no token is made
    out: int = 0
    finish: Finish | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    arrived_s: float = field(default_factory=time.monotonic)
    scheduled_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0


class RunningEngine:
    """Give it requests by `add`, take them back by `abort`, and keep `run` running."""

    def __init__(self, speed: Speed, metrics: Metrics, *, by_priority: bool) -> None:
        self.metrics = metrics
        self._engine = Engine(speed, ByPriority() if by_priority else Order())
        self._inbox: list[Request] = []  # what arrived since the step began: the model sees it when the next one does
        self._arrived = asyncio.Event()

    def add(self, request: Request) -> None:
        self._inbox.append(request)
        self._arrived.set()

    def abort(self, request: Request) -> None:
        """The caller is gone. Its slot is free at once; nothing happens if the request has ended already."""
        if request.finish is not None:
            return
        self._end(request, "abort")
        if request in self._inbox:
            self._inbox.remove(request)
        else:
            self._engine.abort(request)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        planned_s = time.monotonic()
        while True:
            self._take_in()
            if self._engine.idle:
                self._arrived.clear()
                await self._arrived.wait()
                planned_s = time.monotonic()
                continue
            read = self._engine.prompt_tokens
            step = self._engine.step()
            self._mark_scheduled(step, planned_s)
            planned_s = max(planned_s + step.ms / 1000, time.monotonic() - BEHIND_MOST_S)
            await asyncio.sleep(max(0.0, planned_s - time.monotonic()))
            self._hand_out(step, self._engine.prompt_tokens - read)

    def _take_in(self) -> None:
        for request in self._inbox:
            self._engine.add(request)
        self._inbox.clear()

    def _mark_scheduled(self, step: Step, now_s: float) -> None:
        for request in cast("list[Request]", [*self._engine.running, *step.finished]):
            if not request.scheduled_s:
                request.scheduled_s = max(now_s, request.arrived_s)

    def _hand_out(self, step: Step, read: int) -> None:
        now_s = time.monotonic()
        for request in cast("tuple[Request, ...]", step.grown):
            # After a preemption tokens are made again, which the caller has already.
            if request.finish is None and request.made > request.out:
                self._hand_out_token(request, now_s)
        for request in cast("tuple[Request, ...]", step.finished):
            if request.finish is None:
                self._observe_finished(request)
                self._end(request, request.ending)
        metrics = self.metrics
        metrics.step_tokens.observe(read + len(step.grown))
        metrics.running, metrics.waiting = len(self._engine.running), len(self._engine.waiting)
        metrics.kv, metrics.preemptions = self._engine.kv, self._engine.preemptions

    def _hand_out_token(self, request: Request, now_s: float) -> None:
        metrics = self.metrics
        if not request.first_s:
            request.first_s = now_s
            metrics.first_token.observe(now_s - request.arrived_s)
            metrics.prompt_tokens += request.prompt
        else:
            metrics.inter_token.observe(now_s - request.last_s)
        metrics.generation_tokens += not request.pooling
        request.last_s = now_s
        request.out += 1
        if request.streamed:
            request.changed.set()

    def _observe_finished(self, request: Request) -> None:
        metrics = self.metrics
        scheduled_s, first_s, last_s = request.scheduled_s, request.first_s, request.last_s
        metrics.whole.observe(last_s - request.arrived_s)
        metrics.queue.observe(scheduled_s - request.arrived_s)
        metrics.inference.observe(last_s - scheduled_s)
        metrics.prefill.observe(first_s - scheduled_s)
        metrics.decode.observe(last_s - first_s)
        metrics.prompt.observe(request.prompt)
        if not request.pooling:
            metrics.generation.observe(request.out)
            metrics.per_token.observe((last_s - first_s) / (request.out - 1) if request.out > 1 else 0.0)
            metrics.max_tokens.observe(request.max_tokens)

    def _end(self, request: Request, finish: Finish) -> None:
        request.finish = finish
        self.metrics.finished[finish] += 1
        request.changed.set()
