"""The course of a profile: what is sent to the backend, in which order, within which bounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from dispatcher.simulator.profiling.asking import Answer, Asker
from dispatcher.simulator.profiling.page import Cache, Page, Watched
from dispatcher.simulator.profiling.refusing import UNKNOWN_FIELD, Answered, CannotProfile
from dispatcher.simulator.profiling.seen import Flood, Notes, Prefill, Seen, decode_of, reading_of, side_by_side

ROUNDS: Final = 3
SHORT: Final = 32  # tokens of the prompts that only keep a stream going
FEWEST: Final = 12  # tokens of the shortest answers
LADDER: Final = (0.25, 0.5, 1.0)  # of the longest prompt
READ_MOST: Final = 20_000  # tokens of the prompts that are read at once: more than any engine reads in a step or two
RAMP_SHARE: Final = 0.25  # of the time, for one ramp
READ_SHARE: Final = 0.1  # … and for the prompts that are read at once
KV_SHARE: Final = 0.5  # of the cache that is filled at the most
IDLE_S: Final = 2.0  # in which a page must have become idle
CPU_WALL_S: Final = 0.2  # shorter loads do not tell what this process needs
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """The bounds: seconds in all, requests at once, tokens of the longest prompt and of an answer."""

    seconds: float = 60.0
    most: int = 64
    prompt: int = 1500
    tokens: int = 48

    @property
    def levels(self) -> list[int]:
        """1, 2, 4 … and `most`."""
        return [*(2**n for n in range(self.most.bit_length()) if 2**n < self.most), self.most]

    @property
    def requests(self) -> int:
        """How many are sent at the most."""
        return 3 + ROUNDS * (sum(self.levels) + self.most + len(LADDER) + 1 + 1 + READ_MOST // max(1, self.prompt))


class Course:
    """One profile's load. `run` sends it; `tell` hears what comes next."""

    def __init__(self, asker: Asker, headers: Mapping[str, str], plan: Plan, tell: Tell) -> None:
        self._asker, self._plan, self._tell = asker, plan, tell
        self._page = Page(asker, headers)
        self._notes = Notes()
        self._cache: Cache | None = None
        self._tokens = plan.tokens
        self._prompt_token_ms = 0.0
        self._slots, self._limited = 1, False
        self._levels: list[int] = []
        self._foreign = 0
        self._own_cpu = 0.0
        self._in_time = True

    async def run(self) -> Seen:
        """Takes the plan's seconds at the most. Raises CannotProfile."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._plan.seconds):
                await self._warm_up()
                for n in range(ROUNDS):
                    round_began = time.monotonic()
                    self._tell(f"round {n + 1} of {ROUNDS}")
                    await self._ladder()
                    await self._ramp(first=n == 0)
                    await self._read()
                    took_s = time.monotonic() - round_began
                    if time.monotonic() - began + took_s > self._plan.seconds:
                        break
        except TimeoutError:
            self._in_time = False
            self._tell("the time is over")
        return self._seen()

    def _seen(self) -> Seen:
        notes = self._notes
        levels = len({one.streams for one in notes.decodes})
        few = levels < min(2, self._slots) or len(notes.prefills) < 2
        if few and self._in_time:
            raise CannotProfile(
                "Its tokens cannot be timed: too few came of each answer, or all at one moment. Does it stream each "
                "token as it is made, and nothing in between holds them back? Longer answers may help: --tokens."
            )
        if few:
            raise CannotProfile(
                f"It is too slow to be profiled in {self._plan.seconds:g} s. Give it more time by --seconds, "
                "or less to do by --concurrency, --prompt and --tokens."
            )
        return Seen(
            notes.decodes, notes.prefills, notes.readings, notes.floods,
            self._slots, self._limited,
            self._cache.tokens if self._cache else None,
            self._cache.block_tokens if self._cache else None,
            self._foreign if self._page.shown else None,
            self._own_cpu,
            self._asker.exact,
        )  # fmt: skip

    async def _warm_up(self) -> None:
        """Finds out what the backend takes, what its tokens are, and how many there is time for."""
        self._tell("warming up")
        self._page.shown = await self._page.read() is not None
        self._cache = await self._page.cache()
        try:
            await self._asker.ask(self._asker.prompt(SHORT), FEWEST)
        except Answered as refused:
            if refused.answered not in UNKNOWN_FIELD:
                raise
            self._asker.exact = False  # it may not know `ignore_eos`
            await self._asker.ask(self._asker.prompt(SHORT), FEWEST)
        text = self._asker.prompt(8 * SHORT)
        answer = await self._asker.ask(text, FEWEST)
        self._asker.characters_a_token = max(1.0, len(text) / max(1, answer.prompt))
        step_ms = (answer.last_ms - answer.first_ms) / max(1, answer.answer - 1)
        most = 1000 * self._plan.seconds * RAMP_SHARE / (2 * step_ms * len(self._plan.levels)) if step_ms else 1e9
        self._tokens = max(FEWEST, min(self._plan.tokens, int(most)))

    async def _ladder(self) -> None:
        """Prompts of several lengths, one after the other: what reading them takes."""
        before_ms, before = 0.0, 0
        for length in (SHORT, *(int(self._plan.prompt * share) for share in LADDER)):
            expected_ms = before_ms * length / before if before else 0.0
            if expected_ms > 1000 * self._plan.seconds * READ_SHARE:
                break
            self._tell(f"a prompt of {length} tokens")
            (answer,) = answers = await self._load(1, length, FEWEST)
            self._notes.prefills.append(Prefill(answer.prompt, answer.first_ms - answer.sent_ms))
            self._note(answers)
            before_ms, before = answer.first_ms - answer.sent_ms, max(1, answer.prompt)
        first, last = min(self._notes.prefills, key=_length), max(self._notes.prefills, key=_length)
        if last.prompt > first.prompt:
            self._prompt_token_ms = max(0.0, (last.first_ms - first.first_ms) / (last.prompt - first.prompt))

    async def _ramp(self, *, first: bool) -> None:
        """More and more streams side by side, the first time until some have to wait: then the slots are known."""
        if not first:
            for level in self._levels:
                self._note((await self._wave(level))[0])
            return
        for level in self._plan.levels:
            answers, watched = await self._wave(level)
            held = side_by_side(answers)
            self._limited = held < level and (watched.slots > 0 or not self._page.shown)
            if self._limited:
                self._slots = watched.slots or held
                self._note_flood(answers)
                answers, _ = await self._wave(self._slots)
            else:
                self._slots = level
            self._levels.append(self._slots)
            self._note(answers)
            if self._limited:
                break

    async def _wave(self, level: int) -> tuple[list[Answer], Watched]:
        self._tell(f"{level} at once")
        async with self._page.watched() as watched:
            answers = await self._load(level, SHORT, self._tokens)
        self._foreign = max(self._foreign, watched.foreign)
        return answers, watched

    async def _read(self) -> None:
        """Long prompts while one stream makes tokens: what it is held up by, and how it goes on beside them."""
        count = self._long_prompts()
        if not count:
            return
        self._tell(f"{count} prompts of {self._plan.prompt} tokens at once, beside a stream")
        begun = asyncio.Event()
        text = self._asker.prompt(SHORT)
        metronome = asyncio.create_task(self._asker.ask(text, 2 * self._tokens + FEWEST, begun))
        waiting = asyncio.create_task(begun.wait())
        try:
            await asyncio.wait((metronome, waiting), return_when=asyncio.FIRST_COMPLETED)
            others = await self._load(count, self._plan.prompt, self._tokens)
            answers = [await metronome, *others]
        finally:
            metronome.cancel()
            waiting.cancel()
        self._note(answers)
        if reading := reading_of(answers[0], others):
            self._notes.readings.append(reading)

    def _long_prompts(self) -> int:
        """How many there are places, cache and time for."""
        whole = self._plan.prompt + self._tokens
        most = [self._slots - 1, READ_MOST // self._plan.prompt]
        if self._cache:
            most.append(int(KV_SHARE * self._cache.tokens / whole))
        if self._prompt_token_ms:
            most.append(int(1000 * self._plan.seconds * READ_SHARE / (self._prompt_token_ms * self._plan.prompt)))
        return max(0, min(most))

    # --- sending ------------------------------------------------------------------------------------------------------

    async def _load(self, count: int, prompt: int, answer: int) -> list[Answer]:
        """So many alike at once, on a backend with no other work. Notes what this process itself needed for that."""
        if not self._asker.in_flight:
            await self._idle()
        cpu_s, began_s = time.process_time(), time.monotonic()
        answers = await self._asker.ask_all([self._asker.prompt(prompt) for _ in range(count)], answer)
        wall_s = time.monotonic() - began_s
        if wall_s > CPU_WALL_S:
            self._own_cpu = max(self._own_cpu, (time.process_time() - cpu_s) / wall_s)
        return answers

    async def _idle(self) -> None:
        """Until the page shows that nothing runs there; if that does not come, others use it."""
        if not self._page.shown:
            return
        deadline = time.monotonic() + IDLE_S
        while (reading := await self._page.read()) and reading.running + reading.waiting:
            if time.monotonic() > deadline:
                self._foreign = max(self._foreign, reading.running + reading.waiting)
                return
            await asyncio.sleep(0.02)

    def _note_flood(self, answers: Sequence[Answer]) -> None:
        all_ms = max(one.last_ms for one in answers) - min(one.sent_ms for one in answers)
        answer = median(one.answer for one in answers)
        self._notes.floods.append(Flood(len(answers), answers[0].prompt, int(answer), all_ms))

    def _note(self, answers: Sequence[Answer]) -> None:
        if decode := decode_of(answers):
            self._notes.decodes.append(decode)


def _length(prefill: Prefill) -> int:
    return prefill.prompt
