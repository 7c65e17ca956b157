"""What comes back from calling a backend: an answer of whatever status, or why there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal, cast

from fairlane.model import Usage

# unready: this dispatcher cannot call it now, which says nothing of the backend. refused: no connection, so the backend
# has not seen the request. reset: the connection broke before the whole answer. The timeouts: no whole answer, no first
# byte, or no further byte within their time. unsuitable: a request that cannot be sent.
Fault = Literal[
    "unready", "refused", "reset", "timeout", "first_byte_timeout", "idle_timeout", "too_large", "unsuitable"
]  # fmt: skip
JSON_MOST: Final = 1 << 20  # bytes of an answer that are searched for `usage`


@dataclass(frozen=True, slots=True)
class Answer:
    """The backend's own status and body. `retry_after_s` is its Retry-After, in seconds from now."""

    status: int
    body: bytes = field(repr=False)
    retry_after_s: float | None = None

    @property
    def usage(self) -> Usage | None:
        """The tokens that the body reports; None if it does not."""
        if b'"usage"' not in self.body or len(self.body) > JSON_MOST:
            return None
        try:
            body = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return _usage(body)


class CallFailed(Exception):
    """The backend gave no answer that could be handed on.

    The message reaches the tenant: it holds no address and nothing else of the installation. `detail` is for the log.
    """

    def __init__(self, fault: Fault, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.fault: Fault = fault
        self.detail = detail or message


def _usage(body: object) -> Usage | None:
    reported: object = cast("Mapping[str, Any]", body).get("usage") if isinstance(body, dict) else None
    if not isinstance(reported, dict):
        return None
    counts = cast("Mapping[str, Any]", reported)
    prompt, completion = _count(counts.get("prompt_tokens")), _count(counts.get("completion_tokens", 0))
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
