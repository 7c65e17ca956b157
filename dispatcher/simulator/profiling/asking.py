"""Asks a backend for streamed answers, and notes when each token came."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import httpx

from dispatcher.backends.address import base_url
from dispatcher.simulator.profiling.refusing import (
    ENDPOINT,
    CannotProfile,
    check,
    key_of,
    object_in,
    understood,
    words_in,
)
from dispatcher.simulator.workloads.trace import MOST_TOKENS
from fairlane import sse

# Answers of a known length, and their tokens counted: not every server knows these fields.
_ENDS: Final = re.compile(rb'''^data: ?\[DONE\]|"finish_reason": ?"''', re.MULTILINE)
EXACT: Final[Mapping[str, Any]] = {"ignore_eos": True, "stream_options": {"include_usage": True}}
CHARACTERS_A_TOKEN: Final = 4.0  # where the server does not count
EVENT_MOST: Final = 1_000_000  # bytes
WORDS: Final = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. Times in ms since the asker began; `tokens` are (when, how many came then), the first one first.

    `prompt` and `answer` are tokens, as the server counted them.
    """

    sent_ms: float
    tokens: tuple[tuple[float, float], ...]
    prompt: int
    answer: int

    @property
    def first_ms(self) -> float:
        """When its first token came."""
        return self.tokens[0][0]

    @property
    def last_ms(self) -> float:
        return self.tokens[-1][0]


@dataclass(slots=True)
class _Stream:
    """One answer while it comes. `key` is not repeated in an error."""

    key: str = ""
    arrivals: list[tuple[float, int]] = field(default_factory=lambda: list[tuple[float, int]]())
    usage: Mapping[str, Any] = field(default_factory=lambda: dict[str, Any]())
    characters: int = 0
    ended: bool = False  # it said so; a stream that only breaks off would be taken for a quick one

    def hear(self, event: bytes, now_ms: float) -> None:
        if b'"error"' in event and b'"choices"' not in event:
            raise CannotProfile(f"In the stream the backend said: {words_in(sse.data_of(event) or event, self.key)}")
        self.ended = self.ended or _ENDS.search(event) is not None
        if b'"usage":' in event and isinstance(said := object_in(sse.data_of(event)).get("usage"), dict):
            self.usage = cast("Mapping[str, Any]", said)
        if b'"choices"' not in event or b'"choices":[]' in event or b'"choices": []' in event:
            return
        if not self.arrivals and _opening(event):
            return
        self.arrivals.append((now_ms, 1))

    def answer(self, sent_ms: float, characters: int) -> Answer:
        """All of it has come. Raises CannotProfile if that is nothing."""
        if not self.arrivals:
            raise CannotProfile("The backend answered with a stream without any token.")
        if not self.ended:
            raise CannotProfile("The backend's stream broke off: it has neither a finish_reason nor [DONE].")
        answer = self._counted("completion_tokens") or len(self.arrivals)
        # Fewer events than tokens: some brought several. More: the last one only says that it is over.
        each = answer / min(answer, len(self.arrivals))
        tokens = tuple((at, each) for at, _ in self.arrivals[:answer])
        prompt = self._counted("prompt_tokens") or max(1, int(characters / CHARACTERS_A_TOKEN))
        return Answer(sent_ms, tokens, prompt, answer)

    def _counted(self, name: str) -> int:
        """As the server counted; 0 if that is no number of tokens."""
        count = self.usage.get(name)
        return count if isinstance(count, int) and 1 <= count <= MOST_TOKENS else 0


class Asker:
    """One backend's model, asked. `exact`: answers have the length that is asked for."""

    def __init__(self, client: httpx.AsyncClient, url: str, model: str, headers: Mapping[str, str]) -> None:
        self.client, self.url, self.model = client, base_url(url), model
        self.exact = True
        self.characters_a_token = CHARACTERS_A_TOKEN
        self.sent = self.in_flight = 0
        self._headers = headers
        self._random = random.Random()  # other prompts in each run: the server may remember the last one's
        self._began = time.perf_counter()

    def now_ms(self) -> float:
        return 1000 * (time.perf_counter() - self._began)

    def prompt(self, tokens: float) -> str:
        """About so many tokens of text that no cache of prefixes has seen."""
        words: list[str] = [f"{self._random.getrandbits(40):x}"]
        length = len(words[0])
        while length < tokens * self.characters_a_token:
            words.append(self._random.choice(WORDS))
            length += len(words[-1]) + 1
        return " ".join(words)

    async def ask(self, prompt: str, answer: int, begun: asyncio.Event | None = None) -> Answer:
        """Sends one request and hears its whole answer; `begun` is set at its first token. Raises CannotProfile."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": answer,
            "stream": True,
            **(EXACT if self.exact else {}),
        }
        stream, cutter = _Stream(key_of(self._headers)), sse.Cutter()
        self.sent += 1
        self.in_flight += 1
        sent_ms = self.now_ms()
        try:
            with understood(self.url):
                async with self.client.stream(
                    "POST", self.url + ENDPOINT, json=body, headers={**self._headers}
                ) as response:
                    await check(response, self.url, self.model, stream.key)
                    async for part in response.aiter_raw():
                        now_ms = self.now_ms()
                        for event in cutter.cut(part):
                            stream.hear(event, now_ms)
                        if cutter.pending > EVENT_MOST:
                            raise CannotProfile("The backend's stream has an event without an end.")
                        if begun and stream.arrivals:
                            begun.set()
        finally:
            self.in_flight -= 1
        return stream.answer(sent_ms, len(prompt))

    async def ask_all(self, prompts: Sequence[str], answer: int) -> list[Answer]:
        """All at once; the first error ends all. Raises CannotProfile."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.ask(prompt, answer)) for prompt in prompts]
        except* CannotProfile as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]


def _opening(event: bytes) -> bool:
    """Whether it only says who speaks, before any token is made."""
    choices: Any = object_in(sse.data_of(event)).get("choices")
    first: Any = cast("list[Any]", choices)[0] if isinstance(choices, list) and choices else None
    delta: Any = cast("dict[str, Any]", first).get("delta") if isinstance(first, dict) else None
    if not isinstance(delta, dict):
        return False
    said = cast("dict[str, Any]", delta)
    return "role" in said and not said.get("content") and not said.get("reasoning_content")
