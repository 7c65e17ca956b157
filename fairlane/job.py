"""A job as the outside sees it: contract.md's JSON as a typed value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, cast

Json: TypeAlias = Any  # any JSON value: what it holds is between the caller and the backend
JobState = Literal["queued", "delayed", "leased", "succeeded", "failed", "cancelled", "expired"]
ENDED: Final[frozenset[JobState]] = frozenset({"succeeded", "failed", "cancelled", "expired"})


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try on a backend. Times in Unix seconds; `outcome` and `ended_at` are None while it runs."""

    n: int
    backend: str
    started_at: float
    ended_at: float | None
    outcome: str | None
    status: int | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the backend answered: its HTTP status and its body, a JSON value (or text, if it was no JSON)."""

    status: int | None
    body: Json = field(repr=False)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no good answer; `status` is the backend's HTTP status, if it answered."""

    code: str
    message: str
    status: int | None


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the backend says that the job used."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class Job:
    """A job at one moment. Times in Unix seconds, None for what has not happened.

    `raw` is the JSON that it was read from. A job that did not end well has an `error`; its `result` is then the
    backend's own error body, if there was one.
    """

    id: str
    pool: str
    model: str
    endpoint: str
    tenant: str
    tier: str
    state: JobState
    dead: bool
    created_at: float
    not_before: float | None
    deadline_at: float | None
    started_at: float | None
    finished_at: float | None
    attempts: tuple[Attempt, ...]
    max_attempts: int
    result: Answer | None
    error: Failure | None
    usage: Tokens | None
    metadata: Mapping[str, Json]
    batch_id: str | None
    raw: Mapping[str, Json] = field(repr=False)

    @property
    def finished(self) -> bool:
        """It has its outcome."""
        return self.state in ENDED

    @classmethod
    def parse(cls, raw: Mapping[str, Json]) -> Job:
        """Fields that a newer server adds are in `raw` only. Raises ValueError if it is no job."""
        try:
            return _parse(raw)
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no job: {error!r}") from error


_PLAIN: Final = (
    "id", "pool", "model", "endpoint", "tenant", "tier", "state", "dead", "created_at", "not_before", "deadline_at",
    "started_at", "finished_at", "max_attempts", "batch_id",
)  # fmt: skip


def _parse(raw: Mapping[str, Json]) -> Job:
    result, error, usage = raw["result"], raw["error"], raw["usage"]
    return Job(
        **{name: raw[name] for name in _PLAIN},
        attempts=tuple(_attempt(one) for one in raw["attempts"]),
        result=None if result is None else Answer(result["status"], result["body"]),
        error=None if error is None else Failure(error["code"], error["message"], error["status"]),
        usage=None
        if usage is None
        else Tokens(usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]),
        metadata=cast("Mapping[str, Json]", raw["metadata"] or {}),
        raw=raw,
    )


def _attempt(raw: Mapping[str, Json]) -> Attempt:
    return Attempt(raw["n"], raw["backend"], raw["started_at"], raw["ended_at"], raw["outcome"], raw["status"])
