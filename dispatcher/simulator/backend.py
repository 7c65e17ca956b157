"""A modelled backend under the virtual clock: the engine of dispatcher.backends.timing, and what its page shows.

A request that arrives during a step waits for the next one. Steps that are all alike are taken in one go, and cut where
somebody arrives or leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, cast

from dispatcher.backends.sequences import Order
from dispatcher.backends.timing import Engine, Step, Stride
from dispatcher.simulator.clock import Clock
from dispatcher.simulator.profile import Profile
from dispatcher.simulator.request import Request

MOST_STEPS: Final = 1_000_000
Answered = Callable[[Request], None]


@dataclass(frozen=True, slots=True)
class Page:
    """What /metrics shows: as of the end of the last step. `token_s` is the sum of the times between tokens."""

    running: int = 0
    waiting: int = 0
    kv: float = 0.0
    progress: int = 0
    token_s: float = 0.0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Use:
    """What one backend did in a run. `busy_ms`: it had work for so long; `wasted_tokens` were computed in vain."""

    name: str
    busy_ms: float
    preemptions: int
    wasted_tokens: int
    prompt_tokens: int
    answer_tokens: int


class Backend:
    """One engine that steps as long as it has work."""

    def __init__(self, name: str, clock: Clock, profile: Profile, order: Order | None = None) -> None:
        self.name = name
        self.profile = profile
        self.engine = Engine(profile.speed, order or Order())
        self.busy_ms = 0.0
        self._clock = clock
        self._answered: dict[Request, Answered] = {}
        self._coming: dict[Request, Answered] = {}  # on their way
        self._stride: Stride | None = None
        self._began_ms = 0.0
        self._counted = 0  # steps of the stride that the engine was told of
        self._planned = 0  # strides whose end was planned; all but the last plan are void
        self._running = self._waiting = 0  # as the last step showed them
        self._token_ms, self._tokens = 0.0, 0

    # --- from outside -------------------------------------------------------------------------------------------------

    def send(self, request: Request, answered: Answered) -> None:
        """`answered` is called when its answer is complete; never, if it is taken out before."""
        self._coming[request] = answered
        self._clock.after(self.profile.overhead_ms, lambda: self._arrive(request))

    def take(self, request: Request) -> None:
        """Out of it, with what was computed for it: `send` it elsewhere and it goes on from there."""
        if self._coming.pop(request, None) is None and self._answered.pop(request, None) is not None:
            self._catch_up()
            self._cut()
            self.engine.abort(request)

    def has_place(self, request: Request) -> bool:
        """Whether it would run from the next step on; those that wait and those on their way go before it."""
        self._catch_up()
        return self.engine.holds([*self._coming, request])

    def made(self) -> Iterable[tuple[Request, int]]:
        """Each request in it, with the number of tokens that it has made by now."""
        self._catch_up()
        return ((request, request.made) for request in self._answered)

    @property
    def running(self) -> int:
        return len(self.engine.running)

    @property
    def waiting(self) -> int:
        """Also those on their way."""
        return len(self.engine.waiting) + len(self._coming)

    @property
    def queue(self) -> list[Request]:
        """Those that wait, in the engine's order, and those on their way; what the engine says of all is up to date."""
        self._catch_up()
        return [*cast("list[Request]", self.engine.waiting), *self._coming]

    @property
    def load(self) -> int:
        """Requests that it has."""
        return len(self._answered) + len(self._coming)

    @property
    def kv(self) -> float:
        """The share of the cache in use."""
        self._catch_up()
        return self.engine.kv

    @property
    def kv_needed(self) -> int:
        """Tokens of cache that all it has would fill: those who run, wait, and come."""
        self._catch_up()
        return sum([request.need for request in self._answered]) + sum([request.need for request in self._coming])

    def page(self) -> Page:
        """What its metrics show."""
        steps = self._catch_up()
        stride, engine = self._stride, self.engine
        return Page(
            running=self._running,
            waiting=self._waiting if not steps or stride is None else stride.waiting,
            kv=engine.kv,
            progress=engine.prompt_tokens + engine.answer_tokens,
            token_s=self._token_ms / 1000,
            tokens=self._tokens,
        )

    @property
    def use(self) -> Use:
        engine = self.engine
        return Use(
            self.name, self.busy_ms, engine.preemptions, engine.wasted_tokens, engine.prompt_tokens,
            engine.answer_tokens,
        )  # fmt: skip

    # --- steps --------------------------------------------------------------------------------------------------------

    def _arrive(self, request: Request) -> None:
        answered = self._coming.pop(request, None)
        if answered is None:
            return  # taken out on its way
        self._answered[request] = answered
        self.engine.add(request)
        if self._stride is None:
            self._go_on()
        else:
            self._cut()

    def _go_on(self) -> None:
        if self.engine.idle:
            return
        self._stride = self.engine.begin(MOST_STEPS)
        self._counted = 0
        self._began_ms = self._clock.now
        self._plan(self._stride.steps)

    def _plan(self, steps: int) -> None:
        stride = self._stride
        if stride is None:
            return
        self._planned += 1
        plan = self._planned
        self._clock.at(self._began_ms + stride.ms(steps), lambda: self._end(plan, steps))

    def _cut(self) -> None:
        """Somebody came or left: the stride ends with the step that is under way."""
        stride = self._stride
        if stride and stride.steps > 1 and (steps := self._steps_by_now() + 1) < stride.steps:
            self._plan(steps)

    def _steps_by_now(self) -> int:
        """Whole steps of the stride that are over; never all of them: the last one ends with the stride."""
        stride = self._stride
        if stride is None or stride.steps == 1:
            return 0
        passed = self._clock.now - self._began_ms
        least, most = 0, stride.steps - 1
        while least < most:
            half = (least + most + 1) // 2
            least, most = (half, most) if stride.ms(half) <= passed else (least, half - 1)
        return least

    def _catch_up(self) -> int:
        """The engine as it is now: with the tokens of those steps of the stride that are over. Returns how many."""
        steps = self._steps_by_now()
        if self._stride:
            self._count(self._stride, steps)
        return steps

    def _count(self, stride: Stride, steps: int) -> None:
        ms = stride.ms(steps) - stride.ms(self._counted)
        self._token_ms += len(stride.makes) * ms
        self._tokens += self.engine.pass_by(steps)
        self._counted = steps

    def _end(self, plan: int, steps: int) -> None:
        stride = self._stride
        if plan != self._planned or stride is None:
            return
        self._count(stride, steps)
        step = self.engine.end(steps)
        self._stride = None
        self.busy_ms += step.ms
        self._running, self._waiting = step.running, step.waiting
        answered = self._hand_out(step)
        self._go_on()  # the next step begins before any answer can have led to another request
        for act, request in answered:
            act(request)

    def _hand_out(self, step: Step) -> list[tuple[Answered, Request]]:
        now = self._clock.now
        for request in cast("tuple[Request, ...]", step.first):
            if math.isnan(request.first_ms):  # else it was preempted, or came from elsewhere
                request.first_ms = now
        finished = cast("tuple[Request, ...]", step.finished)
        for request in finished:
            request.done_ms = now
            self.engine.order.ended(request, now)
        return [(self._answered.pop(request), request) for request in finished]
