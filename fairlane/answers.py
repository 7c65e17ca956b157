"""Where the answers go, and in what form: to a person, or to a program."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Mapping
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import typer

from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.following import outcome
from fairlane.terminal import UNSUCCESSFUL, counted, duration

if TYPE_CHECKING:
    from fairlane.job import Job, Json
    from producer.client.batch import AsyncBatchHandle
    from producer.client.records import Batch


@dataclass(frozen=True, slots=True)
class Shown:
    """How the answers of a command are shown: in `path`, or on stdout."""

    path: Path | None
    as_json: bool

    @contextmanager
    def stream(self) -> Generator[TextIO]:
        """What is written to. Raises InvalidRequest."""
        if self.path is None:
            yield sys.stdout
            sys.stdout.flush()
            return
        try:
            file = self.path.open("w", encoding="utf-8")
        except OSError as error:
            raise InvalidRequest(f"{self.path} cannot be written: {error.strerror}.", param="output") from error
        with file:
            yield file

    def say_id(self, id_: str, facts: Mapping[str, Any]) -> None:
        """What was submitted, by its id; as JSON by its facts."""
        with self.stream() as to:
            typer.echo(json.dumps(facts) if self.as_json else id_, file=to)

    def answer(self, job: Job) -> None:
        """The answer of one job: its text if it has one, else its JSON. Raises Exit for one that did not succeed."""
        with self.stream() as to:
            if self.as_json:
                typer.echo(json.dumps(dict(job.raw)), file=to)
            elif job.result is not None:
                typer.echo(text_of(job.result.body) if job.state == "succeeded" else _pretty(job.result.body), file=to)
        self.end(job)

    def body(self, job: Job) -> None:
        """The whole answer of one job, as the backend gave it; as JSON all about the job."""
        with self.stream() as to:
            if self.as_json:
                typer.echo(json.dumps(dict(job.raw)), file=to)
            elif job.result is not None:
                typer.echo(_pretty(job.result.body, to.isatty()), file=to)
        self.end(job)

    async def batch(self, handle: AsyncBatchHandle, ended: Batch) -> None:
        """What came of each line of a batch that has ended. Raises Exit if one has no good answer; BatchFailed."""
        failed = total = 0
        with self.stream() as to:
            async with aclosing(handle.results()) as items:
                async for item in items:
                    total += 1
                    failed += not item.ok
                    typer.echo(json.dumps(dict(item.raw), ensure_ascii=False), file=to)
        if self.path:
            words = f"{total - failed:,} of {total:,} lines succeeded, in {duration(_lasted_ms(ended))}"
            typer.echo(f"{ended.id} {ended.status}: {words}; written to {self.path}", err=True)
        if failed:
            typer.echo(f"{counted(failed, 'line')} of {total:,} did not succeed.", err=True)
            raise typer.Exit(UNSUCCESSFUL)

    @staticmethod
    def end(job: Job) -> None:
        """Raises Exit for a job that did not succeed, and says why."""
        if job.state != "succeeded":
            typer.echo(f"{job.id} {outcome(job)}", err=True)
            raise typer.Exit(UNSUCCESSFUL)


def _lasted_ms(ended: Batch) -> float:
    ends = (ended.completed_at, ended.failed_at, ended.expired_at, ended.cancelled_at)
    return 1000 * (max((at for at in ends if at), default=ended.created_at) - ended.created_at)


def text_of(body: Json) -> str:
    """The text of a chat, a completion or a response; the whole answer as JSON if it is not just that."""
    match body:
        case {"choices": [{"message": {"content": str(text), **message}}]} if not message.get("tool_calls"):
            return text
        case {"choices": [{"text": str(text)}]}:
            return text
        case {
            "object": "response",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}],
        }:
            return str(text)
        case _:
            return _pretty(body)


def piece_of(chunk: Mapping[str, Any]) -> str:
    """The text that a streamed chunk adds."""
    match chunk:
        case {"choices": [{"delta": {"content": str(text)}}, *_]} | {"choices": [{"text": str(text)}, *_]}:
            return text
        case {"type": "response.output_text.delta", "delta": str(text)}:
            return text
        case _:
            return ""


def line_of(custom_id: str, job: Job | FairlaneError) -> Mapping[str, Any]:
    """The outcome of one of many, in the form of OpenAI's batch output; a refusal stands for a job without an id."""
    if isinstance(job, FairlaneError):
        error = {"code": job.code, "message": job.message}
        return {"id": None, "custom_id": custom_id, "response": None, "error": error}
    answer = job.result and {"status_code": job.result.status, "request_id": job.id, "body": job.result.body}
    error = job.error and {"code": job.error.code, "message": job.error.message}
    if job.state != "succeeded" and not error:
        error = {"code": job.state, "message": f"The job was {job.state}."}
    return {"id": job.id, "custom_id": custom_id, "response": answer, "error": error}


@contextmanager
def opened(path: str) -> Generator[BinaryIO]:
    """A file to read. Raises InvalidRequest."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(path).open("rb"))
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be read: {error.strerror}.", param="file") from error
        yield file


def _pretty(body: Json, indented: bool = False) -> str:
    if isinstance(body, str):  # it was no JSON, or a stream
        return body
    return json.dumps(body, ensure_ascii=False, indent=2 if indented else None)
