"""What comes back from calling a backend: an answer of whatever status, or why there is none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any, Final, Literal, cast

from fairlane import sse
from fairlane.model import Usage

# unready: this dispatcher cannot call it now, which says nothing of the backend. refused: no connection, so the backend
# has not seen the request. reset: the connection broke before the whole answer. The timeouts: no whole answer, no first
# byte, or no further byte within their time. unsuitable: a request that cannot be sent.
Fault = Literal[
    "unready", "refused", "reset", "timeout", "first_byte_timeout", "idle_timeout", "too_large", "unsuitable"
]  # fmt: skip
JSON_MOST: Final = 1 << 20  # bytes of an answer that are searched for `usage`
EVENTS_MOST: Final = 16  # events of a stream that are


@dataclass(frozen=True, slots=True)
class Answer:
    """The backend's own status and body. `retry_after_s` is its Retry-After, in seconds from now.

    `streamed`: the body is a whole stream of server-sent events, and was handed on while it came.
    """

    status: int
    body: bytes = field(repr=False)
    retry_after_s: float | None = None
    streamed: bool = False

    @property
    def usage(self) -> Usage | None:
        """The tokens that the body reports; None if it does not."""
        if b'"usage"' not in self.body:
            return None
        if self.streamed:
            reported = map(_read_usage, _last_events(self.body))
            return next((usage for usage in reported if usage), None)
        return _read_usage(self.body)


class CallFailed(Exception):
    """The backend gave no answer that could be handed on.

    The message reaches the tenant: it holds no address and nothing else of the installation. `detail` is for the log.
    """

    def __init__(self, fault: Fault, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.fault: Fault = fault
        self.detail = detail or message


def _last_events(text: bytes) -> Iterator[bytes]:
    """The data of the last events that may report, the last one first."""
    events = (sse.data_of(event) for event in reversed(sse.events_of(text[-JSON_MOST:])))
    return islice((data for data in events if data and b'"usage"' in data), EVENTS_MOST)


def _read_usage(text: bytes) -> Usage | None:
    if len(text) > JSON_MOST:
        return None
    try:
        return _usage(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _usage(body: object) -> Usage | None:
    """What an answer reports, or an event of a stream; /v1/responses has names and a place of its own for it."""
    if not isinstance(body, dict):
        return None
    fields = cast("Mapping[str, Any]", body)
    if isinstance(fields.get("response"), dict):
        fields = cast("Mapping[str, Any]", fields["response"])
    if not isinstance(fields.get("usage"), dict):
        return None
    counts: Mapping[str, Any] = fields["usage"]
    prompt = _count(counts.get("prompt_tokens", counts.get("input_tokens")))
    completion = _count(counts.get("completion_tokens", counts.get("output_tokens", 0)))
    return None if prompt is None or completion is None else Usage(prompt, completion)


def _count(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 10**9:
        return None
    return value


def retry_after_s(value: str | None, now: datetime | None = None) -> float | None:
    """A Retry-After header, seconds or a date, as seconds from now; None if it is absent or unreadable."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(min(int(value.strip()[:12]), 10**9))
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - (now or datetime.now(UTC))).total_seconds())
