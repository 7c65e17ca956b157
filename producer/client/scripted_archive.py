"""Files and batches without a server, for tests. A batch is done when it is created, but for lines that wait."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeVar

from fairlane.errors import FairlaneError, IdempotencyMismatch, IllegalTransition, NotFound
from producer.client.archive import BatchOrder, Listed, Partial
from producer.client.content import Content
from producer.client.records import BAD, Batch, File
from producer.client.script import Fails, Script, Waits
from producer.client.worded import body_of
from producer.intake import JobRequest

DAY_S: Final = 86_400
T = TypeVar("T")


@dataclass
class _Made:
    """A batch: its JSON, its outcomes so far, and the lines that wait."""

    raw: dict[str, Any]
    order: BatchOrder
    lines: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    waiting: list[str] = field(default_factory=list[str])


class ScriptedArchive:
    """Implements Archive."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._files: dict[str, tuple[File, bytes]] = {}
        self._batches: dict[str, _Made] = {}
        self._numbers = count(1)

    async def upload(self, content: Content, purpose: str) -> File:
        data = b"".join([piece async for piece in content.pieces()])
        return self._file(data, content.filename, purpose)

    async def file(self, file_id: str) -> File:
        return _found(self._files, file_id)[0]

    async def files(self, purpose: str | None, after: str | None) -> Listed[File]:
        newest = [file for file, _ in reversed(self._files.values())]
        return Listed([file for file in newest if purpose in (None, file.purpose)], None)

    async def delete(self, file_id: str) -> None:
        _found(self._files, file_id)
        del self._files[file_id]

    async def content(self, file_id: str, start: int) -> AsyncGenerator[bytes]:
        yield _found(self._files, file_id)[1][start:]

    async def create(self, order: BatchOrder) -> Batch:
        for made in self._batches.values():
            if made.order.idempotency_key == order.idempotency_key:
                if made.order != order:
                    raise IdempotencyMismatch()
                return Batch.parse(made.raw)
        _, data = _found(self._files, order.input_file_id)
        batch_id = f"batch_{next(self._numbers)}"
        made = self._batches[batch_id] = _Made(_raw(batch_id, order), order)
        self._work(made, data)
        return Batch.parse(made.raw)

    async def batch(self, batch_id: str) -> Batch:
        return Batch.parse(dict(_found(self._batches, batch_id).raw))

    async def batches(self, after: str | None) -> Listed[Batch]:
        return Listed([Batch.parse(dict(made.raw)) for made in reversed(self._batches.values())], None)

    async def cancel(self, batch_id: str) -> Batch:
        made = _found(self._batches, batch_id)
        if made.waiting:
            error = {"code": "batch_cancelled", "message": "The batch was cancelled."}
            made.lines += [{"custom_id": one, "response": None, "error": error} for one in made.waiting]
            made.waiting = []
            self._finish(made, "cancelled")
        elif made.raw["status"] != "cancelled":
            raise IllegalTransition(f"The batch is {made.raw['status']}; it cannot be cancelled any more.")
        return Batch.parse(dict(made.raw))

    async def partial(self, batch_id: str, after: str | None) -> Partial | None:
        return None

    def _work(self, made: _Made, data: bytes) -> None:
        faults: list[dict[str, Any]] = []
        for n, text in enumerate(data.splitlines(), 1):
            try:
                self._line(made, json.loads(text))
            except (ValueError, KeyError, TypeError) as error:
                faults.append({"code": "invalid_json_line", "message": repr(error), "line": n, "param": None})
        if faults:
            made.raw |= {"status": "failed", "failed_at": time.time(), "errors": {"object": "list", "data": faults}}
        elif made.waiting:
            made.raw |= {"status": "in_progress", "in_progress_at": time.time(), "request_counts": _counts(made)}
        else:
            self._finish(made, "completed")

    def _line(self, made: _Made, line: dict[str, Any]) -> None:
        custom_id: str = line["custom_id"]
        request = JobRequest(line["body"]["model"], line["url"], line["body"])
        error: dict[str, Any] | None = None
        status, body = 200, None
        try:
            reply = self._script.reply(request)
        except FairlaneError as refused:
            reply = Fails(refused.code, refused.message, refused.status)
        if isinstance(reply, Waits):
            made.waiting.append(custom_id)
            return
        if isinstance(reply, Fails):
            status, body = reply.status, reply.body
            error = None if body is not None else {"code": reply.code, "message": reply.message}
        elif not isinstance(reply, FairlaneError):
            body = body_of(request, reply)
        response = None if error else {"status_code": status, "request_id": custom_id, "body": body}
        made.lines.append({"custom_id": custom_id, "response": response, "error": error})

    def _finish(self, made: _Made, status: str) -> None:
        good, bad = [line for line in made.lines if _good(line)], [line for line in made.lines if not _good(line)]
        made.raw |= {
            "status": status,
            f"{status}_at": time.time(),
            "request_counts": _counts(made),
            "output_file_id": self._written(good, "output"),
            "error_file_id": self._written(bad, "error"),
        }

    def _written(self, lines: list[dict[str, Any]], name: str) -> str | None:
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        return self._file(data, f"{name}.jsonl", "batch_output").id if lines else None

    def _file(self, data: bytes, filename: str, purpose: str) -> File:
        raw = {
            "id": f"file-{next(self._numbers)}",
            "object": "file",
            "bytes": len(data),
            "created_at": time.time(),
            "filename": filename,
            "purpose": purpose,
        }
        file = File.parse(raw)
        self._files[file.id] = (file, data)
        return file


def _found(kept: Mapping[str, T], id_: str) -> T:
    if id_ not in kept:
        raise NotFound()
    return kept[id_]


def _good(line: Mapping[str, Any]) -> bool:
    return line["error"] is None and line["response"]["status_code"] < BAD


def _counts(made: _Made) -> dict[str, int]:
    good = sum(map(_good, made.lines))
    return {"total": len(made.lines) + len(made.waiting), "completed": good, "failed": len(made.lines) - good}


def _raw(batch_id: str, order: BatchOrder) -> dict[str, Any]:
    now = time.time()
    return {
        "id": batch_id,
        "object": "batch",
        "endpoint": order.endpoint,
        "input_file_id": order.input_file_id,
        "completion_window": order.completion_window,
        "status": "validating",
        "created_at": now,
        "expires_at": now + DAY_S,
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
        "metadata": order.metadata,
        "errors": None,
    }
