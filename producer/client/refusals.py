"""Refusals as they come over the wire, as errors of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from fairlane.errors import ConnectionFailed, FairlaneError, Refused, class_of

CUT_OFF: Final = 500  # without an `error`: the process ended while it was at it
SAID_MOST: Final = 200  # characters of an answer that is not ours


def refusal(said: Mapping[str, Any], status: int, retry_after: float | None = None) -> FairlaneError:
    """The error that `{"error": {"message", "code", "param", "retry_after"?}}` stands for."""
    error = cast("dict[str, Any]", said["error"] if isinstance(said["error"], dict) else {"message": said["error"]})
    code, message = str(error.get("code")), str(error.get("message"))
    after = error.get("retry_after", retry_after)
    known = class_of(code)
    if known.code != code:
        return Refused(message, code=code, status=status, param=error.get("param"), retry_after=after)
    return known(message, param=error.get("param"), retry_after=after)


def foreign(text: str, status: int, retry_after: float | None = None) -> FairlaneError:
    """Whoever answered is no front door: a proxy in between, or a wrong URL."""
    said = " ".join(text.split())[:SAID_MOST]
    message = f"What answered (HTTP {status}) does not speak as a front door does. Is the URL right? It said: {said}"
    if status == CUT_OFF:
        return ConnectionFailed(message)
    return Refused(message, code="unexpected_answer", status=status, retry_after=retry_after)
