"""What a caller asks for, ready to be sent: checked, with an idempotency key, as the JSON of `POST /v1/jobs`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from inspect import Signature, signature
from typing import Concatenate, Final, ParamSpec, TypeVar, cast

from fairlane import strictjson
from fairlane.errors import InvalidRequest
from producer.intake import JobRequest

P = ParamSpec("P")
Self_ = TypeVar("Self_")
T = TypeVar("T")

KEY_BYTES: Final = 16
TEN_YEARS_S: Final = 10 * 365 * 86_400
_ENDPOINTS: Final = {
    "messages": "/v1/chat/completions",
    "prompt": "/v1/completions",
    "input": "/v1/embeddings",
}


@dataclass(frozen=True, slots=True)
class Submission:
    """One job on its way: `tenant` None is the client's own; `wire` is its JSON as UTF-8, a snapshot of the request."""

    request: JobRequest
    tenant: str | None
    wire: bytes = field(repr=False)

    @classmethod
    def of(cls, request: JobRequest, tenant: str | None) -> Submission:
        """Gives the request a key of its own, if it has none. Raises InvalidRequest."""
        _check(request, tenant)
        if request.idempotency_key is None:
            request = replace(request, idempotency_key=_fresh_key())
        return cls(request, tenant, _wire(request, tenant))


def submission(
    *,
    model: str | None = None,
    messages: Iterable[Mapping[str, object]] | None = None,
    prompt: str | Sequence[object] | None = None,
    input: str | Sequence[object] | None = None,  # noqa: A002  # OpenAI's name
    body: Mapping[str, object] | None = None,
    endpoint: str | None = None,
    tier: str | None = None,
    tenant: str | None = None,
    idempotency_key: str | None = None,
    delay_s: float | None = None,
    deadline_s: float | None = None,
    timeout_s: float | None = None,
    max_attempts: int | None = None,
    metadata: Mapping[str, object] | None = None,
    webhook: str | Mapping[str, object] | None = None,
    **parameters: object,
) -> Submission:
    """One request, as keyword arguments.

    Say what to answer by one of `messages` (chat), `prompt` (completion), `input` (embeddings), or by a whole `body`,
    which may name the model too. All other arguments (`temperature`, `max_tokens` …) go into the body as they are.
    Times in seconds: `delay_s` and `deadline_s` count from now, and the deadline is for the start of the work;
    `timeout_s` bounds one attempt. `webhook` is the URL that is told how the job ended, or `{"url", "secret"?,
    "headers"?}`; without a secret, it is signed with `client.webhooks.secret()`. Without an `idempotency_key` the call
    gets a fresh one, the same over its retries. Raises InvalidRequest.
    """
    given: dict[str, object] = {
        name: value for name, value in (("prompt", prompt), ("input", input)) if value is not None
    }
    if messages is not None:
        given["messages"] = list(messages)  # they may come from a generator
    whole = {**(body or {}), **given, **parameters}
    kinds = [name for name in _ENDPOINTS if name in whole]
    if endpoint is None and len(kinds) != 1:
        raise InvalidRequest("Say what to answer by one of messages, prompt, input, or body with an endpoint.")
    named = whole.get("model") if model is None else model
    if not isinstance(named, str) or not named:
        raise InvalidRequest("Name the model, by model=… or in the body.", param="model")
    request = JobRequest(
        model=named,
        endpoint=endpoint or _ENDPOINTS[kinds[0]],
        body=whole,
        tier=tier,
        idempotency_key=_fresh_key() if idempotency_key is None else idempotency_key,
        delay_s=0.0 if delay_s is None else delay_s,
        deadline_s=deadline_s,
        timeout_s=timeout_s,
        max_attempts=max_attempts,
        metadata=metadata,
        webhook=hook_of(webhook),
    )
    return Submission.of(request, tenant)


def hook_of(webhook: str | Mapping[str, object] | None) -> Mapping[str, object] | None:
    """A job's or batch's own webhook, whose URL may be all that is said."""
    return {"url": webhook} if isinstance(webhook, str) else webhook


def streamed(asked: Submission) -> Submission:
    """The same, with an answer that comes chunk by chunk. Raises InvalidRequest."""
    request = asked.request
    return Submission.of(replace(request, body={**request.body, "stream": True}), asked.tenant)


def asking(
    make: Callable[P, Submission],
) -> Callable[[Callable[[Self_, Submission], T]], Callable[Concatenate[Self_, P], T]]:
    """A method that takes a Submission becomes one that takes the arguments of `make`."""

    def decorate(act: Callable[[Self_, Submission], T]) -> Callable[Concatenate[Self_, P], T]:
        @wraps(act)
        def call(self: Self_, /, *args: P.args, **kwargs: P.kwargs) -> T:
            if args:
                raise TypeError(f"{act.__name__} takes named arguments: say prompt=…, messages=… or body=….")
            return act(self, make(*args, **kwargs))

        this, _ = signature(act).parameters.values()
        vars(call)["__signature__"] = Signature([this, *signature(make).parameters.values()])
        call.__doc__ = f"{act.__doc__}\n\n{make.__doc__}"
        return call

    return decorate


def submission_of(item: Mapping[str, object] | JobRequest) -> Submission:
    """One item of `submit_many`: the arguments of `submission` as a dict, or a JobRequest. Raises InvalidRequest."""
    if isinstance(item, JobRequest):
        return Submission.of(item, None)
    if not isinstance(item, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidRequest(f"A job is a dict or a JobRequest, not {type(item).__name__}.")
    return cast("Callable[..., Submission]", submission)(**item)


def _fresh_key() -> str:
    return secrets.token_hex(KEY_BYTES)


def _check(request: JobRequest, tenant: str | None) -> None:
    """The types and ranges that are the same over every transport; what they mean is the queue's to judge."""
    for name, text in (("tenant", tenant), ("tier", request.tier), ("idempotency_key", request.idempotency_key)):
        if not isinstance(text, str | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequest(f"{name} is a text.", param=name)
    for name, seconds, least in (
        ("delay_s", request.delay_s, "from 0"),
        ("deadline_s", request.deadline_s, "above 0"),
        ("timeout_s", request.timeout_s, "above 0"),
    ):
        if seconds is not None and not _is_time(seconds, zero=least == "from 0"):
            raise InvalidRequest(f"{name} is a number of seconds, {least}, up to ten years.", param=name)


def _is_time(seconds: object, *, zero: bool) -> bool:
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return False
    return 0 <= seconds <= TEN_YEARS_S and (zero or seconds > 0)


def _wire(request: JobRequest, tenant: str | None) -> bytes:
    fields: dict[str, object] = {
        "model": request.model,
        "endpoint": request.endpoint,
        "body": dict(request.body),
        "tier": request.tier,
        "tenant": tenant,
        "idempotency_key": request.idempotency_key,
        "delay_s": request.delay_s or None,
        "deadline_s": request.deadline_s,
        "timeout_s": request.timeout_s,
        "max_attempts": request.max_attempts,
        "metadata": None if request.metadata is None else dict(request.metadata),
        "webhook": request.webhook,
    }
    kept = {name: value for name, value in fields.items() if value is not None}
    try:
        return strictjson.dump(kept)
    except ValueError as error:  # no JSON type, NaN, half of a surrogate pair, a circle
        raise InvalidRequest(f"The job cannot be written as JSON: {error}.", param="body") from error
