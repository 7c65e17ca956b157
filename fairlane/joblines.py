"""JSONL of jobs, as `fairlane submit` takes it: read line by line, checked as a whole before anything is sent."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from json import JSONDecodeError
from typing import Any, BinaryIO, Final, cast

from fairlane import strictjson
from fairlane.asking import ENDPOINTS
from fairlane.errors import FairlaneError, InvalidRequest

LINE_MOST: Final = 64 << 20  # bytes: the front door takes 8 MiB, unless it is told to take more
IN_MEMORY: Final = 8 << 20  # bytes of an input that cannot be read twice; what is more goes to a temporary file
PIECE: Final = 1 << 20
TOLD_MOST: Final = 10
PART_JOBS: Final = 500
PART_BYTES: Final = 2 << 20
OPENAI: Final = frozenset({"custom_id", "method", "url", "body"})
JOB: Final = frozenset(
    {"custom_id", "model", "endpoint", "body", "tier", "tenant", "idempotency_key", "delay_s", "deadline_s",
     "timeout_s", "max_attempts", "metadata", "webhook"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobLine:
    """One line: `item` are the arguments of a client's `submit`. Lines count from 1, blank ones too; sizes in bytes."""

    number: int
    custom_id: str
    item: Mapping[str, object]
    size: int


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says of every line: defaults for what a line does not say, and what is set in each body."""

    defaults: Mapping[str, object]
    body: Mapping[str, object]
    key: str
    """The line N gets the idempotency key `KEY:N`, so that the same command again means the same jobs."""

    def named(self, model: str) -> Given:
        """The same, for what does not say which model."""
        return replace(self, defaults={**self.defaults, "model": model})

    def over(self, item: Mapping[str, object], number: int) -> dict[str, object]:
        """A line's `item` and all that it does not say itself."""
        body = {**cast("Mapping[str, object]", item["body"]), **self.body}
        whole = {**self.defaults, "idempotency_key": f"{self.key}:{number}", **item, "body": body}
        if "model" in body and "model" not in item:
            whole["model"] = body["model"]
        return {name: value for name, value in whole.items() if value is not None}


@contextmanager
def rewindable(stream: BinaryIO) -> Generator[BinaryIO]:
    """The same bytes, to be read more than once: those of a pipe are kept."""
    if stream.seekable():
        yield stream
        return
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as kept:
        while piece := stream.read(PIECE):
            kept.write(piece)
        yield cast(BinaryIO, kept)


@dataclass(frozen=True, slots=True)
class Count:
    """How many jobs there are; `unnamed`: some do not say which model."""

    jobs: int
    unnamed: bool


def count(stream: BinaryIO, given: Given) -> Count:
    """Reads all of it. Raises InvalidRequest, which names the lines that are no jobs."""
    faults: list[str] = []
    wrong = jobs = 0
    unnamed = False
    first: dict[int, int] = {}  # the hash of a custom_id → its line
    for line in _read(stream, given):
        if isinstance(line, JobLine):
            jobs += 1
            unnamed |= "model" not in line.item
            if (seen := first.setdefault(hash(line.custom_id), line.number)) == line.number:
                continue
            line = f"line {line.number}: the custom_id {line.custom_id!r} is that of line {seen}, too"
        wrong += 1
        faults += [line] if wrong <= TOLD_MOST else []
    if wrong:
        faults += [f"… and {wrong - TOLD_MOST} more"] if wrong > TOLD_MOST else []
        faults += [] if jobs else ['(A prompt is an argument: fairlane submit "Hello")']
        raise InvalidRequest("\n".join(["Nothing was submitted:", *faults]), param="file")
    if not jobs:
        raise InvalidRequest("There is nothing to submit: the input is empty.", param="file")
    return Count(jobs, unnamed)


def jobs(stream: BinaryIO, given: Given) -> Iterator[JobLine]:
    """The jobs of an input that was counted."""
    return (line for line in _read(stream, given) if isinstance(line, JobLine))


def parts(stream: BinaryIO, given: Given) -> Iterator[list[JobLine]]:
    """The jobs of an input that was counted: up to PART_JOBS at once, and PART_BYTES unless one alone is larger."""
    part: list[JobLine] = []
    size = 0
    for line in jobs(stream, given):
        if part and (len(part) == PART_JOBS or size + line.size > PART_BYTES):
            yield part
            part, size = [], 0
        part.append(line)
        size += line.size
    if part:
        yield part


def _read(stream: BinaryIO, given: Given) -> Iterator[JobLine | str]:
    """Each line's job, or what is wrong with it."""
    stream.seek(0)
    number = 0
    while text := stream.readline(LINE_MOST):
        number += 1
        if number == 1:
            text = text.removeprefix(b"\xef\xbb\xbf")
        if len(text) == LINE_MOST:
            yield f"line {number}: it is longer than {LINE_MOST >> 20} MiB"
            return
        if not text.strip():
            continue
        try:
            yield job_line(text, number, given)
        except (FairlaneError, ValueError) as error:
            yield f"line {number}: {error}"


def job_line(text: bytes, number: int, given: Given) -> JobLine:
    """A job as POST /v1/jobs takes it, a request of OpenAI's batches, or a request's body. Raises ValueError."""
    from producer.client.submission import submission_of

    try:
        value = strictjson.parse(text)
    except JSONDecodeError as error:
        raise ValueError(f"this is no JSON ({error.msg}, at character {error.pos + 1})") from error
    if not isinstance(value, dict):
        raise ValueError("a job is a JSON object")
    line = cast("dict[str, Any]", value)
    custom_id = line.get("custom_id", f"line-{number}")
    if not isinstance(custom_id, str) or not custom_id:
        raise ValueError("custom_id is a text")
    item = given.over(_item(line), number)
    if (endpoint := submission_of({"model": "any", **item}).request.endpoint) not in ENDPOINTS:
        raise ValueError(f"there is no endpoint {endpoint}; there are {', '.join(ENDPOINTS)}")
    return JobLine(number, custom_id, item, len(text))


def _item(line: dict[str, Any]) -> dict[str, Any]:
    if "body" not in line:
        return {"body": {name: value for name, value in line.items() if name != "custom_id"}}
    openai = "url" in line or "method" in line
    if unknown := line.keys() - (OPENAI if openai else JOB):
        raise ValueError(f"there is no {', '.join(sorted(unknown))} in a job")
    if not isinstance(line["body"], dict):
        raise ValueError("body is a JSON object")
    item = {name: value for name, value in line.items() if name in JOB and name != "custom_id" and value is not None}
    if openai:
        if line.get("method") != "POST" or not isinstance(line.get("url"), str):
            raise ValueError("method is POST, and url is the endpoint, such as /v1/chat/completions")
        item["endpoint"] = line["url"]
    if "custom_id" in line:
        metadata = item.get("metadata", {})
        item["metadata"] = {**metadata, "custom_id": line["custom_id"]} if isinstance(metadata, dict) else metadata
    return item
