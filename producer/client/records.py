"""Files and batches as the outside sees them: OpenAI's JSON as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, cast

from fairlane.errors import LineFailed
from fairlane.job import Failure, Json

BatchStatus: TypeAlias = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]
BATCH_ENDED: Final[frozenset[BatchStatus]] = frozenset({"failed", "completed", "expired", "cancelled"})
BAD: Final = 400  # from this HTTP status on an answer is an error


@dataclass(frozen=True, slots=True)
class File:
    """A file at the front door: `bytes` is its size, `created_at` in Unix seconds, `raw` the JSON it was read from."""

    id: str
    bytes: int
    created_at: float
    filename: str
    purpose: str
    raw: Mapping[str, Json] = field(repr=False)

    @classmethod
    def parse(cls, raw: Mapping[str, Json]) -> File:
        """Raises ValueError if it is no file."""
        try:
            return cls(raw["id"], raw["bytes"], raw["created_at"], raw["filename"], raw["purpose"], raw)
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no file: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Counts:
    """The lines of a batch: all, those that were answered well, and those that were not. 0 before they are counted."""

    total: int = 0
    completed: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class LineError:
    """Why a line of a batch has no good answer, or why its file was refused.

    `line` counts from 1. `status` and `body` are the backend's, if it answered. What is not known is None.
    """

    code: str
    message: str
    line: int | None = None
    custom_id: str | None = None
    status: int | None = None
    body: Json = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch at one moment. Times in Unix seconds, None for what has not happened.

    `errors` say why its input file was refused (the first thousand). `raw` is the JSON that it was read from.
    """

    id: str
    status: BatchStatus
    endpoint: str
    input_file_id: str
    completion_window: str
    created_at: float
    in_progress_at: float | None
    expires_at: float | None
    finalizing_at: float | None
    completed_at: float | None
    failed_at: float | None
    expired_at: float | None
    cancelling_at: float | None
    cancelled_at: float | None
    output_file_id: str | None
    error_file_id: str | None
    counts: Counts
    errors: tuple[LineError, ...]
    metadata: Mapping[str, str]
    raw: Mapping[str, Json] = field(repr=False)

    @property
    def finished(self) -> bool:
        """It is in an end state: its files, if it has any, are whole."""
        return self.status in BATCH_ENDED

    @classmethod
    def parse(cls, raw: Mapping[str, Json]) -> Batch:
        """Fields that a newer server adds are in `raw` only. Raises ValueError if it is no batch."""
        try:
            known = {name: raw[name] for name in _NEEDED} | {name: raw.get(name) for name in _OPTIONAL}
            errors: Mapping[str, list[Mapping[str, Json]]] = raw.get("errors") or {}
            return cls(
                **cast("dict[str, Any]", known),
                counts=_counts(raw.get("request_counts") or {}),
                errors=tuple(_fault(one) for one in errors.get("data") or ()),
                metadata=raw.get("metadata") or {},
                raw=raw,
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"this is no batch: {error!r}") from error


_NEEDED: Final = ("id", "status", "endpoint", "input_file_id", "completion_window", "created_at")
_OPTIONAL: Final = (
    "in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at",
    "cancelled_at", "output_file_id", "error_file_id",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a batch is. `rate` is in lines a second, lately; `place` is how many jobs are before its next line's.

    What is not known is None.
    """

    batch: Batch
    rate: float | None = None
    seconds_left: float | None = None
    place: int | None = None

    @property
    def total(self) -> int:
        return self.batch.counts.total

    @property
    def done(self) -> int:
        """Lines that have their outcome, good or bad."""
        return self.batch.counts.completed + self.batch.counts.failed

    @property
    def failed(self) -> int:
        return self.batch.counts.failed


@dataclass(frozen=True, slots=True)
class BatchItem:
    """The outcome of one line. `status` and `body` are the backend's answer; without a good one there is an `error`."""

    custom_id: str
    status: int | None
    body: Json = field(repr=False)
    error: Failure | None
    raw: Mapping[str, Json] = field(repr=False)

    @property
    def ok(self) -> bool:
        return self.error is None

    def result(self) -> Json:
        """The answer's body. Raises LineFailed."""
        if self.error is None:
            return self.body
        raise LineFailed(f"{self.custom_id}: {self.error.message}", self.error.code, self.status, self.body)

    @classmethod
    def parse(cls, raw: Mapping[str, Json]) -> BatchItem:
        """A line of an output or error file. Raises ValueError if it is none."""
        try:
            response: Mapping[str, Json] = raw.get("response") or {}
            status, body = response.get("status_code"), response.get("body")
            return cls(raw["custom_id"], status, body, _failure(raw.get("error"), status, body), raw)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"this is no line of an output file: {error!r}") from error


def line_error(raw: Mapping[str, Json]) -> LineError:
    """A line of an error file: of a request without a good answer, or of what was wrong in the input file.

    Raises ValueError if it is none.
    """
    if raw.get("custom_id") is None or "code" in raw:
        return _fault(raw.get("error") or raw)
    item = BatchItem.parse(raw)
    error = item.error or Failure("unknown", "There is no answer.", item.status)
    line = raw["error"].get("line") if raw.get("error") else None
    return LineError(error.code, error.message, line, item.custom_id, item.status, item.body)


def _counts(raw: Mapping[str, Any]) -> Counts:
    return Counts(raw.get("total", 0), raw.get("completed", 0), raw.get("failed", 0))


def _fault(raw: Mapping[str, Any]) -> LineError:
    return LineError(str(raw.get("code")), str(raw.get("message")), raw.get("line"), raw.get("custom_id"))


def _failure(error: Mapping[str, Any] | None, status: int | None, body: Json) -> Failure | None:
    if error:
        return Failure(str(error.get("code")), str(error.get("message")), status)
    if status is not None and status < BAD:
        return None
    inner = cast("Mapping[str, object]", body).get("error") if isinstance(body, dict) else None
    said = cast("Mapping[str, object]", inner) if isinstance(inner, dict) else {"message": inner}
    return Failure(
        str(said.get("code") or said.get("type") or "backend_error"), str(said.get("message") or status), status
    )
