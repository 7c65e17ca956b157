"""How long an inference server takes: a model of continuous batching, without a clock and without I/O.

Each step admits waiting sequences while there is a slot and room in the KV cache, gives prompts that are not yet
read a share of the step's token budget (chunked prefill), and makes one token for every other sequence. A step takes
longer the more it does, so that speeds fall with load. When the KV cache is full, the sequence that the engine's order
puts last is preempted: it waits again at its old place, and all that was computed for it is computed again; the tokens
that it had made are kept, and read as if they belonged to the prompt (recompute, as in vLLM).
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from dispatcher.backends.sequences import Order, Sequence

DEFAULT_STEP_MS: Final = 8.0
_PLACE: Final = attrgetter("place")


@dataclass(frozen=True, slots=True)
class Speed:
    """An engine's size and speed. Times in ms, sizes in tokens.

    A step takes `step_ms` + `sequence_ms` for each sequence that makes a token + `prompt_token_ms` for each prompt
    token that is read in it, of which there are `step_tokens` at the most, + `kv_token_ms` for each token that the
    sequences which make one hold in the cache. The cache is given out in blocks of `block_tokens`.
    """

    slots: int = 8
    kv_tokens: int = 1_000_000
    step_tokens: int = 2048
    step_ms: float = DEFAULT_STEP_MS
    sequence_ms: float = 0.05
    prompt_token_ms: float = 0.02
    kv_token_ms: float = 0.0
    block_tokens: int = 1


@dataclass(frozen=True, slots=True)
class Stride:
    """Steps that are all alike: who reads how much, who makes a token in each. `steps` is 1 unless all only make.

    The first takes `first_ms`, each other one `more_ms` longer than the one before.
    """

    reads: list[tuple[Sequence, int]]
    makes: list[Sequence]
    steps: int
    first_ms: float
    more_ms: float
    waiting: int

    def ms(self, steps: int) -> float:
        """How long so many of them take."""
        return steps * self.first_ms + self.more_ms * steps * (steps - 1) / 2


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did, or several alike: how long it took, who made a token in each (`grown`), who is finished.

    `first` are those of `grown` that made none before since they were admitted. `running` and `waiting` are what vLLM's
    gauges show from its end until the end of the next one: those who finished have left, and those who arrived since it
    began are not counted.
    """

    ms: float
    grown: tuple[Sequence, ...]
    first: tuple[Sequence, ...]
    finished: tuple[Sequence, ...]
    running: int
    waiting: int


@dataclass(slots=True)
class Engine:
    """The state of one engine. `add` and `abort` come from outside; `step` moves it on by one iteration.

    Whoever has a clock may see the future instead: `begin` says what comes next and how long it takes, `pass_by` that
    the first steps of it are over, `end` that it happened, or only the first steps of it.
    """

    speed: Speed
    order: Order = field(default_factory=Order)
    waiting: list[Sequence] = field(default_factory=lambda: list[Sequence]())
    running: list[Sequence] = field(default_factory=lambda: list[Sequence]())
    prompt_tokens: int = 0
    answer_tokens: int = 0
    preemptions: int = 0
    wasted_tokens: int = 0  # that were computed and thrown away
    _fresh: list[Sequence] = field(default_factory=lambda: list[Sequence]())  # run, and made no token since admitted
    _held: int = 0  # KV tokens of those who run, kept as a sum: a step must be cheap
    _need: int = 0  # … and when all their prompts are read
    _fill: int = 0  # … and when each has made one more, in whole blocks; only while it is decided who runs
    _came: int = 0
    _stride: Stride | None = None
    _over: int = 0  # steps of the stride that were counted already

    @property
    def kv(self) -> float:
        """The share of the KV cache in use."""
        return self._held / self.speed.kv_tokens

    @property
    def held(self) -> int:
        """KV tokens in use."""
        return self._held

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running

    def add(self, sequence: Sequence) -> None:
        """A request arrives, from the next step on; one that was moved here brings what was computed for it."""
        self._came += 1
        sequence.place = (self.order.key(sequence), self._came)
        insort(self.waiting, sequence, key=_PLACE)

    def abort(self, sequence: Sequence) -> None:
        """The caller went away: its slot and its cache are free again. Nothing happens if it is not here any more."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        elif sequence in self.running:
            self._leave(sequence)
            if self._stride:
                self._stride.reads[:] = [(one, n) for one, n in self._stride.reads if one is not sequence]
                self._stride.makes[:] = [one for one in self._stride.makes if one is not sequence]

    def holds(self, coming: list[Sequence]) -> bool:
        """Whether all that run and wait and those who come could run at once, from the next step on."""
        others = len(self.running) + len(self.waiting) + len(coming) - 1
        under_way = 1 if self._stride else 0  # the token that each is about to make
        return self._is_room(others, self._filled(self.running, 1 + under_way) + self._filled(self.waiting + coming))

    def step(self) -> Step:
        """One iteration. Call it while the engine is not idle."""
        self.begin()
        return self.end()

    def begin(self, most: int = 1) -> Stride:
        """Admits whom there is room for, and says what comes next: one step, or up to `most` that are all alike."""
        self._fill = self._filled(self.running)
        if everybody_stays := self._make_room():
            if self.order.takes_place:
                self._give_place()
            self._admit()
        reads, unread, read = self._read()
        makes = [one for one in self.running if one not in unread] if unread else self.running.copy()
        held = self._held - sum([one.held for one in unread])
        speed = self.speed
        ms = speed.step_ms + speed.sequence_ms * len(makes) + speed.prompt_token_ms * read + speed.kv_token_ms * held
        steps = self._alike(most) if most > 1 and everybody_stays and not self._fresh else 1
        self._stride, self._over = Stride(reads, makes, steps, ms, speed.kv_token_ms * len(makes), len(self.waiting)), 0
        return self._stride

    def pass_by(self, steps: int) -> int:
        """So many steps of what began are over, fewer than all; it goes on. Returns how many tokens that are more."""
        stride = self._stride
        if stride is None or steps <= self._over:
            return 0
        made = (steps - self._over) * len(stride.makes)
        for sequence in stride.makes:
            sequence.made += steps - self._over
        self._over = steps
        self._held += made
        self._need += made
        self.answer_tokens += made
        return made

    def end(self, steps: int | None = None) -> Step:
        """So many steps of what began are over; None: all."""
        stride = self._stride
        if stride is None:
            raise RuntimeError("Nothing began.")
        n = stride.steps if steps is None else steps
        for sequence, chunk in stride.reads:
            sequence.read += chunk
            self._held += chunk
            self.prompt_tokens += chunk
        self.pass_by(n)
        self._stride = None
        ending = stride.makes if n == stride.steps else []  # nobody finishes before the last step
        finished = [sequence for sequence in ending if sequence.made >= sequence.answer]
        first = [sequence for sequence in self._fresh if sequence.made > sequence.again]
        if first:
            self._fresh = [sequence for sequence in self._fresh if sequence.made == sequence.again]
        for sequence in finished:
            self._leave(sequence)
        return Step(
            stride.ms(n), tuple(stride.makes), tuple(first), tuple(finished), len(self.running), stride.waiting
        )  # fmt: skip

    def _read(self) -> tuple[list[tuple[Sequence, int]], set[Sequence], int]:
        """Who reads how much in the next step, who of them comes to no end with it, and how much they read in all."""
        budget = self.speed.step_tokens
        reads, unread = list[tuple[Sequence, int]](), set[Sequence]()
        for sequence in self._fresh:
            left = sequence.to_read - sequence.read
            if left > 0:
                chunk = min(budget, left)
                budget -= chunk
                reads.append((sequence, chunk))
                if chunk < left:
                    unread.add(sequence)  # the step that reads the end of a prompt makes its first token
        return reads, unread, self.speed.step_tokens - budget

    def _alike(self, most: int) -> int:
        """How many steps nobody finishes before, nobody is preempted in, and no threshold of the order lies within."""
        running, speed = self.running, self.speed
        steps = min(most, min([one.answer - one.made for one in running]))
        if len(running) > 1:  # one alone is never preempted
            steps = min(steps, (speed.kv_tokens - self._need) // len(running) - (speed.block_tokens - 1))
        if self.order.takes_place and self.waiting:
            for sequence in running:
                threshold = self.order.to_threshold(sequence)
                if threshold is not None:
                    steps = min(steps, threshold)
        return max(1, steps)

    # --- who runs -----------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        while self.waiting and self._has_place(self.waiting[0]):
            self._start(self.waiting.pop(0))

    def _start(self, sequence: Sequence) -> None:
        sequence.read = max(sequence.read, min(sequence.cached, sequence.prompt - 1))
        self._held += sequence.held
        self._need += sequence.need
        self._fill += self._filled([sequence])
        self.running.append(sequence)
        self._fresh.append(sequence)

    def _has_place(self, sequence: Sequence) -> bool:
        return self._is_room(len(self.running), self._fill + self._filled([sequence]))

    def _is_room(self, others: int, fill: int) -> bool:
        """For one more beside so many `others`, if all together then `fill` so much. One alone always may run."""
        return others == 0 or (others < self.speed.slots and fill <= self.speed.kv_tokens)

    def _filled(self, sequences: list[Sequence], more: int = 1) -> int:
        """KV tokens, in whole blocks, that these fill when each has made so many more."""
        block = self.speed.block_tokens
        up = block - 1 + more
        return block * sum([(one.prompt + one.made + up) // block for one in sequences])

    def _give_place(self) -> None:
        """Evicts those that come after one that waits, if that makes a place for it."""
        while self.waiting and not self._has_place(self.waiting[0]):
            first = self.waiting[0]
            out = self._who_goes_for(first)
            if not out:
                return
            for sequence in out:
                self._evict(sequence)
            self.waiting.remove(first)
            self._start(first)

    def _who_goes_for(self, first: Sequence) -> list[Sequence]:
        """Those that come after it, the last ones first, and no more than it takes; none if all of them are too few."""
        exposed = [(*self._last(one), one) for one in self.running if self.order.exposed(one)]
        later = sorted([each for each in exposed if each[0] > first.place[0]])
        others, fill = len(self.running), self._fill + self._filled([first])
        out = list[Sequence]()
        while later and not self._is_room(others, fill):
            out.append(later.pop()[2])
            others, fill = others - 1, fill - self._filled(out[-1:])
        if not self._is_room(others, fill):
            return []
        for sequence in out[-2::-1]:  # a large one that went last may have made room enough without those before it
            if self._is_room(others + 1, fill + self._filled([sequence])):
                others, fill = others + 1, fill + self._filled([sequence])
                out.remove(sequence)
        return out

    def _make_room(self) -> bool:
        """Preempts until everyone who goes on has room for one more token. One sequence alone always may go on.

        False if someone was preempted: then nobody is admitted in this step.
        """
        before = self.preemptions
        while len(self.running) > 1 and self._fill > self.speed.kv_tokens:
            self._evict(max(self.running, key=self._last))
        return self.preemptions == before

    def _last(self, sequence: Sequence) -> tuple[float, int]:
        return self.order.key(sequence), sequence.place[1]

    def _evict(self, sequence: Sequence) -> None:
        self._leave(sequence)
        self._fill -= self._filled([sequence])
        self.wasted_tokens += sequence.held
        sequence.read, sequence.again = 0, sequence.made  # recompute: all that it held is lost
        sequence.preempted += 1
        self.preemptions += 1
        sequence.place = (self.order.key(sequence), sequence.place[1])
        insort(self.waiting, sequence, key=_PLACE)

    def _leave(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        if sequence in self._fresh:
            self._fresh.remove(sequence)
        self._held -= sequence.held
        self._need -= sequence.need
