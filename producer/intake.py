"""From what a caller asks to a job: which pool, whose, how urgent, and what it will probably cost.

The front door and the client that talks straight to Redis take jobs in by this same code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from fairlane.accounts import Caller
from fairlane.asking import ENDPOINTS, RESPONSES, asked, for_backend, packed
from fairlane.errors import InvalidRequest, ModelNotFound, NotFound, PayloadTooLarge, TierForbidden, UnknownTier
from fairlane.head import Head
from fairlane.model import JobSpec
from fairlane.queue.checks import MAX_HEAD_BYTES
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.safe_url import Guard
from fairlane.webhooks.values import check_own
from producer.limiting import Limiting

DEFAULT_TIER: Final = "default"
NAMED_MOST: Final = 20  # models that a refusal names
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
    """Makes jobs of requests. `max_attempts` is for those that do not say; `guard` says where webhooks may go."""

    def __init__(self, queue: Queue, max_attempts: int = 3, *, guard: Guard) -> None:
        self._queue = queue
        self._guard = guard
        self._max_attempts = max_attempts
        self.limiting = Limiting(queue, guard)
        self._pools: dict[str, Pool] = {}  # what its policy says is asked again

    async def pool(self, model: str, caller: Caller | None = None) -> Pool:
        """The pool that serves `model`, as it stands now. Raises ModelNotFound, InvalidRequest, StoreUnavailable.

        One that the caller may not use is not there for it.
        """
        found = await self._find(_known_model(model))
        if found is None or (caller and not caller.may_use(model)):
            raise _no_pool(model, await self._queue.pools.served(), caller)
        return found

    async def _find(self, model: str) -> Pool | None:
        if known := self._pools.get(model):
            with suppress(NotFound):
                return await self._queue.pools.current(known)
            self._pools.pop(model, None)
        with suppress(NotFound):
            found = self._pools[model] = await self._queue.pools.by_name(model)
            return found
        return None

    async def job(self, request: JobRequest, caller: Caller) -> tuple[Pool, JobSpec]:
        """The job, and where it goes. Raises InvalidRequest, UnknownTier, TierForbidden, ModelNotFound."""
        pool = await self.pool(request.model, caller)
        spec = self.spec(request, pool, caller)
        await self.limiting.ensure(pool, spec.tenant)
        return pool, spec

    def spec(self, request: JobRequest, pool: Pool, caller: Caller) -> JobSpec:
        """Raises InvalidRequest, UnknownTier, TierForbidden, ModelNotFound for a pool that is not for this caller."""
        if not caller.may_use(pool.name):
            raise _no_pool(pool.name, [], caller)
        if request.endpoint not in ENDPOINTS:
            raise InvalidRequest(f"endpoint is one of {', '.join(ENDPOINTS)}.", param="endpoint")
        if request.webhook is not None:
            check_own(request.webhook, self._guard)
        if request.deadline_s is not None and request.delay_s >= request.deadline_s:
            raise InvalidRequest("The job would be past its deadline before its delay ends.", param="deadline_s")
        what = asked(request.endpoint, _body(request), with_prefix=pool.policy.affinity == "prefix")
        return JobSpec(
            tenant=caller.tenant,
            tier=_tier(request, pool, caller),
            body=what.body,
            head=_head(request, pool),
            input_tokens=what.input_tokens,
            output_tokens=what.output_tokens,
            expected_ms=what.expected_ms,
            max_attempts=self._max_attempts if request.max_attempts is None else request.max_attempts,
            delay_ms=_ms("delay_s", request.delay_s),
            deadline_ms=None if request.deadline_s is None else _ms("deadline_s", request.deadline_s),
            idempotency_key=request.idempotency_key,
            prefix=what.prefix,
            hook=request.webhook is not None,
        )


def _no_pool(model: str, pools: Sequence[str], caller: Caller | None) -> ModelNotFound:
    """The refusal, with the names of some that could be asked for instead."""
    known = [name for name in pools if caller is None or caller.may_use(name)]
    words = f"No pool serves the model {model!r}. GET /v1/models lists those that are served"
    if known:
        words += f": {', '.join(known[:NAMED_MOST])}{' …' if len(known) > NAMED_MOST else ''}"
    return ModelNotFound(f"{words}.", param="model")


def _known_model(model: object) -> str:
    if not isinstance(model, str) or not _MODEL.fullmatch(model):
        raise InvalidRequest("model is the name of a model, of 1 to 256 characters.", param="model")
    return model


def _body(request: JobRequest) -> dict[str, Any]:
    """What the backend gets: the request, with its model, without what was meant for us."""
    body = dict(request.body)
    if body.setdefault("model", request.model) != request.model:
        raise InvalidRequest("The body names another model than the job does.", param="body.model")
    _check_stream(request)
    return for_backend(request.endpoint, body)


def _check_stream(request: JobRequest) -> None:
    stream = request.body.get("stream")
    if not isinstance(stream, bool | None):
        raise InvalidRequest("stream is true or false.", param="stream")
    if stream and request.endpoint == "/v1/embeddings":
        raise InvalidRequest("Embeddings come whole. Send the request without `stream`.", param="stream")


def _head(request: JobRequest, pool: Pool) -> bytes:
    for name, given in (("metadata", request.metadata), ("webhook", request.webhook)):
        if given:
            packed(name, given)
    head = Head(
        request.endpoint,
        pool.name,
        request.timeout_s,
        request.metadata or {},
        request.webhook,
        stream=request.body.get("stream") is True,
        background=request.endpoint == RESPONSES and request.body.get("background") is True,
    ).encode()
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


def _ms(name: str, seconds: float) -> int:
    if not 0 <= seconds <= 10 * 365 * 86_400:  # also false for NaN
        raise InvalidRequest(f"{name} is a number of seconds, from 0 to ten years.", param=name)
    return round(1000 * seconds)
