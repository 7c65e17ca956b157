"""The bodies of answers: vLLM's shapes of the OpenAI API."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from dispatcher.backends.simulated.asks import Refused
from dispatcher.backends.simulated.options import Options

ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
DONE: Final = b"data: [DONE]\n\n"
Finish = Literal["stop", "length", "abort"]
# What vLLM sends and leaves null, as far as this server is concerned.
UNSET: Final[dict[str, None]] = dict.fromkeys(("kv_transfer_params", "ec_transfer_params", "metrics"))
UNSET_IN_CHAT: Final[dict[str, None]] = dict.fromkeys(("prompt_logprobs", "prompt_token_ids", "prompt_text"))
UNSET_IN_CHOICE: Final[dict[str, None]] = dict.fromkeys(("stop_reason", "token_ids", "routed_experts"))
UNSET_IN_COMPLETION: Final[dict[str, None]] = dict.fromkeys(("prompt_logprobs", "prompt_token_ids"))
UNSET_IN_MESSAGE: Final[dict[str, None]] = dict.fromkeys(
    ("refusal", "annotations", "audio", "function_call", "reasoning")
)


def usage(prompt: int, answer: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + answer,
        "completion_tokens": answer,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }


def error(refused: Refused) -> dict[str, Any]:
    return {
        "error": {
            "message": refused.message.encode(errors="backslashreplace").decode(),  # it may quote half a surrogate
            "type": refused.kind,
            "param": refused.param,
            "code": refused.status,
        }
    }


def models(options: Options, created: int) -> dict[str, Any]:
    cards: list[dict[str, Any]] = [
        {
            "id": model,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": options.models[0],
            "parent": None,
            "max_model_len": options.max_model_len,
            "permission": [_permission(created)],
        }
        for model in options.models
    ]
    return {"object": "list", "data": cards}


def _permission(created: int) -> dict[str, Any]:
    return {
        "id": f"modelperm-{uuid.uuid4().hex}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }


def embeddings(request_id: str, model: str, vectors: Sequence[object], prompt: int) -> dict[str, Any]:
    return {
        "id": f"embd-{request_id}",
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": [{"index": n, "object": "embedding", "embedding": vector} for n, vector in enumerate(vectors)],
        "usage": usage(prompt, 0),
    }


@dataclass(frozen=True, slots=True)
class Shape:
    """How one request is answered, whole or as a stream of server-sent events."""

    kind: Literal["completion", "chat"]
    request_id: str
    model: str
    prompt: int
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def chat(self) -> bool:
        return self.kind == "chat"

    @property
    def id(self) -> str:
        return ("chatcmpl-" if self.chat else "cmpl-") + self.request_id

    def whole(self, text: str, answer: int, finish: Finish) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        return {
            "id": self.id,
            "object": "chat.completion" if self.chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [self._choice(text, finish)],
            "service_tier": None,
            "system_fingerprint": None,
            "usage": usage(self.prompt, answer),
            **(UNSET_IN_CHAT if self.chat else {}),
            **UNSET,
        }

    def _choice(self, text: str, finish: Finish) -> dict[str, Any]:
        said = {"message": {"role": "assistant", "content": text, **UNSET_IN_MESSAGE}} if self.chat else {"text": text}
        unset = {} if self.chat else UNSET_IN_COMPLETION
        return {"index": 0, **said, "logprobs": None, "finish_reason": finish, **UNSET_IN_CHOICE, **unset}

    def opening(self, *, with_usage: bool) -> bytes:
        """What a stream begins with: in a chat, who speaks."""
        if not self.chat:
            return b""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return self._event([choice], usage(self.prompt, 0) if with_usage else None)

    def piece(self, text: str, finish: Finish | None, answer: int | None) -> bytes:
        """The next tokens of a stream; `answer` is how many there were so far, if each event is to say so."""
        choice: dict[str, Any] = {"index": 0, **({"delta": {"content": text}} if self.chat else {"text": text})}
        choice |= {"logprobs": None, "finish_reason": finish}
        if finish is not None or not self.chat:
            choice["stop_reason"] = None
        if not self.chat:
            choice["prompt_token_ids"] = None
        choice["token_ids"] = None
        return self._event([choice], None if answer is None else usage(self.prompt, answer))

    def ending(self, answer: int, *, with_usage: bool) -> bytes:
        """What a stream ends with: the usage, if it was asked for, and OpenAI's mark of the end."""
        return (self._event([], usage(self.prompt, answer)) if with_usage else b"") + DONE

    def _event(self, choices: list[dict[str, Any]], used: dict[str, Any] | None) -> bytes:
        body: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion.chunk" if self.chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }
        if used is not None:
            body["usage"] = {name: value for name, value in used.items() if value is not None}
        return b"data: " + ENCODER.encode(body).encode() + b"\n\n"
