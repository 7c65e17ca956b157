"""From what a caller asks to a job: which pool, whose, how urgent, and what it will probably cost.

The front door and the client that talks straight to Redis take jobs in by this same code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from fairlane.accounts import Caller
from fairlane.errors import InvalidRequest, ModelNotFound, NotFound, PayloadTooLarge, TierForbidden, UnknownTier
from fairlane.head import Head
from fairlane.model import JobSpec
from fairlane.queue.checks import MAX_HEAD_BYTES
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from producer import strictjson
from producer.affinity import prefixes

ENDPOINTS: Final = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
DEFAULT_TIER: Final = "default"
OUTPUT_TOKENS: Final = 256  # of an answer whose length the request does not bound
BYTES_PER_TOKEN: Final = 4
TOKEN_MS: Final = 20  # expected, until the pool's own statistics say better
START_MS: Final = 100
MOST_TOKENS: Final = 1_000_000
_MODEL: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,256}")


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One job as a caller asks for it. `body` is the OpenAI-shaped request; times in seconds from now."""

    model: str
    endpoint: str
    body: Mapping[str, Any]
    tier: str | None = None
    idempotency_key: str | None = None
    delay_s: float = 0.0
    deadline_s: float | None = None
    timeout_s: float | None = None
    max_attempts: int | None = None
    metadata: Mapping[str, Any] | None = None
    webhook: Mapping[str, Any] | None = None


class Intake:
    """Makes jobs of requests. `max_attempts` is for those that do not say."""

    def __init__(self, queue: Queue, max_attempts: int = 3) -> None:
        self._queue = queue
        self._max_attempts = max_attempts
        self._pools: dict[str, Pool] = {}  # a pool once opened stays; what its policy says is asked again

    async def pool(self, model: str) -> Pool:
        """The pool that serves `model`, as it stands now. Raises ModelNotFound, InvalidRequest, StoreUnavailable."""
        if (known := self._pools.get(_known_model(model))) is not None:
            return await self._queue.pools.current(known)
        try:
            found = self._pools[model] = await self._queue.pools.by_name(model)
            return found
        except NotFound as error:
            raise _no_pool(model) from error

    async def job(self, request: JobRequest, caller: Caller) -> tuple[Pool, JobSpec]:
        """The job, and where it goes. Raises InvalidRequest, UnknownTier, TierForbidden, ModelNotFound."""
        pool = await self.pool(request.model)
        return pool, self.spec(request, pool, caller)

    def spec(self, request: JobRequest, pool: Pool, caller: Caller) -> JobSpec:
        """Raises InvalidRequest, UnknownTier, TierForbidden, ModelNotFound for a pool that is not for this caller."""
        if caller.pools is not None and pool.name not in caller.pools:
            raise _no_pool(pool.name)
        if request.endpoint not in ENDPOINTS:
            raise InvalidRequest(f"endpoint is one of {', '.join(ENDPOINTS)}.", param="endpoint")
        if request.webhook is not None:
            raise InvalidRequest(
                "There are no webhooks yet. Leave `webhook` out, and wait for the job.", param="webhook"
            )
        if request.deadline_s is not None and request.delay_s >= request.deadline_s:
            raise InvalidRequest("The job would be past its deadline before its delay ends.", param="deadline_s")
        body = _body(request)
        packed = _packed("body", body)
        output = 0 if request.endpoint == "/v1/embeddings" else _output_tokens(body)
        return JobSpec(
            tenant=caller.tenant,
            tier=_tier(request, pool, caller),
            body=packed,
            head=_head(request, pool),
            input_tokens=min(MOST_TOKENS, len(packed) // BYTES_PER_TOKEN),
            output_tokens=output,
            expected_ms=START_MS + TOKEN_MS * output,
            max_attempts=self._max_attempts if request.max_attempts is None else request.max_attempts,
            delay_ms=_ms("delay_s", request.delay_s),
            deadline_ms=None if request.deadline_s is None else _ms("deadline_s", request.deadline_s),
            idempotency_key=request.idempotency_key,
            prefix=prefixes(request.endpoint, body) if pool.policy.affinity == "prefix" else (),
        )


def _no_pool(model: str) -> ModelNotFound:
    return ModelNotFound(f"No pool serves the model {model!r}. GET /v1/models lists those that are.", param="model")


def _known_model(model: object) -> str:
    if not isinstance(model, str) or not _MODEL.fullmatch(model):
        raise InvalidRequest("model is the name of a model, of 1 to 256 characters.", param="model")
    return model


def _body(request: JobRequest) -> dict[str, Any]:
    """What the backend gets: the request, with its model, without what was meant for us."""
    body = dict(request.body)
    if body.setdefault("model", request.model) != request.model:
        raise InvalidRequest("The body names another model than the job does.", param="body.model")
    if body.get("stream"):
        raise InvalidRequest("Streaming is not available yet. Send the request without `stream`.", param="stream")
    body.pop("service_tier", None)
    body.pop("priority", None)  # of an engine's queue: how urgent a job is there, its tier and its age say
    return body


def _packed(name: str, value: Mapping[str, Any]) -> bytes:
    try:
        return strictjson.dump(value)
    except ValueError as error:
        raise InvalidRequest(f"{name} cannot be written as JSON: {error}.", param=name) from error


def _head(request: JobRequest, pool: Pool) -> bytes:
    for name, given in (("metadata", request.metadata), ("webhook", request.webhook)):
        _packed(name, given or {})
    head = Head(request.endpoint, pool.name, request.timeout_s, request.metadata or {}, request.webhook).encode()
    if len(head) > MAX_HEAD_BYTES:
        raise PayloadTooLarge(f"metadata and webhook have {MAX_HEAD_BYTES} bytes at the most.", param="metadata")
    return head


def _tier(request: JobRequest, pool: Pool, caller: Caller) -> str:
    tier = _asked_tier(request, pool)
    if caller.tiers is not None and tier not in caller.tiers:
        allowed = ", ".join(one for one in pool.policy.tiers if one in caller.tiers) or "none"
        raise TierForbidden(f"This key may not use the tier {tier!r}. It may use: {allowed}.", param="tier")
    return tier


def _asked_tier(request: JobRequest, pool: Pool) -> str:
    """What was asked for, or the body's `service_tier`, or `default`; where there is one tier only, that one."""
    tiers = pool.policy.tiers
    asked, param = request.tier, "tier"
    if asked is None:
        asked, param = request.body.get("service_tier"), "service_tier"
        if asked is None or asked == "auto":
            if len(tiers) == 1:
                return tiers[0]
            asked = DEFAULT_TIER
    if asked not in tiers:
        raise UnknownTier(f"There is no tier {asked!r}. The tiers are {', '.join(tiers)}.", param=param)
    return cast(str, asked)


def _output_tokens(body: Mapping[str, Any]) -> int:
    asked = body.get("max_completion_tokens", body.get("max_tokens"))
    tokens = asked if isinstance(asked, int) and not isinstance(asked, bool) and asked > 0 else OUTPUT_TOKENS
    copies = body.get("n")
    times = copies if isinstance(copies, int) and not isinstance(copies, bool) and copies > 0 else 1
    return min(MOST_TOKENS, min(tokens, MOST_TOKENS) * min(times, 1000))


def _ms(name: str, seconds: float) -> int:
    if not 0 <= seconds <= 10 * 365 * 86_400:  # also false for NaN
        raise InvalidRequest(f"{name} is a number of seconds, from 0 to ten years.", param=name)
    return round(1000 * seconds)
