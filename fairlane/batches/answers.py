"""The lines of output and error files, and the parts that they are put together from. Nothing here does I/O.

A part is what was collected at once: a line for each answer, `<ordinal> <o | e> <the line as it will be>`, and
`<ordinal> l` for one that was lost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, Literal, cast

from fairlane import strictjson
from fairlane.batches.view import BatchFault

Mark = Literal["ok", "bad", "void", "late", "lost"]

# Why a request has no answer, by the state that its batch ended in.
WHY: Final = {
    "completed": ("job_cancelled", "This request was cancelled by itself before it was answered."),
    "expired": ("batch_expired", "This request could not be executed before the completion window expired."),
    "cancelled": ("batch_cancelled", "This request was not executed before the batch was cancelled."),
    "failed": ("batch_failed", "The batch's input file was deleted before this request was executed."),
}
Kind = Literal["o", "e", "l"]  # in a part: for the output file, the error file, lost

LOST: Final = ("result_lost", "This request may have been executed, but what came of it was lost.")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the request `ordinal`. `text` is its line in the file that `mark` says (void, late or lost:
    it has no answer, and gets its line at the end)."""

    ordinal: int
    job: str
    mark: Mark
    text: bytes = b""
    input_tokens: int = 0
    output_tokens: int = 0


def answer_line(batch_id: str, ordinal: int, custom_id: str | None, job: str, status: int, body: bytes) -> bytes:
    """The line of a request that a backend has answered, well or not."""
    response = b'{"status_code":%d,"request_id":%s,"body":%s}' % (status, _json(job), _one_line(body))
    return _line(batch_id, ordinal, custom_id, response, b"null")


def error_line(batch_id: str, ordinal: int, custom_id: str | None, code: str, message: str) -> bytes:
    """The line of a request without an answer."""
    return _line(batch_id, ordinal, custom_id, b"null", _json({"code": code, "message": message}))


def fault_line(batch_id: str, fault: BatchFault) -> bytes:
    """The line of a fault of the input file."""
    error = {"code": fault.code, "message": fault.message, "param": fault.param, "line": fault.line}
    return _line(batch_id, fault.line or 0, None, b"null", _json(error))


def part_line(outcome: Outcome) -> bytes:
    kind = {"ok": b"o", "lost": b"l"}.get(outcome.mark, b"e")
    return b"%d %s %s" % (outcome.ordinal, kind, outcome.text or b"\n")


def read_part(line: bytes) -> tuple[int, Kind, bytes]:
    """The inverse: the ordinal, where it goes, and its line there."""
    ordinal, kind, text = line.split(b" ", 2) if line.count(b" ") > 1 else (*line.split(b" "), b"")
    return int(ordinal), cast(Kind, kind.decode()), text


class Seen:
    """Which requests have a line already: of two with the same ordinal the first stands."""

    def __init__(self, total: int) -> None:
        self._seen = bytearray(total + 1)

    def first(self, ordinal: int) -> bool:
        """Whether it was not seen before; now it is."""
        before, self._seen[ordinal] = self._seen[ordinal], 1
        return not before


def _line(batch_id: str, ordinal: int, custom_id: str | None, response: bytes, error: bytes) -> bytes:
    id_ = f"batch_req_{batch_id.removeprefix('batch_')}{ordinal:05}"
    return b'{"id":"%s","custom_id":%s,"response":%s,"error":%s}\n' % (id_.encode(), _json(custom_id), response, error)


def _one_line(body: bytes) -> bytes:
    """A backend's body as it stands in a line: its own bytes if they are JSON without line breaks."""
    try:
        value = strictjson.parse_answer(body)
    except ValueError:
        return _json(body.decode(errors="replace")) if body else b"null"
    return body if b"\n" not in body and b"\r" not in body else strictjson.dump(value)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
