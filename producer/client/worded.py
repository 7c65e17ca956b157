"""Answers as an OpenAI-compatible server words them, made of a text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from fairlane.job import Json
from producer.intake import JobRequest

CHAT: Final = "/v1/chat/completions"
EMBEDDINGS: Final = "/v1/embeddings"
VECTOR: Final = (1.0, 0.0)
_WORD: Final = re.compile(r"\s*\S+\s*")


def body_of(
    request: JobRequest,
    reply: str | Mapping[str, Json] | Sequence[Mapping[str, Json]],
    chunks: Sequence[Mapping[str, Json]] | None = None,
) -> Json:
    """The body of an answer: a mapping as it is; a text as the endpoint words it; of a stream all its events."""
    if chunks is not None:
        return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    if not isinstance(reply, str):
        return dict(reply) if isinstance(reply, Mapping) else list(reply)
    if request.endpoint == EMBEDDINGS:
        data = [{"object": "embedding", "index": 0, "embedding": list(VECTOR)}]
        return {"object": "list", "model": request.model, "data": data, "usage": _usage("")}
    if request.endpoint == CHAT:
        choice = {"index": 0, "message": {"role": "assistant", "content": reply}, "finish_reason": "stop"}
        return {"object": "chat.completion", "model": request.model, "choices": [choice], "usage": _usage(reply)}
    choice = {"index": 0, "text": reply, "finish_reason": "stop"}
    return {"object": "text_completion", "model": request.model, "choices": [choice], "usage": _usage(reply)}


def chunks_of(request: JobRequest, reply: str | Sequence[Mapping[str, Json]]) -> Sequence[Mapping[str, Json]]:
    """The chunks of a streamed answer: those given, or one for each word of a text."""
    return [_chunk(request, word) for word in _WORD.findall(reply)] if isinstance(reply, str) else reply


def _chunk(request: JobRequest, word: str) -> Mapping[str, Json]:
    if request.endpoint == CHAT:
        choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
        return {"object": "chat.completion.chunk", "model": request.model, "choices": [choice]}
    choice = {"index": 0, "text": word, "finish_reason": None}
    return {"object": "text_completion", "model": request.model, "choices": [choice]}


def _usage(text: str) -> dict[str, int]:
    words = len(text.split())
    return {"prompt_tokens": 1, "completion_tokens": words, "total_tokens": 1 + words}
