"""A job's head: what a dispatcher and the front door must know beside the request's body. The queue only keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, cast

# json.dumps would make an encoder for each call.
_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Head:
    """`endpoint` is the path on the backend, such as `/v1/chat/completions`; `timeout_s` bounds one attempt as a whole.

    `metadata` is the caller's own and comes back with the job; `webhook` is `{"url", "secret"?, "headers"?}`.
    `stream`: the answer is a stream of server-sent events, and is handed on while it comes. `line` (from 1) and
    `custom_id` say which request of its batch's file the job is. `background`: a response that nobody waits for.
    """

    endpoint: str
    model: str
    timeout_s: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=lambda: dict[str, Any]())
    webhook: Mapping[str, Any] | None = None
    stream: bool = False
    line: int | None = None
    custom_id: str | None = None
    background: bool = False

    def encode(self) -> bytes:
        """As the queue keeps it: JSON without what is empty."""
        if self != Head(self.endpoint, self.model, stream=self.stream, background=self.background):
            return self._encode()
        return _encoded(self.endpoint, self.model, self.stream, self.background)

    def _encode(self) -> bytes:
        fields = {
            "endpoint": self.endpoint,
            "model": self.model,
            "timeout_s": self.timeout_s,
            "metadata": dict(self.metadata) or None,
            "webhook": dict(self.webhook) if self.webhook else None,
            "stream": self.stream or None,
            "line": self.line,
            "custom_id": self.custom_id,
            "background": self.background or None,
        }
        kept = {name: value for name, value in fields.items() if value is not None}
        return _ENCODE(kept).encode()

    @classmethod
    def decode(cls, head: bytes) -> Head:
        """The inverse of `encode`. Raises ValueError if it is no head."""
        try:
            fields: object = json.loads(head)
        except RecursionError as error:
            raise ValueError("a job's head is nested too deeply") from error
        known = cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}
        endpoint = known.get("endpoint")
        if not isinstance(endpoint, str):
            raise ValueError("a job's head is an object with an endpoint")
        timeout_s = known.get("timeout_s")
        if timeout_s is not None and not _is_time(timeout_s):
            raise ValueError("a job's timeout_s is a number of seconds above 0")
        return cls(
            endpoint=endpoint,
            model=str(known.get("model", "")),
            timeout_s=timeout_s,
            metadata=known.get("metadata") or {},
            webhook=known.get("webhook"),
            stream=known.get("stream") is True,
            line=known.get("line"),
            custom_id=known.get("custom_id"),
            background=known.get("background") is True,
        )


@lru_cache(256)  # of one model most jobs have the same
def _encoded(endpoint: str, model: str, stream: bool, background: bool) -> bytes:
    return Head(endpoint, model, stream=stream, background=background)._encode()  # pyright: ignore[reportPrivateUsage]


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 10**9
