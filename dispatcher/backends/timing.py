"""How long an inference server takes: a model of continuous batching, without a clock and without I/O.

Each step admits waiting sequences while there is a slot and room in the KV cache, gives prompts that are not yet
read a share of the step's token budget (chunked prefill), and makes one token for every other sequence. A step takes
longer the more it does, so that speeds fall with load. When the KV cache is full, the sequence that was admitted last
(by priority: of those with the highest number) is preempted: it waits again, before its equals, and its work is done
again (recompute).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

DEFAULT_STEP_MS: Final = 8.0


@dataclass(frozen=True, slots=True)
class Speed:
    """An engine's size and speed. Times in ms, sizes in tokens.

    A step takes `step_ms` + `sequence_ms` for each sequence that makes a token + `prompt_token_ms` for each prompt
    token that is read in it, of which there are `step_tokens` at the most.
    """

    slots: int = 8
    kv_tokens: int = 1_000_000
    step_tokens: int = 2048
    step_ms: float = DEFAULT_STEP_MS
    sequence_ms: float = 0.05
    prompt_token_ms: float = 0.02


@dataclass(slots=True, eq=False)
class Sequence:
    """One request in the engine: how long its prompt and its answer are, and how far it has come.

    `read` and `made` are the engine's to write.
    """

    prompt: int
    answer: int
    priority: int = 0
    read: int = 0
    made: int = 0

    @property
    def held(self) -> int:
        """Tokens of KV cache."""
        return self.read + self.made


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did: how long it took, who made a token (`grown`), and who of them is finished.

    `running` and `waiting` are what vLLM's gauges show from its end until the end of the next one: those who finished
    have left, and those who arrived since it began are not counted.
    """

    ms: float
    grown: tuple[Sequence, ...]
    finished: tuple[Sequence, ...]
    running: int
    waiting: int


@dataclass(slots=True)
class Engine:
    """The state of one engine. `add` and `abort` come from outside; `step` moves it on by one iteration."""

    speed: Speed
    by_priority: bool = False
    waiting: deque[Sequence] = field(default_factory=lambda: deque[Sequence]())
    running: list[Sequence] = field(default_factory=lambda: list[Sequence]())
    prompt_tokens: int = 0
    answer_tokens: int = 0
    preemptions: int = 0
    _held: int = 0  # KV tokens of those who run, kept as a sum: a step must be cheap
    _reserved: int = 0  # … and when all their prompts are read

    @property
    def kv(self) -> float:
        """The share of the KV cache in use."""
        return self._held / self.speed.kv_tokens

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running

    def add(self, sequence: Sequence) -> None:
        """A request arrives: behind the others, or before those of a higher `priority` number (vLLM's order)."""
        place = len(self.waiting)
        while self.by_priority and place and self.waiting[place - 1].priority > sequence.priority:
            place -= 1
        self.waiting.insert(place, sequence)

    def abort(self, sequence: Sequence) -> None:
        """The caller went away: its slot and its cache are free again. Nothing happens if it is not here any more."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        elif sequence in self.running:
            self.running.remove(sequence)
            self._leave(sequence)

    def step(self) -> Step:
        """One iteration. Call it while the engine is not idle."""
        if self._make_room():
            self._admit()
        budget = self.speed.step_tokens
        grown: list[Sequence] = []
        for sequence in self.running:
            if sequence.read < sequence.prompt:
                chunk = min(budget, sequence.prompt - sequence.read)
                sequence.read += chunk
                budget -= chunk
                if sequence.read < sequence.prompt:
                    continue
            sequence.made += 1  # the step that reads the end of a prompt makes its first token
            grown.append(sequence)
        read = self.speed.step_tokens - budget
        self._held += read + len(grown)
        self._reserved += len(grown)
        finished = tuple([sequence for sequence in grown if sequence.made >= sequence.answer])
        if finished:
            self.running = [sequence for sequence in self.running if sequence.made < sequence.answer]
            for sequence in finished:
                self._leave(sequence)
        self.prompt_tokens += read
        self.answer_tokens += len(grown)
        ms = self.speed.step_ms + self.speed.sequence_ms * len(grown) + self.speed.prompt_token_ms * read
        return Step(ms, tuple(grown), finished, len(self.running), len(self.waiting))

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.speed.slots:
            after_step = self._reserved + len(self.running) + self.waiting[0].prompt + 1
            if self.running and after_step > self.speed.kv_tokens:
                return
            self._reserved += self.waiting[0].prompt
            self.running.append(self.waiting.popleft())

    def _make_room(self) -> bool:
        """Preempts until everyone who goes on has room for one more token. One sequence alone always may go on.

        False if someone was preempted: then nobody is admitted in this step.
        """
        before = self.preemptions
        while len(self.running) > 1 and self._reserved + len(self.running) > self.speed.kv_tokens:
            last = self.running.pop(self._last())
            self._leave(last)
            last.read = last.made = 0  # recompute: all that it held is lost
            place = 0
            while self.by_priority and place < len(self.waiting) and self.waiting[place].priority < last.priority:
                place += 1
            self.waiting.insert(place, last)
            self.preemptions += 1
        return self.preemptions == before

    def _last(self) -> int:
        """Who is preempted first: the one admitted last, by priority among those of the highest number."""
        if not self.by_priority:
            return -1
        return max(range(len(self.running)), key=lambda place: (self.running[place].priority, place))

    def _leave(self, sequence: Sequence) -> None:
        self._held -= sequence.held
        self._reserved -= sequence.prompt + sequence.made
