"""What a scripted server answers, and what it was asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fairlane.errors import FairlaneError
from fairlane.job import Json
from producer.intake import JobRequest


@dataclass(frozen=True, slots=True)
class Fails:
    """An answer: the job fails, with the backend's HTTP status and body, if it answered."""

    code: str = "backend_error"
    message: str = "The backend answered with an error."
    status: int | None = 500
    body: Json = None


@dataclass(frozen=True, slots=True)
class Waits:
    """An answer: none yet. The job waits until the test settles it, or it is cancelled."""


Reply: TypeAlias = "str | Mapping[str, Json] | Sequence[Mapping[str, Json]] | Fails | Waits | FairlaneError"
Scripted: TypeAlias = "Reply | Callable[[JobRequest], Reply]"


class Script:
    """What is answered: `replies` first, one after the other, then `otherwise`. `requests` keeps what was asked."""

    def __init__(self, otherwise: Scripted, replies: Iterable[Scripted]) -> None:
        self.otherwise = otherwise
        self.replies = deque(replies)
        self.requests: list[JobRequest] = []

    def reply(self, request: JobRequest) -> Reply:
        """The next answer. Raises it if it is an error: the request is refused."""
        given = self.replies.popleft() if self.replies else self.otherwise
        reply = given(request) if callable(given) else given
        if isinstance(reply, FairlaneError):
            raise reply
        self.requests.append(request)
        return reply
