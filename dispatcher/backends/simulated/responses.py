"""Answers of /v1/responses: vLLM's shapes of it, whole or as its standard events, numbered from 0."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from dispatcher.backends.simulated.answers import ENCODER, Finish
from dispatcher.backends.simulated.asks import Responding

# What vLLM sends and leaves null, as far as this server is concerned.
UNSET: Final[dict[str, None]] = dict.fromkeys(
    (
        "previous_response_id", "prompt", "presence_penalty", "frequency_penalty", "top_logprobs",
        "kv_transfer_params", "ec_transfer_params", "input_messages", "output_messages",
    )
)  # fmt: skip


def usage(prompt: int, answer: int) -> dict[str, Any]:
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cache_write_tokens": 0,
            "cached_tokens": 0,
            "input_tokens_per_turn": [prompt],
            "cached_tokens_per_turn": [0],
        },
        "output_tokens": answer,
        "output_tokens_details": {
            "reasoning_tokens": 0,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [answer],
            "tool_output_tokens_per_turn": [0],
        },
        "total_tokens": prompt + answer,
    }


@dataclass(slots=True)
class ResponseShape:
    """How one request is answered; `most` is the longest that its answer may be. A stream's events are numbered here.

    A stream ends with `response.completed` even if the answer was cut off, as vLLM's does: its `status` says so.
    """

    ask: Responding
    model: str
    prompt: int
    most: int
    id: str = field(default_factory=lambda: f"resp_{uuid.uuid4().hex}")
    item: str = field(default_factory=lambda: f"msg_{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))
    _said: list[str] = field(default_factory=lambda: list[str]())
    _finish: Finish | None = None
    _numbers: count[int] = field(default_factory=count)

    def whole(self, text: str, answer: int, finish: Finish) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        status = "incomplete" if finish == "length" else "completed"
        return self._response(status, [self._message(text)], usage(self.prompt, answer))

    def opening(self, *, with_usage: bool) -> bytes:
        """What a stream begins with; `with_usage` is for chats, and decides nothing here."""
        begun = self._response("in_progress", [], None)
        message = self._message("") | {"status": "in_progress"}
        return (
            self._event("response.created", response=begun)
            + self._event("response.in_progress", response=begun)
            + self._event("response.output_item.added", output_index=0, item=message)
            + self._event("response.content_part.added", **self._place, part=_part("") | {"logprobs": []})
        )

    def piece(self, text: str, finish: Finish | None, answer: int | None) -> bytes:
        """The next tokens of a stream."""
        self._said.append(text)
        self._finish = finish
        return self._event("response.output_text.delta", **self._place, delta=text, logprobs=[])

    def ending(self, answer: int, *, with_usage: bool) -> bytes:
        """What a stream ends with; it always says the usage."""
        text = "".join(self._said)
        return (
            self._event("response.output_text.done", **self._place, text=text, logprobs=[])
            + self._event("response.content_part.done", **self._place, part=_part(text))
            + self._event("response.output_item.done", output_index=0, item=self._message(text))
            + self._event("response.completed", response=self.whole(text, answer, self._finish or "stop"))
        )

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self.item, "output_index": 0, "content_index": 0}

    def _message(self, text: str) -> dict[str, Any]:
        content = [_part(text)] if text else []
        return {"id": self.item, "type": "message", "role": "assistant", "content": content, "status": "completed"}

    def _response(self, status: str, output: Sequence[Any], used: dict[str, Any] | None) -> dict[str, Any]:
        ask = self.ask
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "model": self.model,
            "output": output,
            "usage": used,
            "temperature": 1.0 if ask.temperature is None else ask.temperature,
            "top_p": 1.0 if ask.top_p is None else ask.top_p,
            "max_output_tokens": self.most,
            "background": False,
            **ask.echoed(),
            **UNSET,
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        body = {**fields, "sequence_number": next(self._numbers), "type": kind}
        return f"event: {kind}\ndata: {ENCODER.encode(body)}\n\n".encode()


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": None}
