"""What may be asked of the server: the bodies of requests, checked as vLLM checks them."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dispatcher.backends.simulated.language import tokens_in
from dispatcher.backends.simulated.options import Options

TOKEN_MESSAGE = 4  # what a chat template adds to each message, in tokens
TokenIds = list[Annotated[int, Field(ge=0)]]
Texts = str | TokenIds | list[str] | list[TokenIds]


class Refused(Exception):
    """The request is answered with an error. `kind` is the `type` in vLLM's error body."""

    def __init__(self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None):
        super().__init__(message)
        self.message, self.status, self.kind, self.param = message, status, kind, param


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    priority: int = Field(0, ge=-(2**63), le=2**63 - 1)


class StreamOptions(BaseModel):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class _Generation(_Body):
    """The fields that both kinds of generation share; those that decide nothing here are checked nevertheless."""

    n: int | None = 1
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: str | list[str] | None = None

    @property
    def limit(self) -> int | None:
        """The most tokens that the caller wants."""
        return self.max_tokens

    def prompts(self) -> list[tuple[str, int]]:
        """Each prompt's text and its length in tokens."""
        raise NotImplementedError


class Completion(_Generation):
    """The body of /v1/completions."""

    prompt: Texts | None = None
    max_tokens: int | None = 16

    @property
    def limit(self) -> int | None:
        return 16 if self.max_tokens is None else self.max_tokens

    def prompts(self) -> list[tuple[str, int]]:
        return _texts(self.prompt or "")


class Message(BaseModel):
    role: str
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content)
        return self.content or ""


class Chat(_Generation):
    """The body of /v1/chat/completions."""

    messages: list[Message]
    max_completion_tokens: int | None = None

    @property
    def limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def prompts(self) -> list[tuple[str, int]]:
        said = [f"{message.role}: {message.text}" for message in self.messages]
        return [("\n".join(said), 1 + sum(tokens_in(text) - 1 + TOKEN_MESSAGE for text in said))]


class Responding(_Generation):
    """The body of /v1/responses. What is `echoed` comes back in the answer."""

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = None
    background: bool | None = False
    previous_response_id: str | None = None
    metadata: dict[str, str] | None = None
    parallel_tool_calls: bool | None = True
    max_tool_calls: int | None = None
    reasoning: dict[str, Any] | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] = "auto"
    text: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] = "auto"
    tools: list[dict[str, Any]] = Field(default_factory=lambda: list[dict[str, Any]]())
    truncation: Literal["auto", "disabled"] | None = "disabled"
    user: str | None = None

    @property
    def limit(self) -> int | None:
        return self.max_output_tokens

    def prompts(self) -> list[tuple[str, int]]:
        given = [{"role": "user", "content": self.input}] if isinstance(self.input, str) else self.input
        said = [f"system: {self.instructions}"] if self.instructions else []
        said += [_said(item) for item in given]
        return [("\n".join(said), 1 + sum(tokens_in(text) - 1 + TOKEN_MESSAGE for text in said))]

    def echoed(self) -> dict[str, Any]:
        names = ("instructions", "metadata", "parallel_tool_calls", "max_tool_calls", "reasoning", "service_tier")
        return {name: getattr(self, name) for name in (*names, "text", "tool_choice", "tools", "truncation", "user")}


class Embedding(_Body):
    """The body of /v1/embeddings."""

    input: Texts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1, le=4096)

    def prompts(self) -> list[tuple[str, int]]:
        return _texts(self.input)


Ask = TypeVar("Ask", Completion, Chat, Responding, Embedding)


def read(kind: type[Ask], body: bytes, content_type: str) -> Ask:
    """The body as `kind`. Raises Refused (400) if it is no JSON or a field has the wrong type."""
    if content_type.lower().partition(";")[0].strip() != "application/json":
        raise _invalid(["Unsupported Media Type: Only 'application/json' is allowed"])
    try:
        return kind.model_validate(json.loads(body))
    except ValidationError as error:
        found = [{**item, "loc": ("body", *item["loc"])} for item in error.errors(include_url=False)]
        raise _invalid(found, param=".".join(str(part) for part in error.errors()[0]["loc"]) or None) from None
    except (ValueError, RecursionError) as error:
        at = error.pos if isinstance(error, json.JSONDecodeError) else 0
        why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        said = {"type": "json_invalid", "loc": ("body", at), "msg": "JSON decode error", "ctx": {"error": why}}
        raise _invalid([said]) from None


def check(ask: Completion | Chat | Responding, options: Options) -> tuple[str, int, int]:
    """The one prompt's text, its length and the most tokens that its answer may have. Raises Refused (400, 404)."""
    check_served(ask, options)
    if isinstance(ask, Completion) and not ask.prompt:
        raise Refused("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
    if isinstance(ask, Responding):
        _check_stateless(ask)
    prompts = ask.prompts()
    if len(prompts) > 1:
        raise Refused("The simulated backend takes one prompt a request.", param="prompt")
    _check_sampling(ask)
    text, length = prompts[0]
    limit = ask.limit
    if limit is not None and limit > options.max_model_len and not isinstance(ask, Responding):
        raise Refused(
            f"max_tokens={limit} cannot be greater than max_model_len={options.max_model_len}. "
            "Please request fewer output tokens.",
            param="max_tokens",
        )
    check_length(length, options)
    most = min(options.max_model_len - length, options.max_model_len if limit is None else limit)
    if most < 1:
        raise Refused(f"max_tokens must be at least 1, got {most}.", param="max_tokens")
    if ask.min_tokens > most:
        raise Refused(f"min_tokens must be less than or equal to max_tokens={most}, got {ask.min_tokens}.")
    return text, length, most


def check_served(ask: _Body, options: Options) -> None:
    """Raises Refused if the model is another one (404) or the priority is not taken (400)."""
    if ask.model and ask.model not in options.models:
        raise Refused(
            f"The model `{ask.model}` does not exist. Valid aliases: {', '.join(options.models)}.",
            status=404,
            kind="NotFoundError",
            param="model",
        )
    if ask.priority and options.priority == "refused":
        raise Refused(f"Got priority {ask.priority} but Priority scheduling is not enabled.")


def check_length(prompt: int, options: Options) -> None:
    """Raises Refused (400) if a prompt of so many tokens is too long, or empty."""
    if prompt < 1:
        raise Refused("The decoder prompt cannot be empty.", param="prompt")
    if prompt > options.max_model_len:
        raise Refused(
            f"This model's maximum context length is {options.max_model_len} tokens. However, your prompt contains "
            f"{prompt} input tokens, which exceeds this limit even without any output tokens. "
            "Please reduce the length of the input prompt.",
            param="input_tokens",
        )


def _check_sampling(ask: Completion | Chat | Responding) -> None:
    if ask.stream_options is not None and not ask.stream:
        raise Refused("Stream options can only be defined when `stream=True`.", param="stream_options")
    if ask.n is not None and ask.n < 1:
        raise Refused(f"n must be at least 1, got {ask.n}.", param="n")
    if ask.n is not None and ask.n > 1:
        raise Refused("The simulated backend makes one answer a request: n must be 1.", param="n")
    if ask.temperature is not None and not 0 <= ask.temperature <= 2:
        raise Refused(f"temperature must be in [0, 2], got {ask.temperature}.", param="temperature")
    if ask.top_p is not None and not 0 < ask.top_p <= 1:
        raise Refused(f"top_p must be in (0, 1], got {ask.top_p}.", param="top_p")
    if ask.min_tokens < 0:
        raise Refused(f"min_tokens must be greater than or equal to 0, got {ask.min_tokens}.")


def _check_stateless(ask: Responding) -> None:
    """As vLLM refuses it where it keeps no responses, which is its default."""
    kind = "invalid_request_error"
    if ask.background:
        raise Refused("This server keeps no responses: there is no background mode.", kind=kind, param="background")
    if ask.previous_response_id is not None:
        message = f"Response with id '{ask.previous_response_id}' not found."
        raise Refused(message, status=404, kind=kind, param="response_id")


def _said(item: dict[str, Any]) -> str:
    """An item of a response's input: what somebody said, or what a tool was asked or answered."""
    content = item.get("content")
    if isinstance(content, list):
        parts = cast("list[object]", content)
        text = "".join(str(cast("dict[str, Any]", part).get("text", "")) for part in parts if isinstance(part, dict))
    else:
        text = content if isinstance(content, str) else str(item.get("output") or item.get("arguments") or "")
    return f"{item.get('role', item.get('type'))}: {text}"


def _texts(given: Texts) -> list[tuple[str, int]]:
    """OpenAI's four ways to give one or several texts: as text or as token ids."""
    if isinstance(given, str):
        return [(given, tokens_in(given))]
    if all(isinstance(item, int) for item in given):
        return [(json.dumps(given), len(given))]
    return [
        (item, tokens_in(item))
        if isinstance(item, str)
        else (json.dumps(item), len(item) if isinstance(item, list) else 1)
        for item in given
    ]


def _invalid(errors: list[Any], param: str | None = None) -> Refused:
    """FastAPI's refusal of a body that is not what the endpoint takes."""
    count = f"{len(errors)} validation error{'s' if len(errors) > 1 else ''}"
    lines = "".join(f"\n  {error}" for error in errors[:10])
    return Refused(f"{count}:{lines}", kind="Bad Request", param=param)
