"""Several engines behind one address and one page, as vLLM runs them (data parallel)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from dispatcher.backends.sequences import Sequence
from dispatcher.backends.timing import Speed
from dispatcher.simulator.clock import Clock
from tests.virtual.server import Answered, Page, Server

Choice = Callable[[list[Server]], Server]


def least_loaded(engines: list[Server]) -> Server:
    """vLLM's own choice: by what runs, and four times what waits."""
    return min(engines, key=lambda each: 4 * len(each.engine.waiting) + len(each.engine.running))


def in_turn() -> Choice:
    turns = count()
    return lambda engines: engines[next(turns) % len(engines)]


class Engines(Server):
    """Each request goes to one of them for good; the page adds up what runs and waits, and shows the fullest cache."""

    def __init__(self, clock: Clock, speed: Speed, n: int, choice: Choice = least_loaded) -> None:
        super().__init__(clock, speed)
        self.each = [Server(clock, speed) for _ in range(n)]
        self._choice = choice

    def page(self) -> Page | None:
        pages = [page for server in self.each if (page := server.page())]
        return Page(
            running=sum(page.running for page in pages),
            waiting=sum(page.waiting for page in pages),
            kv=max(page.kv for page in pages),
            progress=sum(page.progress for page in pages),
            started_at=pages[0].started_at,
        )

    def work(self) -> float:
        return sum(server.work() for server in self.each)

    def send(self, sequence: Sequence, answered: Answered) -> None:
        self._choice(self.each).send(sequence, answered)
