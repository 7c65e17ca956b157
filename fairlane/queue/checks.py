"""What may come into the queue from outside. A script cannot roll back, so everything is checked before it runs."""

from __future__ import annotations

import json
import re
from typing import Final
from urllib.parse import urlsplit

from fairlane.errors import InvalidRequest, PayloadTooLarge, UnknownTier
from fairlane.model import FAMILY_NAMES, TENANT_PATTERN, BackendSpec, JobSpec, Limits, Settlement, TierGate, Usage
from fairlane.queue.pools import Pool

OURS: Final = "\x1f"  # idempotency keys of batches begin with it, and no others may
MAX_HEAD_BYTES: Final = 64 << 10
MAX_INFO_BYTES: Final = 1 << 10
MAX_STEER_BYTES: Final = 8 << 10
MAX_URL_CHARS: Final = 2048
MOST_GAMMA: Final = 1000
MOST_MS: Final = 10 * 365 * 86_400_000
MOST_HASHES: Final = 8
_HASH: Final = re.compile(r"[0-9a-f]{4,32}")
_INBOX: Final = re.compile(r"[A-Za-z0-9]{8,64}")
_TENANT: Final = re.compile(TENANT_PATTERN)
_BACKEND: Final = re.compile(r"[A-Za-z0-9._:/@-]{1,128}")
_DISPATCHER: Final = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
_KEY_ENV: Final = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")


def check_job(pool: Pool, spec: JobSpec, max_body_bytes: int) -> None:
    """Raises InvalidRequest, UnknownTier or PayloadTooLarge for a job that cannot be taken in, whatever Redis says."""
    check_tenant(spec.tenant)
    check_tier(pool, spec.tier)
    if len(spec.body) > max_body_bytes or len(spec.head) > MAX_HEAD_BYTES:
        raise PayloadTooLarge(f"The most is {max_body_bytes} bytes of body and {MAX_HEAD_BYTES} of head.")
    for name, text in (("idempotency_key", spec.idempotency_key), ("batch_id", spec.batch_id)):
        if text is not None and not (1 <= len(text) <= 512 and _is_encodable(text)):
            raise InvalidRequest(f"{name} has 1 to 512 characters that can be written as UTF-8.", param=name)
    _check_key(spec)
    for name, ms in (("delay_ms", spec.delay_ms), ("deadline_ms", spec.deadline_ms), ("expected_ms", spec.expected_ms)):
        if ms is not None:
            check_ms(name, ms)
    if not is_whole(spec.max_attempts, 1, 100):
        raise InvalidRequest("max_attempts is a whole number from 1 to 100.", param="max_attempts")
    for name, tokens in (("input_tokens", spec.input_tokens), ("output_tokens", spec.output_tokens)):
        if not is_whole(tokens, 0, 10**7):
            raise InvalidRequest(f"{name} is a whole number from 0 to 10 million.", param=name)
    _check_marks(spec)


def _check_marks(spec: JobSpec) -> None:
    if spec.inbox is not None and not _INBOX.fullmatch(spec.inbox):
        raise InvalidRequest("inbox is 8 to 64 letters and digits.", param="inbox")
    if len(spec.prefix) > MOST_HASHES or not all(map(_HASH.fullmatch, spec.prefix)):
        raise InvalidRequest(f"prefix holds up to {MOST_HASHES} hashes of hex digits.", param="prefix")


def _check_key(spec: JobSpec) -> None:
    if spec.batch_id is None and (spec.idempotency_key or "").startswith(OURS):
        raise InvalidRequest("An idempotency_key does not begin with a control character.", param="idempotency_key")


def check_ms(name: str, ms: int) -> None:
    if not is_whole(ms, 0, MOST_MS):
        raise InvalidRequest(f"{name} is a whole number of milliseconds, from 0 to ten years.", param=name)


def check_tenant(tenant: str) -> None:
    if not _TENANT.fullmatch(tenant):
        raise InvalidRequest(f"A tenant's name has the form {TENANT_PATTERN}.", param="tenant")


def check_tier(pool: Pool, tier: str) -> None:
    if tier not in pool.policy.tiers:
        raise UnknownTier(f"There is no tier {tier!r}. The tiers are {', '.join(pool.policy.tiers)}.", param="tier")


def check_backend(backend: str) -> None:
    if not _BACKEND.fullmatch(backend):
        raise InvalidRequest(f"A backend's name has the form {_BACKEND.pattern}.", param="backend")


def check_spec(spec: BackendSpec, act: str) -> None:
    if act != "add":
        raise InvalidRequest("A spec is given when a backend is added.", param="spec")
    if not _is_address(spec.url):
        raise InvalidRequest("A backend's url is http://…, https://… or null://, in visible ASCII.", param="url")
    if spec.family is not None and spec.family not in FAMILY_NAMES:
        raise InvalidRequest(f"A family is one of {', '.join(FAMILY_NAMES)}.", param="family")
    if spec.key_env is not None and not _KEY_ENV.fullmatch(spec.key_env):
        raise InvalidRequest("key_env is the name of an environment variable, not a key.", param="key_env")
    if spec.slots is not None and not is_whole(spec.slots, 1, 100_000):
        raise InvalidRequest("slots is a whole number from 1 to 100,000.", param="slots")


def check_dispatcher(name: str) -> None:
    if not _DISPATCHER.fullmatch(name):
        raise InvalidRequest(f"A dispatcher's name has the form {_DISPATCHER.pattern}.", param="dispatcher")


def check_info(info: str) -> None:
    """What a dispatcher says of itself."""
    _check_json("info", info, MAX_INFO_BYTES)


def check_steer(gamma: float | None, seen: str) -> None:
    """What the observer has found about a pool."""
    if gamma is not None and not 0 <= gamma <= MOST_GAMMA:  # also refuses NaN
        raise InvalidRequest(f"gamma is from 0 to {MOST_GAMMA} per second.", param="gamma")
    if not isinstance(_check_json("seen", seen, MAX_STEER_BYTES), dict):
        raise InvalidRequest("seen is a JSON object.", param="seen")


def _check_json(name: str, text: str, most: int) -> object:
    try:
        value: object = json.loads(text)
        size = len(text.encode())
    except ValueError as error:
        raise InvalidRequest(f"{name} is JSON.", param=name) from error
    if size > most:
        raise InvalidRequest(f"{name} has {most} bytes at the most.", param=name)
    return value


def check_ttl(ttl_ms: int) -> None:
    if not is_whole(ttl_ms, 1, 3_600_000):
        raise InvalidRequest("A role is held for 1 ms to an hour at a time.", param="ttl_ms")


def check_call(dispatcher: str, call_no: int, n: int, most: int) -> None:
    """The arguments of an acquire. Numbers above 2^53 are not whole in Lua."""
    if not (_DISPATCHER.fullmatch(dispatcher) and is_whole(n, 1, most) and is_whole(call_no, 1, 2**53 - 1)):
        raise InvalidRequest(f"acquire takes a dispatcher's name, a call number from 1, n from 1 to {most}.")


def check_gate(tier: str, gate: TierGate) -> None:
    if not (is_whole(gate.limit, 0, 10**9) and is_whole(gate.fallback, 0, 10**9)):
        raise InvalidRequest("A gate's limit and fallback are whole numbers from 0.", param=tier)


def check_usage(usage: Usage | None) -> None:
    if usage and not (is_whole(usage.input_tokens, 0, 10**9) and is_whole(usage.output_tokens, 0, 10**9)):
        raise InvalidRequest("Usage is in whole tokens, from 0 to a billion.", param="usage")


def check_settlement(settlement: Settlement) -> None:
    check_usage(settlement.usage)
    if settlement.state not in ("succeeded", "failed"):
        raise InvalidRequest("A job is settled as succeeded or failed.", param="state")
    if settlement.status is not None and not is_whole(settlement.status, 0, 999):
        raise InvalidRequest("status is an HTTP status.", param="status")


def check_limits(limits: Limits) -> None:
    if not 0.01 <= limits.weight <= 1000:
        raise InvalidRequest("A weight is from 0.01 to 1000.", param="weight")
    for name in ("max_inflight", "requests_per_minute", "tokens_per_minute", "max_waiting"):
        least = 1 if name.endswith("per_minute") else 0
        value = getattr(limits, name)
        if value is not None and not is_whole(value, least, 10**9):
            raise InvalidRequest(f"{name} is a whole number from {least}, or None for no limit.", param=name)


def is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_address(url: str) -> bool:
    if not (url.isascii() and url.isprintable()) or " " in url or len(url) > MAX_URL_CHARS:
        return False
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises for one that is no number
    except ValueError:
        return False
    return parts.scheme == "null" or (parts.scheme in ("http", "https") and bool(parts.hostname))


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
