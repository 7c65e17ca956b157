"""Asks a backend for streamed answers, and notes when each token came."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast

import httpx

from dispatcher.backends import wire
from dispatcher.backends.address import base_url, shown
from fairlane import sse
from fairlane.errors import FairlaneError

ENDPOINT: Final = "/v1/chat/completions"
# Answers of a known length, and their tokens counted: not every server knows these fields.
EXACT: Final[Mapping[str, Any]] = {"ignore_eos": True, "stream_options": {"include_usage": True}}
UNKNOWN_FIELD: Final = frozenset({400, 422})
UNAUTHORIZED: Final = frozenset({401, 403})
NOT_FOUND: Final = 404
SAID_MOST: Final = 300  # characters of a server's own words
CHARACTERS_A_TOKEN: Final = 4.0  # where the server does not count
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


class CannotProfile(FairlaneError):
    """This backend cannot be profiled. See what it said."""

    code, status = "cannot_profile", 502


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
    """One answer while it comes."""

    arrivals: list[tuple[float, int]] = field(default_factory=lambda: list[tuple[float, int]]())
    usage: Mapping[str, Any] = field(default_factory=lambda: dict[str, Any]())
    characters: int = 0

    def hear(self, event: bytes, now_ms: float) -> None:
        if b'"error"' in event and not self.arrivals:
            raise CannotProfile(f"In the stream the backend said: {_words(sse.data_of(event) or event)}")
        if b'"usage":' in event and (said := _object(sse.data_of(event))).get("usage"):
            self.usage = cast("Mapping[str, Any]", said["usage"])
        if b'"choices"' not in event or b'"choices":[]' in event or b'"choices": []' in event:
            return
        if not self.arrivals and _opening(event):
            return
        self.arrivals.append((now_ms, 1))

    def answer(self, sent_ms: float, characters: int) -> Answer:
        """All of it has come. Raises CannotProfile if that is nothing."""
        if not self.arrivals:
            raise CannotProfile("The backend answered with a stream without any token.")
        answer = int(self.usage.get("completion_tokens") or len(self.arrivals))
        # Fewer events than tokens: some brought several. More: the last one only says that it is over.
        each = answer / min(answer, len(self.arrivals))
        tokens = tuple((at, each) for at, _ in self.arrivals[:answer])
        return Answer(sent_ms, tokens, int(self.usage.get("prompt_tokens") or characters / CHARACTERS_A_TOKEN), answer)


class Asker:
    """One backend's model, asked. `exact`: answers have the length that is asked for. Use it as a context."""

    def __init__(self, url: str, model: str, headers: Mapping[str, str], seed: int = 0) -> None:
        self.url, self.model = base_url(url), model
        self.exact = True
        self.characters_a_token = CHARACTERS_A_TOKEN
        self.sent = self.in_flight = 0
        self.client = wire.connect(True)
        self._headers = headers
        self._random = random.Random(seed)
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

    async def ask(self, prompt: str, answer: int) -> Answer:
        """Sends one request and hears its whole answer. Raises CannotProfile."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": answer,
            "stream": True,
            **(EXACT if self.exact else {}),
        }
        stream, cutter = _Stream(), sse.Cutter()
        self.sent += 1
        self.in_flight += 1
        sent_ms = self.now_ms()
        try:
            with understood(self.url):
                async with self.client.stream(
                    "POST", self.url + ENDPOINT, json=body, headers={**self._headers}
                ) as response:
                    await _check(response, self.url, self.model)
                    async for part in response.aiter_raw():
                        now_ms = self.now_ms()
                        for event in cutter.cut(part):
                            stream.hear(event, now_ms)
        finally:
            self.in_flight -= 1
        return stream.answer(sent_ms, len(prompt))


@contextmanager
def understood(url: str) -> Generator[None]:
    """Connection errors as CannotProfile."""
    try:
        yield
    except wire.ERRORS as error:
        fault, words = wire.fault_of(error)
        advice = {
            "refused": "Does it run, and is the URL right?",
            "reset": "It may have crashed: look at its log.",
        }.get(fault, "Is the URL right?")
        raise CannotProfile(f"{shown(url)} {words}. {advice}") from error


async def _check(response: httpx.Response, url: str, model: str) -> None:
    """Raises CannotProfile for anything but a stream."""
    status = response.status_code
    if status == 200:
        kind = response.headers.get("content-type", "")
        if not kind.startswith(sse.MEDIA_TYPE):
            raise CannotProfile(
                f"{shown(url)} does not stream ({kind or 'no content type'}), so that its first token cannot be seen. "
                "Let it stream, or name another server of the same kind."
            )
        return
    words = _words(await response.aread())
    raise Answered(status, told(status, shown(url), model, words))


class Answered(CannotProfile):
    """The backend refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.answered = status


def told(status: int, where: str, model: str, words: str) -> str:
    """What a refusal means, and what to do."""
    if status in UNAUTHORIZED:
        return f"{where} answered {status}: name the variable that holds its key by --key-env VAR. It said: {words}"
    if status == NOT_FOUND:
        return f"{where} has no {ENDPOINT} for the model {model!r}; --model names another. It said: {words}"
    if status == 429:
        return (
            f"{where} answered 429: it limits who sends much. Ask it directly, or with --most fewer. It said: {words}"
        )
    return f"{where} answered {status} to a streamed request. It said: {words}"


def _opening(event: bytes) -> bool:
    """Whether it only says who speaks, before any token is made."""
    choices = _object(sse.data_of(event)).get("choices") or [{}]
    delta = choices[0].get("delta") or {}
    return "role" in delta and not delta.get("content") and not delta.get("reasoning_content")


def _object(data: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(data or b"{}")
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _words(body: bytes) -> str:
    """The message of an error's body, or its beginning."""
    said: Any = _object(body).get("error")
    text = cast("dict[str, Any]", said).get("message") if isinstance(said, dict) else said
    return (text if isinstance(text, str) else body.decode(errors="replace"))[:SAID_MOST]
