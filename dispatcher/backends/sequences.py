"""What an inference server works on: sequences, and in which order it takes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Sequence:
    """One request in the engine: how long its prompt and its answer are, and how far it has come.

    `cached` tokens of the prompt need not be read. From `read` on all is the engine's to write: `again` are those of
    the `made` tokens that must be read again since a preemption threw them away, `place` is where it waits.
    """

    prompt: int
    answer: int
    priority: int = 0
    cached: int = 0
    arrived_ms: float = 0.0
    read: int = 0
    made: int = 0
    again: int = 0
    preempted: int = 0
    place: tuple[float, int] = (0.0, 0)

    @property
    def held(self) -> int:
        """Tokens of KV cache."""
        return self.read + self.made - self.again

    @property
    def to_read(self) -> int:
        """Tokens that must be read before it makes the next one."""
        return self.prompt + self.again

    @property
    def need(self) -> int:
        """Tokens of KV cache that it holds, or will once all is read."""
        return self.prompt + self.made


class Order:
    """In which order an engine serves those that wait, and who must go: by arrival, as vLLM does. Others refine it."""

    takes_place: bool = False  # one that waits may take the place of one that runs and comes after it

    def key(self, sequence: Sequence) -> float:
        """The smaller, the sooner; equals by arrival. Asked when it comes to wait, and while it runs."""
        return 0.0

    def exposed(self, sequence: Sequence) -> bool:
        """Whether somebody may take its place at this step."""
        return True

    def to_threshold(self, sequence: Sequence) -> int | None:
        """After how many more tokens `key` or `exposed` must be asked again though nobody came or went (at least 1)."""
        return None

    def ended(self, sequence: Sequence, now_ms: float) -> None:
        """For orders that learn. `now_ms` is of the clock that `arrived_ms` is of."""


class ByPriority(Order):
    """vLLM's `--scheduling-policy priority`: the lowest number first; the highest goes first when the cache is full."""

    def key(self, sequence: Sequence) -> float:
        return sequence.priority
