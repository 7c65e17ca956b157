"""A backend in virtual time: the engine of dispatcher.backends.timing, stepping; its page; and its faults.

A request that arrives during a step waits for the next one. The page shows what vLLM's gauges show: the state at the
end of the last step, when those who finished have left and those who arrived during the step are not yet counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dispatcher.backends.sequences import ByPriority, Order, Sequence
from dispatcher.backends.timing import Engine, Speed, Step
from dispatcher.simulator.clock import Clock

Answered = Callable[[bool], None]  # True: finished; False: the connection was refused or reset


@dataclass(frozen=True, slots=True)
class Page:
    """What /metrics says. `token_s` is the sum of the times between tokens, `tokens` their number."""

    running: int
    waiting: int
    kv: float
    progress: int
    started_at: float
    token_s: float = 0.0
    tokens: int = 0


class Server:
    """One engine that steps as long as it has work.

    `live_gauges`: the page shows what is there at that moment, also those who arrived during a step. vLLM's does not.
    `by_priority`: it serves those of a lower priority number first.
    """

    def __init__(self, clock: Clock, speed: Speed, *, live_gauges: bool = False, by_priority: bool = False) -> None:
        self.clock = clock
        self.engine = Engine(speed, ByPriority() if by_priority else Order())
        self.finished = 0
        self.pages: list[tuple[float, Page]] = []  # at the end of each step: when, what it showed from then on
        self._live_gauges = live_gauges
        self._requests: dict[Sequence, Answered] = {}
        self._step: Step | None = None  # under way
        self._page = Page(0, 0, 0.0, 0, 1.0)
        self._down = self._hangs = False

    def page(self) -> Page | None:
        """None while it is down."""
        if self._down:
            return None
        if not self._live_gauges:
            return self._page
        running = len(self.engine.running) + (len(self._step.finished) if self._step else 0)
        return Page(running, len(self.engine.waiting), self.engine.kv, self._page.progress, self._page.started_at)

    def work(self) -> float:
        """Jobs done since the start. Those under way count as the part of their answer that is made."""
        return self.finished + sum(sequence.made / sequence.answer for sequence in self.engine.running)

    def send(self, sequence: Sequence, answered: Answered) -> None:
        if self._down:
            answered(False)
            return
        self._requests[sequence] = answered
        self.engine.add(sequence)
        self._go_on()

    def resize(self, speed: Speed) -> None:
        """From the next step on. Those who run and still fit in the cache go on."""
        self.engine.speed = speed

    def restart(self, down_ms: float) -> None:
        """All that it has is lost, and for a while it refuses connections."""
        lost, self._requests = self._requests, {}
        self.engine, self._step = Engine(self.engine.speed, self.engine.order), None
        self._down = True
        self.clock.after(down_ms, self._up)
        for answered in lost.values():
            answered(False)

    def hang(self, ms: float) -> None:
        """No step ends for so long: nothing finishes, and the page stays as it is."""
        self._hangs = True
        self.clock.after(ms, self._recover)

    def _up(self) -> None:
        self._down = False
        self._page = Page(0, 0, 0.0, 0, self.clock.now)

    def _recover(self) -> None:
        self._hangs = False
        self._go_on()

    def _go_on(self) -> None:
        if self._step is None and not self._hangs and not self.engine.idle:
            step = self._step = self.engine.step()
            self.clock.after(step.ms, lambda: self._end(step))

    def _end(self, step: Step) -> None:
        if step is not self._step:
            return  # the server died during it
        self._step = None
        progress = self.engine.prompt_tokens + self.engine.answer_tokens
        token_s = self._page.token_s + len(step.grown) * step.ms / 1000
        tokens = self._page.tokens + len(step.grown)
        self._page = Page(step.running, step.waiting, self.engine.kv, progress, self._page.started_at, token_s, tokens)
        self.pages.append((self.clock.now, self._page))
        self.finished += len(step.finished)
        waiting_for_it = [self._requests.pop(sequence) for sequence in step.finished]
        self._go_on()  # the next step begins before any answer can have led to another request
        for answered in waiting_for_it:
            answered(True)
