"""Deliveries as values: what is to be sent where, and what became of each attempt. Times in Unix milliseconds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final, Literal, TypeAlias, cast

EXCERPT_MOST: Final = 16 << 10  # bytes of the answer to the last attempt
BRIEF_MOST: Final = 1 << 10  # of those before it
ERROR_MOST: Final = 500  # characters

DeliveryState: TypeAlias = Literal["pending", "delivered", "failed"]
DELIVERY_STATES: Final[tuple[DeliveryState, ...]] = ("pending", "delivered", "failed")
Verdict: TypeAlias = Literal["delivered", "again", "failed", "gone"]
Disabled: TypeAlias = Literal["gone", "failing"]


@dataclass(frozen=True, slots=True)
class Own:
    """A job's or batch's own hook. Without a secret, the tenant's default one signs."""

    url: str
    secret: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """Something to send: to an endpoint, whose id is its lane, or to an own hook, in a lane of tenant and origin."""

    id: str
    tenant: str
    lane: str
    endpoint_id: str | None
    own: Own | None
    event: str
    object_id: str
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sending:
    """All that it takes to make attempt `n` (from 1) of a delivery. The newest of `secrets` comes first."""

    id: str
    tenant: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    payload: bytes = field(repr=False)
    n: int
    created_at_ms: int
    endpoint_id: str | None


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt. `status` is None if nothing answered; `error` None if all was well; `excerpt`: of the answer."""

    at_ms: int
    duration_ms: int
    status: int | None
    error: str | None
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What follows from an attempt.

    `again`: the next one is in `delay_ms`. `failed`: there is none, for this `reason`. `gone`: nor is there an
    endpoint. `slow`: it has too much to do, and gets less at once. `pause_ms`: it wants nothing for so long.
    """

    attempt: Try
    verdict: Verdict
    delay_ms: int = 0
    reason: str = ""
    slow: bool = False
    pause_ms: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event on its way to one receiver.

    `endpoint_id` is None for a job's or batch's own hook. `reason` tells why it failed: the courier's (`exhausted`: no
    attempt is left), `gone`, `disabled` or `deleted` (its endpoint is), `too_old`. `next_at_ms`: while it is
    pending, when the next attempt may be made; not as long as its receiver is left alone. Of `tries` the last ones are
    kept. `payload` is None in lists.
    """

    id: str
    tenant: str
    endpoint_id: str | None
    url: str
    event: str
    object_id: str
    state: DeliveryState
    reason: str | None
    created_at_ms: int
    next_at_ms: int | None
    tries: tuple[Try, ...]
    payload: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Counts:
    """Of all tenants: `due` could be given out now (counted up to a bound), `pending` are to be sent at some time; the
    others are totals: `retried` are attempts that another one follows."""

    due: int
    pending: int
    delivered: int
    failed: int
    retried: int


@dataclass(frozen=True, slots=True)
class LaneRules:
    """How lanes are steered: FAIRLANE_WEBHOOK_CONCURRENCY, …_BREAKER_S, …_DISABLE_AFTER_S, …_KEEP_S.

    `breaker_ms` is how long a lane is shut at first, `keep_ms` how long a delivery is kept that has arrived.
    """

    concurrency: int = 10
    breaker_ms: int = 30_000
    disable_after_ms: int = 5 * 86_400_000
    keep_ms: int = 86_400_000


def packed_try(attempt: Try) -> str:
    """One line, whose excerpt is brief."""
    error = attempt.error and attempt.error[:ERROR_MOST]
    brief = replace(attempt, error=error, excerpt=cut(attempt.excerpt, BRIEF_MOST))
    return _storable(json.dumps(asdict(brief), ensure_ascii=False, separators=(",", ":")))


def tries(lines: bytes, last_excerpt: bytes | None) -> tuple[Try, ...]:
    """The attempts out of their lines; the last one with all of its excerpt, if that is given."""
    known = [Try(**json.loads(line)) for line in lines.split(b"\n") if line]
    if known and last_excerpt is not None:
        known[-1] = replace(known[-1], excerpt=last_excerpt.decode())
    return tuple(known)


def cut(text: str, most: int) -> str:
    """As much of the text as has `most` bytes."""
    return _storable(text).encode()[:most].decode(errors="ignore")


def delivery(id_: str, kept: Mapping[str, bytes]) -> Delivery:
    """A delivery from its hash, which lua/lib/delivery.lua describes."""
    pending = kept["state"] == b"pending"
    return Delivery(
        id=id_,
        tenant=kept["tenant"].decode(),
        endpoint_id=kept["endpoint"].decode() or None,
        url=kept["url"].decode(),
        event=kept["event"].decode(),
        object_id=kept["object"].decode(),
        state=cast(DeliveryState, kept["state"].decode()),
        reason=kept["reason"].decode() if kept.get("reason") else None,
        created_at_ms=int(kept["created"]),
        next_at_ms=int(kept["next"]) if pending else None,
        tries=tries(kept.get("tries", b""), kept.get("excerpt")),
        payload=kept.get("payload"),
    )


def _storable(text: str) -> str:
    """Without halves of surrogate pairs, which no UTF-8 can hold."""
    return text.encode(errors="replace").decode()
