"""A job as a response of OpenAI's /v1/responses: the backend's own answer, or how far it is.

A response's id is its job's, after `resp_`. Nothing else is stored: it lives as long as the job does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, Final, cast

from fairlane import sse, strictjson
from fairlane.head import Head
from fairlane.model import Job, State

PREFIX: Final = "resp_"
_MOST: Final = sys.float_info.max
_STATUS: Final[Mapping[State, str]] = {
    "queued": "queued",
    "delayed": "queued",
    "moving": "queued",
    "moved": "queued",
    "leased": "in_progress",
    "succeeded": "completed",
    "failed": "failed",
    "expired": "failed",
    "cancelled": "cancelled",
}
# What a response says again of its request, and what it says if that is silent.
_ECHOED: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("instructions", "metadata", "max_output_tokens", "max_tool_calls", "reasoning", "text", "user")),
    "temperature": None,
    "top_p": None,
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def response_view(job: Job) -> dict[str, Any]:
    """Of a job with its body. A backend's answer is handed on with our id, and with what only we know."""
    if job.state == "succeeded" and (answered := _answered(job.result or b"")) is not None:
        return _ours(answered, job.id, Head.decode(job.head).background)
    return _unanswered(job)


def rewritten(job: Job) -> bytes:
    """The body of a finished job's answer, under our id; unchanged if it is no response."""
    answered = _answered(job.result or b"")
    if answered is None:
        return job.result or b""
    return _dump(_ours(answered, job.id, Head.decode(job.head).background))


class Events:
    """Rewrites the events of one response's stream, and drops those up to the sequence number `after`."""

    def __init__(self, job_id: str, *, background: bool, after: int | None = None) -> None:
        self._job_id = job_id
        self._background = background
        self._after = after
        self._last = b""

    def rewrite(self, event: bytes) -> bytes:
        """One whole server-sent event; empty if it is dropped."""
        self._last = event
        if self._after is None and b'"response"' not in event:  # nearly all: parsing each would cost more than it does
            return event
        data = _object(sse.data_of(event) or b"")
        if data is None:
            return event
        if self._is_known(data):
            return b""
        if not isinstance(data.get("response"), dict):
            return event
        data["response"] = _ours(data["response"], self._job_id, self._background)
        return sse.with_data(event, _dump(data))

    def tell(self, failure: Mapping[str, Any]) -> bytes:
        """`{"error": {…}}` as the event that ends the stream: flat as OpenAI documents it, nested as it sends it."""
        error = cast("Mapping[str, Any]", failure["error"])
        last = -1 if self._after is None else self._after
        number = (_object(sse.data_of(self._last) or b"") or {}).get("sequence_number")
        last = number if isinstance(number, int) else last
        flat = {name: error.get(name) for name in ("code", "message", "param")}
        event = {"type": "error", **flat, "sequence_number": last + 1, "error": error}
        return b"event: error\ndata: " + _dump(event) + b"\n\n"

    def _is_known(self, data: Mapping[str, Any]) -> bool:
        number = data.get("sequence_number")
        return self._after is not None and isinstance(number, int) and number <= self._after


def _ours(answered: Mapping[str, Any], job_id: str, background: bool) -> dict[str, Any]:
    return {**answered, "id": PREFIX + job_id, **({"background": True} if background else {})}


def _answered(result: bytes) -> dict[str, Any] | None:
    """The response in a backend's answer: the whole of it, or what its stream ended with."""
    if result.lstrip()[:1] == b"{":
        whole = _object(result)
        return whole if whole is not None and whole.get("object") == "response" else None
    may_have = [event for event in sse.each_of(result) if b'"response"' in event]
    for event in reversed(may_have):
        response = (_object(sse.data_of(event) or b"") or {}).get("response")
        if isinstance(response, dict):
            return cast("dict[str, Any]", response)
    return None


def _unanswered(job: Job) -> dict[str, Any]:
    head, asked = Head.decode(job.head), _object(job.body or b"") or {}
    return {
        "id": PREFIX + job.id,
        "object": "response",
        "created_at": job.created_at_ms // 1000,
        "status": _STATUS[job.state],
        "error": _error(job),
        "incomplete_details": None,
        "model": head.model,
        "output": [],
        "usage": None,
        "background": head.background,
        "service_tier": job.tier,
        **{name: silent if asked.get(name) is None else asked[name] for name, silent in _ECHOED.items()},
    }


def _error(job: Job) -> dict[str, Any] | None:
    if job.state == "expired":
        return {"code": "expired", "message": "The response was not started before its deadline."}
    if job.error is None:
        return None
    refused = (_object(job.result or b"") or {}).get("error")
    said = cast("Mapping[str, Any]", refused).get("message") if isinstance(refused, dict) else None
    return {"code": job.error.code, "message": said if isinstance(said, str) else job.error.message}


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = strictjson.parse_answer(text)
    except ValueError:
        value = _nearest(text)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _nearest(text: bytes) -> object:
    """Of an answer with numbers that are none (1e999, NaN): as near as JSON can say it. The rest is worth more."""
    try:
        value: object = json.loads(text, parse_float=_finite, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return value if strictjson.is_shallow(value) else None


def _finite(text: str) -> float:
    return max(-_MOST, min(_MOST, float(text)))


def _dump(value: Mapping[str, Any]) -> bytes:
    try:
        return strictjson.dump(value)
    except ValueError:  # half a surrogate pair, which a backend's answer may hold, stays the escape that it was
        return json.dumps(value, separators=(",", ":")).encode()
